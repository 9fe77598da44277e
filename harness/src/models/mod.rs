//! The models of a matrix: where they are, how the synthetic ones are made, what they hash to.

mod identity;
mod make;

use std::io;
use std::path::{Path, PathBuf};

use bmoe_synth::{Shape, SynthError};

use crate::matrix::{Matrix, Model};

pub use bmoe_trace::config::model_files as files;
pub use identity::{Identity, hash};
pub use make::{Made, Recipe, Replace, make};

/// A model that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The writer of synthetic models refused or failed.
    #[error(transparent)]
    Synth(#[from] SynthError),
    /// A model file isn't there.
    #[error("the model `{name}` needs {}, which cannot be opened: {source}", path.display())]
    Missing {
        /// The model's name in the matrix.
        name: String,
        /// The missing file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No known model has the hash that is asked for.
    #[error(
        "the model `{name}` is to have the SHA-256 {sha256}, which no model in {} is known to have (known: \
         {known}); a model's hash is known once it has been run by its path",
        folder.display()
    )]
    Unknown {
        /// The model's name in the matrix.
        name: String,
        /// The hash.
        sha256: String,
        /// Where it was looked for.
        folder: PathBuf,
        /// The hashes that are known, with their files.
        known: String,
    },
    /// A file is in the way of a model.
    #[error(
        "{} exists and is not what would be made ({why}); `bmoe synth --force` replaces it, another \
         `--out` leaves it alone",
        path.display()
    )]
    InTheWay {
        /// The file.
        path: PathBuf,
        /// What is known of it.
        why: String,
    },
    /// A file can't be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done, a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl ModelError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

/// A model of a matrix and its place.
#[derive(Debug, Clone)]
pub struct Located {
    /// Its name in the matrix.
    pub name: String,
    /// The file that the engine is given.
    pub path: PathBuf,
    /// How to make it, when it is synthetic.
    pub recipe: Option<Recipe>,
}

impl Located {
    /// Looks whether all files are there.
    ///
    /// # Errors
    /// One is missing or can't be read.
    pub fn check_files(&self) -> Result<(), ModelError> {
        for path in files(&self.path) {
            std::fs::File::open(&path).map_err(|source| ModelError::Missing {
                name: self.name.clone(),
                path,
                source,
            })?;
        }
        Ok(())
    }
}

/// Finds the models of a matrix: given files beside the matrix file, synthetic ones in `models`.
///
/// # Errors
/// A shape isn't known or can't be built.
pub fn locate(
    matrix: &Matrix,
    matrix_folder: &Path,
    models: &Path,
) -> Result<Vec<Located>, ModelError> {
    matrix.models.iter().map(|model| locate_one(model, matrix_folder, models)).collect()
}

fn locate_one(model: &Model, folder: &Path, models: &Path) -> Result<Located, ModelError> {
    let name = model.name.clone();
    if let Some(sha256) = &model.sha256 {
        let path = find_by_hash(&name, sha256, models)?;
        return Ok(Located { name, path, recipe: None });
    }
    let Some(synth) = &model.synth else {
        let path = folder.join(model.path.clone().unwrap_or_default());
        return Ok(Located { name, path, recipe: None });
    };
    let shape = shape(&synth.shape, folder)?;
    let recipe = Recipe { shape, layers: synth.layers, seed: synth.seed, split: None };
    Ok(Located { name, path: models.join(recipe.file_name()), recipe: Some(recipe) })
}

/// The model of a folder that has this hash, among those whose hash is known: what has been used once.
fn find_by_hash(name: &str, sha256: &str, models: &Path) -> Result<PathBuf, ModelError> {
    let unknown = |known: Vec<String>| ModelError::Unknown {
        name: name.to_owned(),
        sha256: sha256.to_owned(),
        folder: models.to_owned(),
        known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
    };
    let mut known = Vec::new();
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(models).into_iter().flatten().flatten().map(|e| e.path()).collect();
    files.sort();
    for path in files.into_iter().filter(|p| p.extension().is_some_and(|e| e == "gguf")) {
        let Some(hash) = Identity::load(&path).and_then(|identity| identity.sha256) else {
            continue;
        };
        if hash.starts_with(&sha256.to_ascii_lowercase()) {
            return Ok(path);
        }
        known.push(format!("{} {}", &hash[..hash.len().min(12)], path.display()));
    }
    Err(unknown(known))
}

/// A built-in shape by name, or a shape file (anything that ends in `.toml`) relative to `folder`.
///
/// # Errors
/// There is no such shape, or the file is no shape.
pub fn shape(name: &str, folder: &Path) -> Result<Shape, SynthError> {
    if Path::new(name).extension().is_some_and(|e| e == "toml") {
        Shape::load(&folder.join(name))
    } else {
        Shape::builtin(name)
    }
}
