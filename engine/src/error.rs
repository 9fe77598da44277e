//! Errors, each one line that names the thing, what was found, what was expected and what to do next.

use std::path::PathBuf;

use crate::flash::file::OpenError;
use crate::flash::queue::ReadError;

/// In the place of a signal's number: end the request, not the run.
pub const CANCEL: usize = usize::MAX;

/// A model that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file can't be opened or read.
    #[error("cannot read the model {}: {source}; check the path given with --model", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another kind of file.
    #[error("{} is not a GGUF file (it does not start with \"GGUF\"); give a .gguf model", path.display())]
    NotGguf {
        /// The file.
        path: PathBuf,
    },
    /// A part of a split model is not there.
    #[error("part {number} of {count} of the model is missing: {}; put all parts into one folder", part.display())]
    MissingPart {
        /// Where it should be.
        part: PathBuf,
        /// Which one.
        number: u64,
        /// How many there are.
        count: u64,
    },
    /// The file is shorter than its header says.
    #[error(
        "{} is truncated: tensor {tensor} ends at byte {end_bytes}, the file at {file_bytes}; copy or \
         download it again",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The first tensor that doesn't fit.
        tensor: String,
        /// Where the tensor would end.
        end_bytes: u64,
        /// Where the file ends.
        file_bytes: u64,
    },
    /// The header contradicts itself or can't be parsed.
    #[error("{} can't be used as a model: {message}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// The model is fine, but its experts can't be streamed.
    #[error("{} can't be streamed: {message}", path.display())]
    NotStreamable {
        /// The file.
        path: PathBuf,
        /// Why, and what to do instead.
        message: String,
    },
    /// llama.cpp refused it.
    #[error("llama.cpp can't load {}: {message}", path.display())]
    Llama {
        /// The file.
        path: PathBuf,
        /// What it logged.
        message: String,
    },
}

/// Why a run could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// See [`ModelError`].
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A setting that doesn't fit the model, the machine or the other settings.
    #[error("{0}")]
    Config(String),
    /// A file of the model can't be opened for streaming.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Not enough memory.
    #[error("cannot reserve {mib} MiB for experts: {source}; use a smaller --cache-mb")]
    Memory {
        /// What was asked for.
        mib: u64,
        /// What the system said.
        source: std::io::Error,
    },
    /// A read failed in the middle of the run.
    #[error("{0}; the run ends here, since going on would compute with wrong weights")]
    Read(#[from] ReadError),
    /// A file of the model is not the one that the run began with.
    #[error(
        "{} was changed while the run read it, so its results can't be trusted; run it again",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The graph uses the experts in a way that the engine doesn't understand.
    #[error("{0}; run this model with --mode mmap or --mode resident")]
    Graph(String),
    /// llama.cpp failed.
    #[error("llama.cpp failed: {0}")]
    Llama(String),
    /// An output can't be written.
    #[error("cannot write {what}: {message}")]
    Output {
        /// Which one.
        what: String,
        /// Why.
        message: String,
    },
    /// A request that can't be done; later ones can.
    #[error("{0}")]
    Request(String),
    /// The request was cancelled; later ones can be done.
    #[error("cancelled")]
    Cancelled,
    /// A signal asked the run to stop.
    #[error("interrupted by {signal}")]
    Interrupted {
        /// Its name.
        signal: &'static str,
    },
}

impl EngineError {
    /// What a signal's number, or [`CANCEL`], makes of a run; `None` for 0, neither.
    #[must_use]
    pub fn interrupted(signal: usize) -> Option<Self> {
        match signal {
            0 => None,
            CANCEL => Some(Self::Cancelled),
            2 => Some(Self::Interrupted { signal: "SIGINT" }),
            _ => Some(Self::Interrupted { signal: "SIGTERM" }),
        }
    }

    /// The exit code of the program: 3 = the model or a setting was refused, 4 = the run failed on
    /// the way, 130 and 143 = SIGINT and SIGTERM.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Model(_)
            | Self::Config(_)
            | Self::Open(_)
            | Self::Memory { .. }
            | Self::Request(_) => 3,
            Self::Read(_)
            | Self::Changed { .. }
            | Self::Graph(_)
            | Self::Llama(_)
            | Self::Output { .. }
            | Self::Cancelled => 4,
            Self::Interrupted { signal: "SIGINT" } => 130,
            Self::Interrupted { .. } => 143,
        }
    }
}
