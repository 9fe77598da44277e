//! What can go wrong, one variant per kind of answer that a caller may want to give.

use std::path::{Path, PathBuf};

/// An error of the model writer. The text names the thing, its value and what was expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SynthError {
    /// The shape file is not valid TOML or has a field that a shape does not have.
    #[error("{source_name}: {message}")]
    Parse {
        /// The file or built-in name that was read.
        source_name: String,
        /// The parser's message, with line and column.
        message: String,
    },

    /// The shape parses, but describes a model that can't be built.
    #[error("shape `{shape}`: {message}")]
    Shape {
        /// The shape's `name`.
        shape: String,
        /// Which field, its value and what was expected.
        message: String,
    },

    /// No built-in shape has this name.
    #[error(
        "unknown shape `{name}`; built-in shapes are {known} (`bmoe synth --list` has all), or give the path \
         of a TOML file"
    )]
    UnknownShape {
        /// The name that was asked for.
        name: String,
        /// The names that exist, in words.
        known: String,
    },

    /// The options of a write do not fit together.
    #[error("{0}")]
    Options(String),

    /// The file system has too little room for the model.
    #[error(
        "{path}: the model needs {needed_bytes} bytes and the file system has {free_bytes} free; \
         free some space, choose another folder, or shorten the model with fewer layers",
        path = path.display()
    )]
    Space {
        /// The folder that was to hold the model.
        path: PathBuf,
        /// Size of all files of the model.
        needed_bytes: u64,
        /// Bytes available to this user.
        free_bytes: u64,
    },

    /// Another process is writing the same model.
    #[error(
        "{path} is being written by another process; wait until it is done, or choose another file",
        path = path.display()
    )]
    Busy {
        /// The unfinished file.
        path: PathBuf,
    },

    /// The caller stopped the write.
    #[error("stopped writing {path}; nothing is left of it", path = path.display())]
    Stopped {
        /// The file that was to be written.
        path: PathBuf,
    },

    /// A file could not be read or written.
    #[error("{action} {path}: {source}", path = path.display())]
    Io {
        /// What was being done, as in "write".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl SynthError {
    pub(crate) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }
}

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, SynthError>;
