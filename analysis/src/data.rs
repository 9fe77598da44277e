//! The Parquet files of a result folder: traces in, typed rows out.
//!
//! | file | one row per |
//! |---|---|
//! | `data/runs.parquet` | run: what was asked, what loading, the prompt and the whole cost ([`RunRow`]) |
//! | `data/tokens.parquet` | decode step ([`TokenRow`]) |
//! | `data/routes.parquet` | (event, token, slot): which expert, and where it came from ([`RouteRow`]) |
//! | `data/scores.parquet` | (event, token, rank): the router's best experts, chosen or not ([`ScoreRow`]) |
//! | `data/reads.parquet` | read of a slice ([`ReadRow`]) |
//! | `data/compute.parquet` | stretch of computation ([`ComputeRow`]) |
//! | `data/budgets.parquet` | change of the cache's budget ([`BudgetRow`]) |
//!
//! The last four are there when a run recorded such things. Every row carries its `run_id`, so one file
//! holds all runs of a matrix, one after the other. The file's key-value metadata hold [`SCHEMA_VERSION`]
//! and, per run, the configuration and the model's shape as JSON. A column whose type is optional may be
//! missing from a file of an older writer and columns of a newer one are passed over; everything else
//! raises the version.

mod column;
mod earlier;
pub mod imported;
mod ingest;
mod read;
mod rows;
mod trace;
mod write;

use std::path::{Path, PathBuf};

pub use ingest::{Ingested, LeftOut, ingest};
pub use read::{DataReader, FileMetadata, RunMetadata};
pub use rows::{BudgetRow, ComputeRow, ReadRow, RouteRow, RunRow, RunTables, ScoreRow, TokenRow};
pub use trace::{Run, TraceProblem, read_trace};
pub use write::DataWriter;

/// Version of the Parquet files' columns and metadata.
pub const SCHEMA_VERSION: u32 = 2;

/// The oldest version that is read: what it lacks is null.
pub const OLDEST_SCHEMA_VERSION: u32 = 1;

/// One of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// [`RunRow`]
    Runs,
    /// [`TokenRow`]
    Tokens,
    /// [`RouteRow`]
    Routes,
    /// [`ScoreRow`]
    Scores,
    /// [`ReadRow`]
    Reads,
    /// [`ComputeRow`]
    Compute,
    /// [`BudgetRow`]
    Budgets,
}

impl Table {
    /// Those that every result folder has.
    pub const ALWAYS: [Self; 3] = [Self::Runs, Self::Tokens, Self::Routes];

    /// Those that are there when a run recorded what they hold.
    pub const WHEN_RECORDED: [Self; 4] = [Self::Scores, Self::Reads, Self::Compute, Self::Budgets];

    /// Its name in the metadata and, with `.parquet`, on disk.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Tokens => "tokens",
            Self::Routes => "routes",
            Self::Scores => "scores",
            Self::Reads => "reads",
            Self::Compute => "compute",
            Self::Budgets => "budgets",
        }
    }

    /// Its place in a result folder.
    #[must_use]
    pub fn path(self, dir: &Path) -> PathBuf {
        dir.join("data").join(format!("{}.parquet", self.as_str()))
    }
}
