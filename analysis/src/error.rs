//! What can go wrong between a result folder and its report.

use std::io;
use std::path::{Path, PathBuf};

use bmoe_trace::import::ImportError;

/// A result folder that can't be read or rendered.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// The storage failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done, a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Not a result folder.
    #[error(
        "{} is not a result folder: it has no cells.jsonl (`bmoe run MATRIX.toml --out DIR` makes one, \
         `bmoe import` one of traces and logs)",
        path.display()
    )]
    NotAResultFolder {
        /// The folder named.
        path: PathBuf,
    },
    /// A JSON file doesn't hold what it should.
    #[error(
        "{}, line {line}: {message} (restore the file from where the matrix ran; it is not rebuilt)",
        path.display()
    )]
    Json {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// Data are missing and there is nothing to make them from.
    #[error(
        "{} is missing, and {} holds no traces to build it from (copy data/ or runs/ from where the \
         matrix ran)",
        data.display(), runs.display()
    )]
    NoData {
        /// The missing file.
        data: PathBuf,
        /// The folder of the traces.
        runs: PathBuf,
    },
    /// One of the Parquet files is missing, and the traces don't make up for it.
    #[error(
        "{} is missing, and runs/ holds no whole trace of {runs} of the runs in the rest of data/, which \
         stays as it is (copy the missing file, or runs/, from where the matrix ran)",
        path.display()
    )]
    MissingTable {
        /// The missing file.
        path: PathBuf,
        /// Runs that would be lost.
        runs: usize,
    },
    /// A Parquet file is damaged or isn't ours.
    #[error(
        "{}: {message} (copy it from where the matrix ran; or, to keep only the runs whose traces are in \
         runs/, delete the folder's data/ and run `bmoe report` again)",
        path.display()
    )]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A Parquet file of another version.
    #[error(
        "{}: schema version {found} is not one of 1 to {supported}, which this program reads (render it \
         with the program that wrote it; or, to keep only the runs whose traces are in runs/, delete \
         the folder's data/ and run `bmoe report` again)",
        path.display()
    )]
    SchemaVersion {
        /// The file.
        path: PathBuf,
        /// What the file says.
        found: String,
        /// The newest version that this program reads.
        supported: u32,
    },
    /// A trace or log can't be imported.
    #[error("{}: {source}", path.display())]
    Import {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: ImportError,
    },
    /// A file or folder that an import, or a reader of one, can't use.
    #[error("{} {message}", path.display())]
    ImportRefused {
        /// The file or folder.
        path: PathBuf,
        /// Why, and what to do.
        message: String,
    },
    /// An import was stopped.
    #[error("the import was stopped; nothing is left of it")]
    ImportStopped,
    /// A picture can't be drawn.
    #[error("cannot draw {}: {message}", path.display())]
    Plot {
        /// The picture.
        path: PathBuf,
        /// What the plotting library said.
        message: String,
    },
}

impl AnalysisError {
    /// Wraps an I/O error for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// Wraps an importer's error for `map_err`.
    pub(crate) fn import(path: &Path) -> impl FnOnce(ImportError) -> Self {
        let path = path.to_owned();
        move |source| Self::Import { path, source }
    }
}

/// Results of this crate.
pub type Result<T> = std::result::Result<T, AnalysisError>;
