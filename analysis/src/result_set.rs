//! A result folder: what `bmoe run` leaves and `bmoe report` renders.
//!
//! ```text
//! DIR/matrix.toml          the matrix as it was given
//! DIR/environment.json     [`Environment`]
//! DIR/groups.json          [`NamedGroup`]s, when the matrix names some
//! DIR/published.json       [`PublishedSet`], when the matrix has published figures
//! DIR/cells.jsonl          append-only, one [`CellRecord`] a line, one line per attempt that ended
//! DIR/data/runs.parquet    one row per run
//! DIR/data/tokens.parquet  one row per decode step
//! DIR/data/routes.parquet  one row per (run, event, token, slot)
//! DIR/data/{scores,reads,compute,budgets}.parquet   when a run recorded such things
//! DIR/runs/<cell>/         run.toml, trace.bin, engine.log of each attempt (can be deleted afterwards)
//! DIR/report.md, DIR/report.html, DIR/plots/*.svg|png
//! ```

mod conditions;
mod groups;
mod published;

use bmoe_trace::RunConfig;
use serde::{Deserialize, Serialize};

pub use conditions::{Conditions, Gate, State};
pub use groups::{GroupPair, NamedGroup};
pub use published::{PublishedCell, PublishedFigures, PublishedSet};

/// How one attempt at a cell ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Ran to its end, and its text is the baseline's where that was required.
    Valid,
    /// The engine refused or failed.
    Failed,
    /// The engine was ended by a signal that was not ours (for example the memory limit's).
    Killed,
    /// The engine did not end within the cell's timeout.
    TimedOut,
    /// The runner was asked to stop.
    Interrupted,
    /// Ran to its end, but its text differs from the baseline's although the cell is lossless.
    WrongText,
    /// Ran to its end, but the CPU's clock was held down meanwhile.
    Throttled,
    /// Ran to its end, but the system swapped meanwhile.
    Swapped,
    /// Ran to its end, but with far more major page faults than comparable cells.
    Faulting,
    /// The kernel ended the engine because memory had run out.
    OutOfMemory,
    /// The target went away and did not come back, or came back without a result.
    Lost,
}

impl Verdict {
    /// The name used in files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Failed => "failed",
            Self::Killed => "killed",
            Self::TimedOut => "timed_out",
            Self::Interrupted => "interrupted",
            Self::WrongText => "wrong_text",
            Self::Throttled => "throttled",
            Self::Swapped => "swapped",
            Self::Faulting => "faulting",
            Self::OutOfMemory => "out_of_memory",
            Self::Lost => "lost",
        }
    }

    /// The name for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Failed => "failed",
            Self::Killed => "killed",
            Self::TimedOut => "timed out",
            Self::Interrupted => "interrupted",
            Self::WrongText => "wrong text",
            Self::Throttled => "throttled",
            Self::Swapped => "swapped",
            Self::Faulting => "faulting",
            Self::OutOfMemory => "out of memory",
            Self::Lost => "lost",
        }
    }
}

/// One attempt at one cell of a matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellRecord {
    /// Made from the cell's content (model, configuration): the same cell has the same id everywhere.
    pub id: String,
    /// What a person calls it, for example `stream, cache 128 MiB, 4 lanes`.
    pub name: String,
    /// The model's name within the matrix.
    pub model: String,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Attempt at this repetition, from 1.
    pub attempt: u32,
    /// Position in the order in which the runner started the attempts, from 0.
    pub order: u32,
    /// The configuration sent to the engine.
    pub config: RunConfig,
    /// The baseline that others are compared with.
    pub baseline: bool,
    /// Its text must equal the baseline's.
    pub lossless: bool,
    /// How it ended.
    pub verdict: Verdict,
    /// Why, in one line, for everything that is not valid.
    pub reason: Option<String>,
    /// The engine's exit code; `None` when a signal ended it.
    pub exit_code: Option<i32>,
    /// `run_id` of the trace; `None` when the engine never got so far.
    pub run_id: Option<String>,
    /// Start of the attempt, milliseconds since the Unix epoch.
    pub started_unix_ms: u64,
    /// Length of the attempt, process start to end.
    pub wall_s: f64,
    /// How busy the machine was; `None` = nobody asked, or it does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_average: Option<LoadAverage>,
    /// The target around the attempt; `None` = nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Conditions>,
}

/// Processes that ran or wanted to, averaged over the last minute, as the kernel counts them. The engine's
/// own threads are among them at the end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoadAverage {
    /// Before the engine started.
    pub start: f64,
    /// When it had ended.
    pub end: f64,
}

/// The machine that a matrix ran on. `None` = it could not be read there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// `model name` of /proc/cpuinfo, or what identifies the CPU there.
    pub cpu: Option<String>,
    /// Cores that the runner may use.
    pub cores: Option<u32>,
    /// MemTotal.
    pub mem_total_bytes: Option<u64>,
    /// MemAvailable when the matrix started.
    pub mem_available_bytes: Option<u64>,
    /// Lowest memory limit of the process's control groups; `None` = no limit.
    pub cgroup_limit_bytes: Option<u64>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Operating system's own name.
    pub os: Option<String>,
    /// Virtual machine or container, when it can be told.
    pub virtualisation: Option<String>,
    /// Block device that holds the model.
    pub disk: Option<String>,
    /// Its readahead, which decides how fast an mmap baseline is.
    pub read_ahead_kib: Option<u32>,
    /// File system that holds the model.
    pub file_system: Option<String>,
    /// Transparent huge pages: the selected mode.
    pub huge_pages: Option<String>,
    /// Commit of bmoe, with `-dirty` when the tree had changes.
    pub bmoe_commit: Option<String>,
    /// Version of the engine binary.
    pub engine_version: Option<String>,
    /// Start of the matrix, RFC 3339, UTC.
    pub started: Option<String>,
    /// The models.
    pub models: Vec<ModelFile>,
}

/// A model of a matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelFile {
    /// Its name within the matrix.
    pub name: String,
    /// File name, without folders.
    pub file: String,
    /// All its files together.
    pub file_bytes: u64,
    /// SHA-256 of the file (of the files one after the other), hex.
    pub sha256: String,
    /// The synthetic shape that it was made from.
    pub synth_shape: Option<String>,
}
