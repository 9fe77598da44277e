//! Which experts a run used, and how often: what a later run preloads (`--save-profile`, `--warm-profile`).
//!
//! One JSON object. It names the model by its shape, so that a profile of another model is found out. A binary
//! trace serves as well, as far as it goes.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::codec::TraceReader;
use crate::record::{LayerShape, ModelShape, Record, RouteRecord};

/// Version of the format.
pub const PROFILE_VERSION: u32 = 1;

/// How often each expert was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`PROFILE_VERSION`].
    pub bmoe_profile: u32,
    /// `general.architecture`.
    pub arch: String,
    /// Transformer layers, dense ones included.
    pub n_layer: u32,
    /// Experts per MoE layer.
    pub n_expert: u32,
    /// One entry for each MoE layer, in order.
    pub layers: Vec<LayerShape>,
    /// For each MoE layer, how many (token, slot) pairs named each expert, prompt and generated tokens alike.
    pub uses: Vec<Vec<u64>>,
}

/// A profile that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file can't be read.
    #[error("cannot read the profile {}: {source}", path.display())]
    Read {
        /// The file named.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is neither a profile nor a trace.
    #[error(
        "{} is neither a profile nor a binary trace: {message}; give a file written by --save-profile or \
         --trace",
        path.display()
    )]
    Parse {
        /// The file named.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The profile is of another model.
    #[error("the profile {} is of another model: {message}; make one with this model", path.display())]
    OtherModel {
        /// The file named.
        path: PathBuf,
        /// What differs.
        message: String,
    },
}

impl Profile {
    /// An empty profile of a model.
    #[must_use]
    pub fn new(shape: &ModelShape) -> Self {
        Self {
            bmoe_profile: PROFILE_VERSION,
            arch: shape.arch.clone(),
            n_layer: shape.n_layer,
            n_expert: shape.n_expert,
            layers: shape.layers.clone(),
            uses: vec![vec![0; shape.n_expert as usize]; shape.layers.len()],
        }
    }

    /// Counts an event's uses. Layers and experts that the model doesn't have are passed over.
    pub fn add(&mut self, route: &RouteRecord) {
        let Some(layer) = self.layers.iter().position(|l| l.layer == route.layer) else { return };
        for &expert in &route.experts {
            if let Some(uses) = self.uses[layer].get_mut(usize::from(expert)) {
                *uses += 1;
            }
        }
    }

    /// Reads a profile, or makes one of a binary trace, and checks that it is of the model.
    ///
    /// # Errors
    /// See [`ProfileError`].
    pub fn load(path: &Path, shape: &ModelShape) -> Result<Self, ProfileError> {
        let read = |source| ProfileError::Read { path: path.to_owned(), source };
        let parse = |message| ProfileError::Parse { path: path.to_owned(), message };
        let mut file = File::open(path).map_err(read)?;
        let mut magic = [0; 8];
        let is_trace = file.read_exact(&mut magic).is_ok() && magic == *b"BMOETRC\n";
        file.rewind().map_err(read)?;
        let profile = if is_trace {
            Self::of_trace(file).map_err(parse)?
        } else {
            let profile: Self =
                serde_json::from_reader(BufReader::new(file)).map_err(|e| parse(e.to_string()))?;
            if profile.bmoe_profile != PROFILE_VERSION {
                return Err(parse(format!(
                    "it has version {}, this program knows {PROFILE_VERSION}",
                    profile.bmoe_profile
                )));
            }
            profile
        };
        match profile.difference(shape) {
            Some(message) => Err(ProfileError::OtherModel { path: path.to_owned(), message }),
            None => Ok(profile),
        }
    }

    fn of_trace(file: File) -> Result<Self, String> {
        let mut reader = TraceReader::new(BufReader::new(file)).map_err(|e| e.to_string())?;
        let mut profile: Option<Self> = None;
        while let Some(record) = reader.read().map_err(|e| e.to_string())? {
            match (record, &mut profile) {
                (Record::Start(start), none) => *none = Some(Self::new(&start.model)),
                (Record::Route(route), Some(profile)) => profile.add(&route),
                _ => {}
            }
        }
        profile.ok_or_else(|| "the trace has no beginning".into())
    }

