//! What keeps a run from being supervised.

use std::io;
use std::path::{Path, PathBuf};

/// A run that can't be supervised, followed or stopped.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// A file or folder.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done, a verb.
        action: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else.
    #[error("{0}")]
    Other(String),
}

impl SuperviseError {
    /// For `map_err`: names what was done to which file.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}
