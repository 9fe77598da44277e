//! One runner at work in a result folder.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bmoe_analysis::result_set::{CellRecord, Verdict};
use bmoe_trace::RunConfig;
use bmoe_trace::supervised::{LOG_FILE, RUN_FILE, TRACE_FILE};

use super::attempt::{self, Observed, TraceSummary};
use super::conditions::Watch;
use super::executor::{Event, Executor, ExecutorError, Exit, Job};
use super::history::History;
use super::journal::{Journal, JournalEvent, Started};
use super::pace::Pace;
use super::text::{References, Text};
use super::verdict::{self, End};
use super::{Observer, Place, Runner, RunnerError, Summary, Work};
use crate::matrix::{Cell, Planned, Schedule};
use crate::results;

pub(super) struct Session<'a> {
    pub(super) runner: &'a Runner<'a>,
    pub(super) schedule: &'a Schedule,
    pub(super) executor: &'a mut dyn Executor,
    pub(super) observer: &'a mut dyn Observer,
    pub(super) journal: Journal,
    pub(super) history: History,
    pub(super) texts: References,
    pub(super) pace: Pace,
    pub(super) summary: Summary,
    /// What the target lacks has been said.
    pub(super) told_what_it_lacks: bool,
}

/// Why the matrix ends before its time.
pub(super) enum Stop {
    /// The user asked for it.
    Interrupted,
    /// The target is gone.
    Lost(String),
}

/// An attempt that is to be run, or was begun.
struct Attempt<'a> {
    cell: &'a Cell,
    started: Started,
    adopted: bool,
}

impl<'a> Session<'a> {
    pub(super) fn begin(
        runner: &'a Runner<'a>,
        schedule: &'a Schedule,
        executor: &'a mut dyn Executor,
        observer: &'a mut dyn Observer,
    ) -> Result<Self, RunnerError> {
        let (mut journal, past) = Journal::open(runner.folder)?;
        for path in &past.torn {
            observer.notice(&format!(
                "{} ended in the middle of a line, which was removed",
                path.display()
            ));
        }
        journal.event(&JournalEvent::Begun {
            unix_ms: now_ms(),
            bmoe: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
        })?;
        let history = History::new(&past);
        let mut session = Self {
            runner,
            schedule,
            executor,
            observer,
            journal,
            history,
            texts: References::default(),
            pace: Pace::default(),
            summary: Summary::default(),
            told_what_it_lacks: false,
        };
        for record in past.records {
            session.remember(record);
        }
        Ok(session)
    }

    /// What an earlier runner has recorded says how long things take and what is to be generated.
    fn remember(&mut self, record: CellRecord) {
        if record.wall_s > 0.0 {
            self.pace.record(&record.id, record.wall_s);
        }
        let cell = self.schedule.cells.iter().find(|c| c.id == record.id && c.lossless);
        if let Some(cell) = cell.filter(|_| record.verdict == Verdict::Valid) {
            let folder = results::attempt_folder(&record.id, record.repetition, record.attempt);
            let trace = TraceSummary::read(&self.runner.folder.join(folder).join(TRACE_FILE));
            if trace.damage.is_none() {
                // The first one becomes the reference; the others were compared with it then.
                let _ = self.texts.check(cell, Text { text: trace.text, tokens: trace.tokens });
            }
        }
        self.summary.records.push(record);
    }

    pub(super) fn run(mut self, work: &Work) -> Result<Summary, RunnerError> {
        let ended = self.work_through(work)?;
        match ended {
            Ok(()) => {}
            Err(Stop::Interrupted) => self.summary.interrupted = self.runner.interrupt.signal(),
            Err(Stop::Lost(reason)) => self.summary.lost = Some(reason),
        }
        // A signal during the last run leaves nothing to skip, but was still one.
        self.summary.interrupted = self.summary.interrupted.or(self.runner.interrupt.signal());
        Ok(self.summary)
    }

