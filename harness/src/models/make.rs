//! Making synthetic models, once.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bmoe_synth::{Plan, Progress, Shape, SynthError, WriteOptions, WriteReport, write_model};
use sha2::{Digest, Sha256};

use super::{Identity, ModelError, files};

/// Everything that decides the bytes of a synthetic model.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// The shape.
    pub shape: Shape,
    /// Only the first so many layers.
    pub layers: Option<u32>,
    /// Seed of the weights.
    pub seed: u64,
    /// Number of files.
    pub split: Option<u32>,
}

impl Recipe {
    /// The file's name where none is given.
    #[must_use]
    pub fn file_name(&self) -> String {
        let layers = self.layers.map_or_else(String::new, |n| format!("-{n}layers"));
        let seed = if self.seed == 0 { String::new() } else { format!("-seed{}", self.seed) };
        format!("{}{layers}{seed}.gguf", self.shape.name)
    }

    /// Sizes, without writing anything.
    ///
    /// # Errors
    /// The options don't fit the shape.
    pub fn plan(&self) -> Result<Plan, SynthError> {
        bmoe_synth::plan(&self.shape, self.layers, self.split)
    }

    /// The files that are written for `path`, the first one first.
    ///
    /// # Errors
    /// The path is no name for such a model.
    pub fn files(&self, path: &Path) -> Result<Vec<PathBuf>, SynthError> {
        bmoe_synth::file_paths(path, self.split)
    }

    /// One line that is the same for the same bytes.
    fn key(&self) -> String {
        let shape = toml::to_string(&self.shape).unwrap_or_default();
        let digest = Sha256::digest(&shape);
        let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!(
            "shape {} {hex}, layers {:?}, seed {}, split {:?}, bmoe {}",
            self.shape.name,
            self.layers,
            self.seed,
            self.split,
            env!("CARGO_PKG_VERSION")
        )
    }
}

/// What [`make`] did.
#[derive(Debug, Clone)]
pub enum Made {
    /// The model was there already.
    Kept {
        /// Its files.
        files: Vec<PathBuf>,
    },
    /// The model was written.
    Written(WriteReport),
}

/// What to do with a synthetic model of another recipe that is in the way. A file that isn't known
/// to be a synthetic one is never replaced without `Always`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// Refuse.
    Never,
    /// Replace it: it can be made again.
    Synthetic,
    /// Write in any case.
    Always,
}

/// Writes the model, unless the same one is there. `progress` can end that early.
///
/// # Errors
/// Something else is in the way, or the model can't be written; then nothing is left of it.
pub fn make(
    recipe: &Recipe,
    path: &Path,
    replace: Replace,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Made, ModelError> {
    let key = recipe.key();
    let first = recipe.files(path)?.swap_remove(0);
    if first.exists() && replace != Replace::Always {
        let known = Identity::load(&first).and_then(|identity| identity.recipe);
        match known {
            Some(known) if known == key => return Ok(Made::Kept { files: files(&first) }),
            Some(_) if replace == Replace::Synthetic => {}
            Some(known) => {
                return Err(ModelError::InTheWay { path: first, why: format!("it is: {known}") });
            }
            None => {
                let why = "it was not made by `bmoe synth`, or was changed since".to_owned();
                return Err(ModelError::InTheWay { path: first, why });
            }
        }
    }
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(ModelError::io("make the folder", folder))?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let options = WriteOptions {
        seed: recipe.seed,
        layers: recipe.layers,
        split: recipe.split,
        stop: Some(Arc::clone(&stop)),
        ..WriteOptions::new(path)
    };
    let report = write_model(&recipe.shape, &options, &mut |done| {
        stop.store(progress(done).is_break(), Ordering::Relaxed);
    })?;
    Identity::of_written(&report.metadata, key).save(&first)?;
    Ok(Made::Written(report))
}