    /// What differs from a model's shape.
    fn difference(&self, shape: &ModelShape) -> Option<String> {
        let numbers = [
            ("layers", self.n_layer, shape.n_layer),
            ("experts per layer", self.n_expert, shape.n_expert),
            ("MoE layers", self.layers.len() as u32, shape.layers.len() as u32),
        ];
        if self.arch != shape.arch {
            return Some(format!("its architecture is {}, not {}", self.arch, shape.arch));
        }
        if let Some((what, ours, theirs)) = numbers.iter().find(|(_, a, b)| a != b) {
            return Some(format!("it has {ours} {what}, not {theirs}"));
        }
        if let Some((a, b)) = std::iter::zip(&self.layers, &shape.layers).find(|(a, b)| a != b) {
            return Some(format!(
                "an expert of its layer {} has {} bytes, one of layer {} here {}",
                a.layer, a.expert_bytes, b.layer, b.expert_bytes
            ));
        }
        let whole = self.uses.len() == self.layers.len()
            && self.uses.iter().all(|uses| uses.len() == self.n_expert as usize);
        (!whole).then(|| "its uses are not one number for each expert of each layer".into())
    }

    /// (MoE layer, expert) of all that was used, the most used first; of equals the first layer's and the
    /// smallest number.
    #[must_use]
    pub fn ranked(&self) -> Vec<(usize, u16)> {
        let mut all: Vec<(u64, usize, u16)> = Vec::new();
        for (layer, uses) in self.uses.iter().enumerate() {
            let used = uses.iter().enumerate().filter(|(_, uses)| **uses > 0);
            all.extend(used.map(|(expert, uses)| (*uses, layer, expert as u16)));
        }
        all.sort_by_key(|(uses, layer, expert)| (std::cmp::Reverse(*uses), *layer, *expert));
        all.into_iter().map(|(_, layer, expert)| (layer, expert)).collect()
    }

    /// The file's text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a profile has only plain values") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Phase;

    fn shape() -> ModelShape {
        ModelShape {
            arch: "qwen3moe".into(),
            n_layer: 3,
            n_expert: 4,
            n_expert_used: 2,
            file_bytes: 0,
            dense_bytes: 0,
            layers: [1, 2].map(|layer| LayerShape { layer, expert_bytes: 100 }).to_vec(),
        }
    }

    fn route(layer: u32, experts: &[u16]) -> RouteRecord {
        RouteRecord {
            turn: 0,
            ubatch: 0,
            phase: Phase::Decode,
            layer,
            top_k: 2,
            positions: vec![0],
            experts: experts.to_vec(),
            weights: vec![],
            distinct: vec![],
            residency: vec![],
            read_bytes: vec![],
            scored: vec![],
            scores: vec![],
        }
    }

    #[test]
    fn the_most_used_come_first_and_files_round_trip() {
        let mut profile = Profile::new(&shape());
        profile.add(&route(2, &[3, 1]));
        profile.add(&route(2, &[3, 0]));
        profile.add(&route(1, &[2, 0]));
        profile.add(&route(7, &[1, 1]));
        assert_eq!(profile.ranked(), [(1, 3), (0, 0), (0, 2), (1, 0), (1, 1)]);

        let folder = std::env::temp_dir().join(format!("bmoe-profile-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("p.json");
        std::fs::write(&path, profile.to_json()).unwrap();
        assert_eq!(Profile::load(&path, &shape()).unwrap(), profile);
        let refused = |change: &dyn Fn(&mut ModelShape)| {
            let mut other = shape();
            change(&mut other);
            Profile::load(&path, &other).unwrap_err().to_string()
        };
        assert!(refused(&|s| s.arch = "gemma4".into()).contains("qwen3moe, not gemma4"));
        assert!(refused(&|s| s.n_expert = 8).contains("4 experts per layer, not 8"));
        assert!(refused(&|s| s.layers[1].expert_bytes = 90).contains("layer 2 has 100 bytes"));
        std::fs::write(&path, "{}").unwrap();
        assert!(refused(&|_| {}).contains("p.json is neither a profile nor a binary trace"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
