//! What a matrix was run with, kept in its result folder so that it can go on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::atomic;
use crate::error::Error;
use crate::matrix::Order;

const FILE: &str = "plan.json";

/// `plan.json` of a result folder: everything but the matrix that decides its runs. In the file folders are
/// absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::cmd) struct Plan {
    /// What models, shapes, profiles and route traces of the matrix are relative to.
    pub(in crate::cmd) matrix_folder: PathBuf,
    /// Where synthetic models are.
    pub(in crate::cmd) models: PathBuf,
    /// The engine that was named; `None` = the one beside the program.
    pub(in crate::cmd) engine: Option<PathBuf>,
    /// Files in the place of the matrix's models, by the models' names.
    #[serde(default)]
    pub(in crate::cmd) model_files: BTreeMap<String, PathBuf>,
    pub(in crate::cmd) filter: Option<String>,
    pub(in crate::cmd) order: Option<Order>,
    pub(in crate::cmd) seed: Option<u64>,
    /// By name. More than one: each has a result folder of its own below this one.
    pub(in crate::cmd) targets: Vec<String>,
}

impl Plan {
    pub(in crate::cmd) fn save(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(FILE);
        let absolute = Self {
            matrix_folder: absolute(&self.matrix_folder)?,
            models: absolute(&self.models)?,
            engine: self.engine.as_deref().map(absolute).transpose()?,
            model_files: self
                .model_files
                .iter()
                .map(|(name, file)| Ok((name.clone(), absolute(file)?)))
                .collect::<Result<_, Error>>()?,
            ..self.clone()
        };
        let mut json = serde_json::to_vec_pretty(&absolute)
            .map_err(|e| Error::io("write", &path)(e.into()))?;
        json.push(b'\n');
        atomic::write(&path, &json).map_err(Error::io("write", &path))
    }

    pub(in crate::cmd) fn load(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(FILE);
        let json = fs::read(&path).map_err(|e| {
            Error::Refused(format!(
                "cannot go on in {}: {} cannot be read: {e}; expected a result folder of `bmoe run`",
                folder.display(),
                path.display()
            ))
        })?;
        let plan: Self = serde_json::from_slice(&json)
            .map_err(|e| Error::Refused(format!("{} is damaged: {e}", path.display())))?;
        Ok(Self {
            matrix_folder: from_here(plan.matrix_folder),
            models: from_here(plan.models),
            ..plan
        })
    }

    /// The result folder of a target.
    pub(in crate::cmd) fn folder_of(&self, folder: &Path, target: &str) -> PathBuf {
        if self.targets.len() < 2 {
            return folder.to_owned();
        }
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        folder.join(target.chars().map(plain).collect::<String>())
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    std::path::absolute(path).map_err(Error::io("find", path))
}

/// As it would have been given, so that the records of a matrix that goes on name the same files.
fn from_here(path: PathBuf) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).map(Path::to_owned).unwrap_or(path)
}
