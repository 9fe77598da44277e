//! Folders that `bmoe import` makes: traces and logs of any program as Parquet.
//!
//! ```text
//! DIR/data/imported.parquet                       one row per run ([`ImportedRun`])
//! DIR/data/routes/run_id=<run>/part-0.parquet     one row per (event, token, slot)
//! DIR/data/scores/run_id=<run>/part-0.parquet     one row per (event, token, rank), when a trace has scores
//! DIR/data/logs/run_id=<run>/part-0.parquet       one row per decode step, as the log has it
//! ```
//!
//! Columns of `routes` and `scores` are those of a result folder, but that the run stands in the folder's name, as
//! other engines expect of a partition. A run of a hundred million rows is read without touching the others.

mod convert;
mod names;
mod part;
mod plan;
mod read;
mod run;

use std::path::{Path, PathBuf};

pub(crate) use names::base;

pub use convert::{Progress, import};
pub use plan::Plan;
pub use read::{ImportedReader, LogColumns};
pub use run::ImportedRun;

/// Version of an imported folder's columns; one of another version is imported again.
pub const IMPORT_VERSION: u32 = 1;

/// Key of that version in a file's metadata.
const KEY_VERSION: &str = "bmoe.import_version";

/// A partitioned table of an imported folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partitioned {
    /// Routed experts.
    Routes,
    /// The router's best experts.
    Scores,
    /// Decode steps, in the words of the logs.
    Logs,
}

impl Partitioned {
    /// Its name in the metadata and on disk.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Routes => "routes",
            Self::Scores => "scores",
            Self::Logs => "logs",
        }
    }

    /// The file of one run.
    #[must_use]
    pub fn path(self, dir: &Path, run_id: &str) -> PathBuf {
        dir.join("data").join(self.as_str()).join(format!("run_id={run_id}")).join("part-0.parquet")
    }
}

/// The file that makes a folder an imported one.
#[must_use]
pub fn index_path(dir: &Path) -> PathBuf {
    dir.join("data").join("imported.parquet")
}

/// Whether `bmoe import` made this folder.
#[must_use]
pub fn is_imported(dir: &Path) -> bool {
    index_path(dir).is_file()
}
