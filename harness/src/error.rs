//! Why a command ends without having done its work, and the exit code that says so.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bmoe_analysis::AnalysisError;
use bmoe_synth::SynthError;

use crate::matrix::MatrixError;
use crate::models::ModelError;
use crate::runner::{JournalError, RunnerError, signal_name};
use crate::target::TargetError;

/// The command failed on the way.
const FAILED: u8 = 1;
/// The command refused to start.
const REFUSED: u8 = 3;
/// A matrix is done, but some cells aren't valid.
const NOT_ALL_VALID: u8 = 4;
/// A target went away in the middle of a matrix.
const LOST: u8 = 5;
/// A comparison found a slowdown beyond the bound that was given.
const SLOWER: u8 = 6;
/// A comparison has a bound, and too few runs to hold a pair to it.
const NOT_JUDGED: u8 = 7;

/// The table of exit codes that `--help` shows.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed on the way (a full disk, a folder that cannot be written)
  2    the command line is wrong
  3    refused before anything ran (matrix, shape, model, engine, folder or target)
  4    `bmoe run` finished, but at least one cell is not valid; results are kept
  5    a target went away and did not come back; results so far are kept
  6    `bmoe compare --fail-above` found a pair that is worse by more than the bound
  7    `bmoe compare --fail-above` found none, and could not judge every pair
  130  interrupted by Ctrl-C (143 by SIGTERM); results so far are kept";

/// A command that did not do all of its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The matrix can't be run.
    #[error(transparent)]
    Matrix(#[from] MatrixError),
    /// A shape or model can't be written.
    #[error(transparent)]
    Synth(#[from] SynthError),
    /// A model can't be used.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The result folder can't be written while cells run.
    #[error(transparent)]
    Runner(#[from] RunnerError),
    /// The results can't be read or rendered.
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
    /// A target can't be used.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A target went away and did not come back.
    #[error("{reason}; {not_run} runs were not started, `bmoe run --resume {}` goes on", folder.display())]
    TargetLost {
        /// What was seen.
        reason: String,
        /// Runs that wait.
        not_run: usize,
        /// The result folder.
        folder: PathBuf,
    },
    /// The engine failed on the way.
    #[error("{0}")]
    Engine(String),
    /// The command can't be followed as it was given.
    #[error("{0}")]
    Refused(String),
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
    /// Cells that aren't valid, all of them listed already.
    #[error("{invalid} of {total} runs are not valid; the report has their reasons")]
    NotAllValid {
        /// Runs that aren't valid.
        invalid: usize,
        /// All runs.
        total: usize,
    },
    /// Cells that are worse than the bound of a comparison, all of them listed already.
    #[error("{worse} of {total} pairs: B is worse than A by more than {bound_pct} %")]
    Slower {
        /// Pairs beyond the bound.
        worse: usize,
        /// All pairs.
        total: usize,
        /// The bound.
        bound_pct: f64,
    },
    /// Pairs that could not be held to the bound of a comparison.
    #[error(
        "{undecided} of {total} pairs could not be judged: each cell needs {needed} valid runs (set \
         `repetitions` in the matrix)"
    )]
    NotJudged {
        /// Pairs that could not be judged.
        undecided: usize,
        /// All pairs.
        total: usize,
        /// Runs that each cell needs.
        needed: usize,
    },
    /// The user stopped the command.
    #[error("interrupted by {}{}", signal_name(*signal), what)]
    Interrupted {
        /// The signal.
        signal: i32,
        /// What that left, with its own separator; may be empty.
        what: String,
    },
    /// Something that the user knows already: only the exit code is left of it.
    #[error(transparent)]
    Told(Box<Error>),
}

impl Error {
    /// Whether there is nothing more to say about it.
    #[must_use]
    pub const fn is_told(&self) -> bool {
        matches!(self, Self::Told(_))
    }

    /// For `map_err`: names what was done to which file.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    /// The exit code of the process.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    fn code(&self) -> u8 {
        match self {
            Self::Told(error) => error.code(),
            Self::Matrix(_) | Self::Refused(_) => REFUSED,
            Self::Runner(RunnerError::Journal(JournalError::Held { .. })) => REFUSED,
            Self::TargetLost { .. } => LOST,
            Self::Target(error) if error.is_lost() => LOST,
            Self::Synth(error) | Self::Model(ModelError::Synth(error)) => match error {
                SynthError::Io { .. } => FAILED,
                _ => REFUSED,
            },
            Self::Model(
                ModelError::Missing { .. }
                | ModelError::InTheWay { .. }
                | ModelError::Unknown { .. },
            ) => REFUSED,
            Self::Analysis(
                AnalysisError::NotAResultFolder { .. }
                | AnalysisError::Import { .. }
                | AnalysisError::ImportRefused { .. },
            ) => REFUSED,
            Self::Target(TargetError::Unusable { .. } | TargetError::NoSpace { .. }) => REFUSED,
            Self::Engine(_)
            | Self::Target(_)
            | Self::Model(ModelError::Io { .. })
            | Self::Runner(_)
            | Self::Analysis(_)
            | Self::Io { .. } => FAILED,
            Self::NotAllValid { .. } => NOT_ALL_VALID,
            Self::Slower { .. } => SLOWER,
            Self::NotJudged { .. } => NOT_JUDGED,
            Self::Interrupted { signal, .. } => u8::try_from(128 + signal).unwrap_or(FAILED),
        }
    }
}
