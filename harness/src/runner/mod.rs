//! Runs the cells of a matrix one after the other, judges and records them, and goes on where an earlier
//! runner ended.

mod across;
mod attempt;
mod conditions;
mod executor;
mod feed;
mod gate;
mod heard;
mod history;
mod journal;
pub(crate) mod lines;
mod pace;
mod ready;
mod session;
mod supervised;
mod text;
mod verdict;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bmoe_analysis::result_set::{CellRecord, Verdict};
use bmoe_trace::line::Line;

use crate::matrix::{Cell, Planned, Schedule};

pub use across::{judge_across, suspects};
pub use executor::{Ended, Event, Executor, ExecutorError, Exit, Interrupt, Job, signal_name};
pub use gate::GateRules;
pub use heard::FOLLOWED_FILE;
pub use journal::{Journal, JournalError, JournalEvent, Past, Started};
pub(crate) use pace::Pace;
pub use supervised::SupervisedExecutor;

/// Where a target has the files of a matrix, by the path that the cells name.
pub type Placed = HashMap<PathBuf, PathBuf>;

/// What a person sees of a matrix while it runs.
pub trait Observer {
    /// A file goes to the target: bytes there, of all of its bytes.
    fn sending(&mut self, file: &Path, done_bytes: u64, of_bytes: u64) {
        let _ = (file, done_bytes, of_bytes);
    }
    /// A run starts.
    fn started(&mut self, cell: &Cell, repetition: u32, place: Place);
    /// A run can't start yet: what is waited for, for how long so far, and for how long at most.
    fn waiting(&mut self, what: &str, waited: Duration, at_most: Duration);
    /// The engine said something.
    fn line(&mut self, line: &Line);
    /// A run ended and is recorded.
    fn ended(&mut self, record: &CellRecord);
    /// Something that the person should know.
    fn notice(&mut self, text: &str);
}

/// Where in the whole a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Number of the run, from 0.
    pub index: usize,
    /// All runs.
    pub total: usize,
    /// What this and all later runs will probably take; `None` as long as no run has ended.
    pub left: Option<Duration>,
}

/// Which runs of a schedule are run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Work {
    /// Those that are not done.
    #[default]
    Rest,
    /// Those that are not done, and those that did not come out valid.
    Failed,
    /// These, whatever came of them before, each as a new attempt.
    Again(Vec<Planned>),
}

/// What became of a matrix.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// All attempts that the folder has, earlier runners' included, in the order of their ends.
    pub records: Vec<CellRecord>,
    /// The signal that ended the matrix early.
    pub interrupted: Option<i32>,
    /// The target is gone, which ended the matrix early.
    pub lost: Option<String>,
    /// Runs that were not started because of that.
    pub not_run: usize,
}

impl Summary {
    /// The last attempts of each run.
    fn last(&self) -> impl Iterator<Item = &CellRecord> {
        let mut last: HashMap<(&str, u32), &CellRecord> = HashMap::new();
        for record in &self.records {
            last.insert((&record.id, record.repetition), record);
        }
        last.into_values()
    }

    /// Runs whose last attempt isn't valid.
    pub fn invalid(&self) -> impl Iterator<Item = &CellRecord> {
        self.last().filter(|record| record.verdict != Verdict::Valid)
    }

    /// Runs that have been tried.
    #[must_use]
    pub fn total(&self) -> usize {
        self.last().count()
    }
}

/// A matrix that can't go on.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The journal can't be read or written: then no later run could be recorded either.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Another file of the result folder.
    #[error("cannot write {}: {source}", path.display())]
    Storage {
        /// What was being written.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// What the runner works with.
#[derive(Debug)]
pub struct Runner<'a> {
    /// The result folder.
    pub folder: &'a Path,
    /// Where the target has the models, by name within the matrix, and other files.
    pub models: &'a HashMap<String, PathBuf>,
    /// Where the target has the profiles and route traces that cells name.
    pub files: &'a Placed,
    /// How long one run may take.
    pub timeout: Duration,
    /// How often a run is tried again that something from outside ended.
    pub retries: u32,
    /// Runs before the first one that counts.
    pub warmup_runs: u32,
    /// When a run may begin.
    pub gate: GateRules,
    /// Whether the user asked to stop.
    pub interrupt: Interrupt,
}

impl Runner<'_> {
    /// Runs what is to be run. Cells that fail are recorded with their reason, and the rest goes on. What an
    /// earlier runner of the folder left open is settled first.
    ///
    /// # Errors
    /// The result folder can't be used, or another runner works in it.
    pub fn run(
        &self,
        schedule: &Schedule,
        work: &Work,
        executor: &mut dyn Executor,
        observer: &mut dyn Observer,
    ) -> Result<Summary, RunnerError> {
        session::Session::begin(self, schedule, executor, observer)?.run(work)
    }
}
