//! What can go wrong, in one line each.

use std::io;
use std::path::{Path, PathBuf};

/// A benchmark that can't go on.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A setting or the machine doesn't allow it; says what to do.
    #[error("{0}")]
    Refused(String),
    /// A file can't be used.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried, as in "write".
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of results isn't what it should be.
    #[error("{}: {message}", path.display())]
    Data {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The model can't be made.
    #[error(transparent)]
    Synth(#[from] bmoe_synth::SynthError),
    /// A signal ended it; what was measured is kept.
    #[error("stopped by a signal; what was measured is kept, go on with --resume")]
    Stopped,
}

impl BenchError {
    /// Names what was tried with which file.
    pub fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source }
    }

    /// Says what is wrong with a file.
    pub fn data(path: &Path, message: impl std::fmt::Display) -> Self {
        Self::Data { path: path.to_owned(), message: message.to_string() }
    }

    /// Exit code of the program.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) | Self::Synth(_) => 3,
            Self::Io { .. } | Self::Data { .. } => 4,
            Self::Stopped => 130,
        }
    }
}
