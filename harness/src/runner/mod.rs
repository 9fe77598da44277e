//! Runs the cells of a matrix one after the other, judges and records them.

mod attempt;
mod executor;
mod journal;
pub(crate) mod lines;
mod local;
mod text;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bmoe_analysis::result_set::{CellRecord, Verdict};
use bmoe_trace::RunConfig;
use bmoe_trace::line::Line;

use crate::matrix::{Cell, Schedule};
use crate::results;

pub use executor::{Ended, Executor, ExecutorError, Exit, Interrupt, Job, Stopped, signal_name};
pub use journal::Journal;
pub use local::LocalExecutor;

/// Every run gets one attempt.
const FIRST_ATTEMPT: u32 = 1;

/// Where the models of a matrix are.
pub type ModelFiles = HashMap<String, Vec<PathBuf>>;

/// What a person sees of a matrix while it runs.
pub trait Observer {
    /// A run starts.
    fn started(&mut self, cell: &Cell, repetition: u32, place: Place);
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

/// What became of a matrix.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// The attempts, in their order.
    pub records: Vec<CellRecord>,
    /// The signal that ended the matrix early.
    pub interrupted: Option<i32>,
    /// Runs that were not started because of that.
    pub not_run: usize,
}

impl Summary {
    /// Attempts that aren't valid.
    pub fn invalid(&self) -> impl Iterator<Item = &CellRecord> {
        self.records.iter().filter(|record| record.verdict != Verdict::Valid)
    }
}

/// A result folder that can't be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct RunnerError {
    /// What was being written.
    path: PathBuf,
    /// What the system said.
    source: io::Error,
}

/// What the runner works with.
#[derive(Debug)]
pub struct Runner<'a> {
    /// The result folder.
    pub folder: &'a Path,
    /// Where the models are; the first file is the one that the engine is given.
    pub models: &'a ModelFiles,
    /// How long one run may take.
    pub timeout: Duration,
    /// Whether the user asked to stop.
    pub interrupt: Interrupt,
}

impl Runner<'_> {
    /// Runs everything. Cells that fail are recorded with their reason, and the rest goes on.
    ///
    /// # Errors
    /// The result folder can't be written: then no later run could be recorded either.
    pub fn run(
        &self,
        schedule: &Schedule,
        executor: &mut dyn Executor,
        observer: &mut dyn Observer,
    ) -> Result<Summary, RunnerError> {
        let mut journal = Journal::create(self.folder)
            .map_err(|source| RunnerError { path: self.folder.join("cells.jsonl"), source })?;
        let mut texts = text::References::default();
        let mut pace = Pace::default();
        let mut summary = Summary::default();
        for (index, planned) in schedule.runs.iter().enumerate() {
            if let Some(signal) = self.interrupt.signal() {
                summary.interrupted = Some(signal);
                summary.not_run = schedule.runs.len() - index;
                break;
            }
            let cell = &schedule.cells[planned.cell];
            let later = schedule.runs[index..].iter().map(|run| run.cell);
            let place = Place { index, total: schedule.runs.len(), left: pace.time_for(later) };
            observer.started(cell, planned.repetition, place);
            let order = u32::try_from(index).unwrap_or(u32::MAX);
            let record =
                self.attempt(cell, planned.repetition, order, &mut texts, executor, observer)?;
            pace.record(planned.cell, Duration::from_secs_f64(record.wall_s));
            journal
                .append(&record)
                .map_err(|source| RunnerError { path: self.folder.join("cells.jsonl"), source })?;
            observer.ended(&record);
            if cell.baseline && record.verdict != Verdict::Valid {
                observer.notice(&format!(
                    "the baseline \"{}\" of {} is not valid: texts are compared with the first \
                     valid cell instead",
                    cell.name, cell.model
                ));
            }
            summary.records.push(record);
        }
        // A signal during the last run leaves nothing to skip, but was still one.
        summary.interrupted = summary.interrupted.or(self.interrupt.signal());
        Ok(summary)
    }

    fn attempt(
        &self,
        cell: &Cell,
        repetition: u32,
        order: u32,
        texts: &mut text::References,
        executor: &mut dyn Executor,
        observer: &mut dyn Observer,
    ) -> Result<CellRecord, RunnerError> {
        let folder = self.folder.join(results::attempt_folder(&cell.id, repetition, FIRST_ATTEMPT));
        std::fs::create_dir_all(&folder)
            .map_err(|source| RunnerError { path: folder.clone(), source })?;
        let files = self.models.get(&cell.model).map_or(&[][..], Vec::as_slice);
        let model = files.first().cloned().unwrap_or_default();
        let config = RunConfig { model, ..cell.config.clone() };
        let run_file = folder.join("run.toml");
        std::fs::write(&run_file, config.to_toml())
            .map_err(|source| RunnerError { path: run_file.clone(), source })?;

        let trace = folder.join("trace.bin");
        let log = folder.join("engine.log");
        let job = Job {
            config: &run_file,
            trace: &trace,
            log: &log,
            model_files: files,
            timeout: self.timeout,
        };
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut observed = attempt::Observed::default();
        let ended = executor.run(&job, &mut |line| {
            observed.line(line);
            observer.line(line);
        });
        let trace = attempt::TraceSummary::read(&trace);
        let (mut verdict, mut reason) = attempt::judge(
            &ended,
            &observed,
            &trace,
            attempt::last_error(&log),
            self.timeout.as_secs(),
            self.interrupt.signal(),
        );
        if verdict == Verdict::Valid && cell.lossless {
            let text = observed.done.map(|done| done.text).unwrap_or_default();
            if let Err(difference) = texts.check(cell, text::Text { text, tokens: trace.tokens }) {
                (verdict, reason) = (Verdict::WrongText, Some(difference));
            }
        }
        let ended = ended.ok();
        Ok(CellRecord {
            id: cell.id.clone(),
            name: cell.name.clone(),
            model: cell.model.clone(),
            repetition,
            attempt: FIRST_ATTEMPT,
            order,
            config,
            baseline: cell.baseline,
            lossless: cell.lossless,
            verdict,
            reason,
            exit_code: ended.and_then(|e| match e.exit {
                Exit::Code(code) => Some(code),
                Exit::Signal(_) => None,
            }),
            run_id: trace.run_id,
            started_unix_ms: u64::try_from(started.as_millis()).unwrap_or(u64::MAX),
            wall_s: ended.map_or(0.0, |e| e.wall.as_secs_f64()),
            load_average: ended.and_then(|e| e.load_average),
            conditions: None,
        })
    }
}

/// How long the cells take, to say how long the rest will.
#[derive(Debug, Default)]
struct Pace {
    by_cell: HashMap<usize, Duration>,
    sum: Duration,
    count: u32,
}

impl Pace {
    fn record(&mut self, cell: usize, wall: Duration) {
        self.by_cell.insert(cell, wall);
        self.sum += wall;
        self.count += 1;
    }

    /// A cell that has run will take what it took; another one what a run took on average.
    fn time_for(&self, cells: impl Iterator<Item = usize>) -> Option<Duration> {
        let mean = self.sum.checked_div(self.count)?;
        Some(cells.map(|cell| self.by_cell.get(&cell).copied().unwrap_or(mean)).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_uses_what_a_cell_took_before() {
        let mut pace = Pace::default();
        assert_eq!(pace.time_for([0, 1].into_iter()), None);
        pace.record(0, Duration::from_secs(10));
        pace.record(1, Duration::from_secs(2));
        assert_eq!(pace.time_for([0, 1, 7].into_iter()), Some(Duration::from_secs(10 + 2 + 6)));
    }
}
