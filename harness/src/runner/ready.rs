//! Getting a target ready: how it was before the first run, runs that warm it up, waiting until it is as it was.

use std::path::Path;
use std::time::{Duration, Instant};

use bmoe_analysis::result_set::{Gate, State};

use super::executor::{Event, ExecutorError, Job};
use super::journal::JournalEvent;
use super::session::{Session, Stop, now_ms};
use super::{RunnerError, conditions};
use crate::matrix::{Cell, Planned};

/// How often a waiting runner looks whether it is to stop.
const TICK: Duration = Duration::from_millis(50);

impl Session<'_> {
    /// Once for each result folder, whoever begins it.
    pub(super) fn measure_baseline(&mut self) -> Result<Result<(), Stop>, RunnerError> {
        if self.history.baseline.is_some() {
            return Ok(Ok(()));
        }
        let state = match self.sense() {
            Ok(state) => state,
            Err(stop) => return Ok(Err(stop)),
        };
        self.journal.event(&JournalEvent::Baseline { unix_ms: now_ms(), state: state.clone() })?;
        self.history.baseline = Some(state);
        Ok(Ok(()))
    }

    fn sense(&mut self) -> Result<State, Stop> {
        let observer = &mut *self.observer;
        let sensed = self.executor.sense(&mut |event| {
            if let Event::Notice(text) = event {
                observer.notice(&text);
            }
        });
        match sensed {
            Ok(sample) => Ok(conditions::state(&sample)),
            Err(ExecutorError::Left) => Err(Stop::Interrupted),
            Err(ExecutorError::Lost(reason)) => Err(Stop::Lost(reason)),
            Err(error) => {
                self.observer.notice(&format!("the target does not tell how it is: {error}"));
                Ok(State::default())
            }
        }
    }

    /// Runs before the first one that counts, of each model's first cell. Nothing of them is kept.
    pub(super) fn warm_up(
        &mut self,
        plan: &[(Planned, u32)],
    ) -> Result<Result<(), Stop>, RunnerError> {
        let mut cells: Vec<&Cell> = Vec::new();
        for (planned, _) in plan {
            let cell = &self.schedule.cells[planned.cell];
            if !cells.iter().any(|other| other.model == cell.model) {
                cells.push(cell);
            }
        }
        for cell in cells {
            for number in 0..self.runner.warmup_runs {
                if self.runner.interrupt.signal().is_some() {
                    return Ok(Err(Stop::Interrupted));
                }
                self.observer.notice(&format!(
                    "warm-up {} of {} of {}: {}",
                    number + 1,
                    self.runner.warmup_runs,
                    cell.model,
                    cell.name
                ));
                if let Err(stop) = self.warm_up_once(cell)? {
                    return Ok(Err(stop));
                }
            }
        }
        Ok(Ok(()))
    }

    fn warm_up_once(&mut self, cell: &Cell) -> Result<Result<(), Stop>, RunnerError> {
        let folder = self.runner.folder.join("warmup");
        let storage = |path: &Path| {
            let path = path.to_owned();
            move |source| RunnerError::Storage { path, source }
        };
        std::fs::create_dir_all(&folder).map_err(storage(&folder))?;
        let place = self.executor.attempts(&folder).join(format!("{}-{}", cell.id, now_ms()));
        let config = self.configure(cell);
        let job =
            Job { config: &config, place: &place, folder: &folder, timeout: self.runner.timeout };
        let observer = &mut *self.observer;
        let ended = self.executor.run(&job, &mut |event| {
            if let Event::Notice(text) = event {
                observer.notice(&text);
            }
        });
        std::fs::remove_dir_all(&folder).map_err(storage(&folder))?;
        match ended {
            Err(ExecutorError::Left) => Ok(Err(Stop::Interrupted)),
            Err(ExecutorError::Lost(reason)) => Ok(Err(Stop::Lost(reason))),
            Err(error) => {
                self.observer.notice(&format!("the warm-up failed: {error}"));
                Ok(Ok(()))
            }
            Ok(_) => Ok(Ok(())),
        }
    }

    /// Waits until the target is fit for a run, within bounds.
    pub(super) fn wait(&mut self) -> Result<(State, Option<Gate>), Stop> {
        let rules = &self.runner.gate;
        let begin = Instant::now();
        loop {
            let entry = self.sense()?;
            if rules.off {
                return Ok((entry, None));
            }
            let baseline = self.history.baseline.clone().unwrap_or_default();
            let look = rules.look(&baseline, &entry);
            if !std::mem::replace(&mut self.told_what_it_lacks, true)
                && !look.unavailable.is_empty()
            {
                let used =
                    if look.used.is_empty() { "nothing".to_owned() } else { look.used.join(", ") };
                self.observer.notice(&format!(
                    "the target does not tell {}; runs wait for {used}",
                    look.unavailable.join(", ")
                ));
            }
            let waited = begin.elapsed();
            let amiss = look.amiss.join("; ");
            if amiss.is_empty() || waited >= rules.max_wait {
                // The look itself takes no time that anybody waited.
                let waited_s = if waited < rules.poll { 0.0 } else { waited.as_secs_f64() };
                let gave_up = (!amiss.is_empty()).then_some(amiss);
                if let Some(amiss) = &gave_up {
                    self.observer.notice(&format!("waited in vain for the target: {amiss}"));
                }
                let gate =
                    Gate { waited_s, gave_up, used: look.used, unavailable: look.unavailable };
                return Ok((entry, Some(gate)));
            }
            self.observer.waiting(&amiss, waited, rules.max_wait);
            let next = Instant::now() + rules.poll.min(rules.max_wait.saturating_sub(waited));
            while Instant::now() < next {
                if self.runner.interrupt.signal().is_some() {
                    return Err(Stop::Interrupted);
                }
                std::thread::sleep(TICK.min(rules.poll));
            }
        }
    }
}