    fn work_through(&mut self, work: &Work) -> Result<Result<(), Stop>, RunnerError> {
        let open = std::mem::take(&mut self.history.open);
        for started in open {
            self.history.open.push(started.clone());
            if let Err(stop) = self.settle(started)? {
                return Ok(Err(stop));
            }
        }
        let plan = self.plan(work);
        self.summary.not_run = plan.len();
        if plan.is_empty() {
            return Ok(Ok(()));
        }
        if let Err(stop) = self.measure_baseline()? {
            return Ok(Err(stop));
        }
        if let Err(stop) = self.warm_up(&plan)? {
            return Ok(Err(stop));
        }
        for (index, (planned, attempt)) in plan.iter().enumerate() {
            let cell = &self.schedule.cells[planned.cell];
            let later = plan[index..].iter().map(|(p, _)| self.schedule.cells[p.cell].id.as_str());
            let left = self.pace.time_for(later);
            let place = Place { index, total: plan.len(), left };
            let key = (cell.id.clone(), planned.repetition);
            let mut next = Some(*attempt);
            while let Some(attempt) = next {
                if self.runner.interrupt.signal().is_some() {
                    return Ok(Err(Stop::Interrupted));
                }
                self.observer.started(cell, planned.repetition, place);
                if let Err(stop) = self.one(cell, planned.repetition, attempt)? {
                    return Ok(Err(stop));
                }
                next = self.history.needs(&key, self.runner.retries);
                // What the user interrupted is not begun again at once.
                next = next.filter(|_| self.runner.interrupt.signal().is_none());
            }
            self.summary.not_run = plan.len() - index - 1;
        }
        Ok(Ok(()))
    }

    /// The runs that are to be run, each with the number of its next attempt.
    fn plan(&self, work: &Work) -> Vec<(Planned, u32)> {
        let key = |p: &Planned| (self.schedule.cells[p.cell].id.clone(), p.repetition);
        let again = |p: &Planned| (*p, self.history.following(&key(p)));
        match work {
            Work::Again(runs) => runs.iter().map(again).collect(),
            Work::Rest => self
                .schedule
                .runs
                .iter()
                .filter_map(|p| Some((*p, self.history.needs(&key(p), self.runner.retries)?)))
                .collect(),
            Work::Failed => self
                .schedule
                .runs
                .iter()
                .filter(|p| self.history.verdict(&key(p)) != Some(Verdict::Valid))
                .map(again)
                .collect(),
        }
    }

    /// Brings an attempt to its end that an earlier runner began: follows it if it still runs, takes what it
    /// left if it is over, and records it as interrupted if it was cut off.
    fn settle(&mut self, started: Started) -> Result<Result<(), Stop>, RunnerError> {
        let Some(cell) = self.schedule.cells.iter().find(|cell| cell.id == started.id) else {
            self.observer.notice(&format!(
                "the journal has an attempt at the cell {}, which the matrix does not have; it is left alone",
                started.id
            ));
            return Ok(Ok(()));
        };
        self.observer.notice(&format!(
            "\"{}\", repetition {}, attempt {} was begun by an earlier runner: looking for it",
            cell.name,
            started.repetition + 1,
            started.attempt
        ));
        self.observer.started(cell, started.repetition, Place { index: 0, total: 1, left: None });
        self.bring_to_its_end(&Attempt { cell, started, adopted: true })
    }

    fn one(
        &mut self,
        cell: &'a Cell,
        repetition: u32,
        attempt: u32,
    ) -> Result<Result<(), Stop>, RunnerError> {
        for stray in std::mem::take(&mut self.history.strays) {
            match self.executor.abandon(&stray) {
                Err(ExecutorError::Left) => return Ok(Err(Stop::Interrupted)),
                Err(ExecutorError::Lost(reason)) => return Ok(Err(Stop::Lost(reason))),
                Err(error) => {
                    let stray = stray.display();
                    self.observer.notice(&format!("{stray} could not be stopped: {error}"));
                }
                Ok(()) => {}
            }
        }
        let (entry, gate) = match self.wait() {
            Ok(ready) => ready,
            Err(stop) => return Ok(Err(stop)),
        };
        let name = results::attempt_name(&cell.id, repetition, attempt);
        let started = Started {
            id: cell.id.clone(),
            repetition,
            attempt,
            order: self.history.next_order,
            unix_ms: now_ms(),
            place: self.executor.attempts(self.runner.folder).join(name),
            entry,
            gate,
        };
        self.journal.event(&JournalEvent::Started(Box::new(started.clone())))?;
        self.history.next_order += 1;
        self.history.open.push(started.clone());
        self.bring_to_its_end(&Attempt { cell, started, adopted: false })
    }

    /// What the engine is told: the files are where the target has them.
    pub(super) fn configure(&self, cell: &Cell) -> RunConfig {
        let mut config = cell.config.clone();
        config.model = self.runner.models.get(&cell.model).cloned().unwrap_or_default();
        for file in config.files_mut() {
            if let Some(placed) = self.runner.files.get(file) {
                file.clone_from(placed);
            }
        }
        config
    }

