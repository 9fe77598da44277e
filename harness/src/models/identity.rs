//! What is known of a model file, kept beside it so that it is found out once.

use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{ModelError, files};
use crate::atomic;

/// `<model>.bmoe.json`: holds for the files that it was written for, and for no others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    stamps: Vec<Stamp>,
    /// SHA-256 of the files one after the other, hex, once somebody wanted to know.
    pub sha256: Option<String>,
    /// Of a split model the SHA-256 of each file, hex, taken along with the whole's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
    /// What it was made from, when it is synthetic.
    pub recipe: Option<String>,
}

/// Tells a file from another one, and from itself before a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    bytes: u64,
    modified_ns: i128,
    inode: u64,
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        let modified_ns = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        Self { bytes: meta.len(), modified_ns, inode: meta.ino() }
    }
}

fn stamps(model: &Path) -> Result<Vec<Stamp>, ModelError> {
    let stamp = |file: &PathBuf| {
        let meta = fs::metadata(file).map_err(ModelError::io("look at", file))?;
        Ok(Stamp::of(&meta))
    };
    files(model).iter().map(stamp).collect()
}

fn sidecar(model: &Path) -> PathBuf {
    let mut name = files(model)[0].as_os_str().to_owned();
    name.push(".bmoe.json");
    name.into()
}

impl Identity {
    /// An identity for the files as they are now.
    ///
    /// # Errors
    /// A file can't be looked at.
    pub fn new(model: &Path, recipe: Option<String>) -> Result<Self, ModelError> {
        Ok(Self { stamps: stamps(model)?, sha256: None, parts: Vec::new(), recipe })
    }

    /// An identity for files that were made from a recipe, whatever lies in their place by now.
    #[must_use]
    pub fn of_written(files: &[Metadata], recipe: String) -> Self {
        Self {
            stamps: files.iter().map(Stamp::of).collect(),
            sha256: None,
            parts: Vec::new(),
            recipe: Some(recipe),
        }
    }

    /// What was written down about the files, unless they have changed since.
    #[must_use]
    pub fn load(model: &Path) -> Option<Self> {
        let text = fs::read(sidecar(model)).ok()?;
        let identity: Self = serde_json::from_slice(&text).ok()?;
        (stamps(model).ok()? == identity.stamps).then_some(identity)
    }

    /// Writes it down, unless somebody has put other files in the place of these: then what is
    /// known of those stays.
    ///
    /// # Errors
    /// The folder can't be written.
    pub fn save(&self, model: &Path) -> Result<(), ModelError> {
        if stamps(model)? != self.stamps {
            return Ok(());
        }
        let path = sidecar(model);
        let json =
            serde_json::to_vec(self).map_err(|e| ModelError::io("write", &path)(e.into()))?;
        atomic::write(&path, &json).map_err(ModelError::io("write", &path))
    }

    /// Whether every hash is there.
    fn is_hashed(&self) -> bool {
        let parts = if self.stamps.len() > 1 { self.stamps.len() } else { 0 };
        self.sha256.is_some() && self.parts.len() == parts
    }

    /// All files together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.stamps.iter().map(|s| s.bytes).sum()
    }
}

fn hex(hasher: Sha256) -> String {
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The identity of a model with its hash, which is taken now unless it is known.
///
/// # Errors
/// A file can't be read.
pub fn hash(model: &Path, progress: &mut dyn FnMut(u64)) -> Result<Identity, ModelError> {
    let mut identity = match Identity::load(model) {
        Some(known) if known.is_hashed() => return Ok(known),
        Some(known) => known,
        None => Identity::new(model, None)?,
    };
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut done = 0;
    let (paths, mut parts) = (files(model), Vec::new());
    for path in &paths {
        let mut part = Sha256::new();
        let mut file = File::open(path).map_err(ModelError::io("open", path))?;
        loop {
            let n = file.read(&mut buffer).map_err(ModelError::io("read", path))?;
            if n == 0 {
                break;
            }
            hasher.update(&buffer[..n]);
            if paths.len() > 1 {
                part.update(&buffer[..n]);
            }
            done += n as u64;
            progress(done);
        }
        parts.push(hex(part));
    }
    identity.sha256 = Some(hex(hasher));
    identity.parts = if paths.len() > 1 { parts } else { Vec::new() };
    // A folder that can't be written costs the next run the same time again, and nothing else.
    let _ = identity.save(model);
    Ok(identity)
}