    /// Runs or adopts an attempt, judges it, and records it.
    fn bring_to_its_end(&mut self, attempt: &Attempt<'_>) -> Result<Result<(), Stop>, RunnerError> {
        let Attempt { cell, started, adopted } = attempt;
        let (cell, adopted) = (*cell, *adopted);
        let name = results::attempt_folder(&started.id, started.repetition, started.attempt);
        let folder = self.runner.folder.join(name);
        let config = self.configure(cell);
        let storage = |path: &Path| {
            let path = path.to_owned();
            move |source| RunnerError::Storage { path, source }
        };
        std::fs::create_dir_all(&folder).map_err(storage(&folder))?;
        let run_file = folder.join(RUN_FILE);
        if !adopted {
            crate::atomic::write(&run_file, config.to_toml().as_bytes())
                .map_err(storage(&run_file))?;
        }
        let job = Job {
            config: &config,
            place: &started.place,
            folder: &folder,
            timeout: self.runner.timeout,
        };
        let mut observed = Observed::default();
        let mut watch = Watch::new(started.entry.clone(), started.gate.clone());
        let observer = &mut *self.observer;
        let mut on_event = |event| match event {
            Event::Line(line) => {
                observed.line(&line);
                observer.line(&line);
            }
            Event::Sample(sample) => watch.take(&sample),
            Event::Notice(text) => observer.notice(&text),
        };
        let mut ended = if adopted {
            self.executor.adopt(&job, &mut on_event)
        } else {
            self.executor.run(&job, &mut on_event)
        };
        if adopted && matches!(ended, Err(ExecutorError::Absent)) {
            // It may be about to begin: then it must not any more, or has been stopped.
            ended = match self.executor.abandon(&started.place) {
                Ok(()) => self.executor.adopt(&job, &mut on_event),
                Err(error) => Err(error),
            };
        }
        match ended {
            Err(ExecutorError::Left) => return Ok(Err(Stop::Interrupted)),
            Err(ExecutorError::Storage { path, source }) => {
                return Err(RunnerError::Storage { path, source });
            }
            _ => {}
        }
        let trace = TraceSummary::read(&folder.join(TRACE_FILE));
        let end = End {
            ended: ended.as_ref(),
            observed: &observed,
            trace: &trace,
            logged: attempt::last_error(&folder.join(LOG_FILE)),
            timeout_s: self.runner.timeout.as_secs(),
            interrupt: self.runner.interrupt.signal(),
            adopted,
        };
        let (mut verdict, mut reason) = end.verdict();
        let conditions = watch.conditions();
        if verdict == Verdict::Valid {
            let text = Text { text: trace.text, tokens: trace.tokens };
            let difference = if cell.lossless { self.texts.check(cell, text).err() } else { None };
            let baseline = self.history.baseline.clone().unwrap_or_default();
            let spoiled = difference
                .map(|d| (Verdict::WrongText, d))
                .or_else(|| verdict::of_conditions(&conditions, &baseline, trace.swap_peak_bytes));
            if let Some((what, evidence)) = spoiled {
                (verdict, reason) = (what, Some(evidence));
            }
        }
        let ended = ended.ok();
        let record = CellRecord {
            id: cell.id.clone(),
            name: cell.name.clone(),
            model: cell.model.clone(),
            repetition: started.repetition,
            attempt: started.attempt,
            order: started.order,
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
            started_unix_ms: started.unix_ms,
            wall_s: ended.map_or(0.0, |e| e.wall.as_secs_f64()),
            load_average: watch.load_average(),
            conditions: Some(conditions),
        };
        self.journal.record(&record)?;
        self.conclude(cell, record);
        Ok(Ok(()))
    }

    fn conclude(&mut self, cell: &Cell, record: CellRecord) {
        self.observer.ended(&record);
        if record.wall_s > 0.0 {
            self.pace.record(&record.id, record.wall_s);
        }
        if cell.baseline && record.verdict != Verdict::Valid {
            self.observer.notice(&format!(
                "the baseline \"{}\" of {} is not valid: texts are compared with the first valid cell instead",
                cell.name, cell.model
            ));
        }
        self.history.ended(&record);
        self.summary.records.push(record);
    }
}

pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
