//! Engines of a target, each watched there by a supervisor that needs nobody else.

use std::cell::RefCell;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bmoe_trace::supervised::{
    Followed, LINES_FILE, LOG_FILE, RUN_FILE, SAMPLES_FILE, STATUS_FILE, Sample, Status, TRACE_FILE,
};

use super::executor::{Ended, Event, Executor, ExecutorError, Exit, Interrupt, Job};
use super::feed::Feed;
use super::heard::{FOLLOWED_FILE, Heard, is_here};
use crate::target::{Command, Target, TargetError};

/// What a command may take that ends by itself soon.
const SHORT: Duration = Duration::from_secs(30);
/// What following may take before it is begun again: bounds how long a silent target goes unnoticed.
const FOLLOWING: Duration = Duration::from_secs(60);
/// The first wait for a target that is lost, and the longest.
const BACK_OFF: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(15)];
/// How a program ends that does not understand its command line.
const USAGE: Exit = Exit::Code(2);
/// How often a waiting runner looks whether it is to stop.
const TICK: Duration = Duration::from_millis(50);

/// Runs the engine of a target, through its supervisor.
pub struct SupervisedExecutor<'a> {
    target: &'a dyn Target,
    /// Where the target has the engine.
    engine: PathBuf,
    /// How long a target may be away.
    patience: Duration,
    sample_every: Duration,
    interrupt: Interrupt,
}

/// What following came to.
enum Turn {
    Over(Status),
    Interrupted,
    Again,
}

impl<'a> SupervisedExecutor<'a> {
    /// `engine` is where the target has it; `patience` is how long the target may be away before a run there
    /// counts as lost.
    #[must_use]
    pub fn new(
        target: &'a dyn Target,
        engine: &Path,
        patience: Duration,
        interrupt: Interrupt,
    ) -> Self {
        let sample_every = Duration::from_secs(1);
        Self { target, engine: engine.to_owned(), patience, sample_every, interrupt }
    }

    fn command(&self, name: &str, place: &Path, more: &[(&str, OsString)]) -> Command {
        let mut words = vec![self.engine.clone().into_os_string(), name.into(), place.into()];
        for (option, value) in more {
            words.extend([OsString::from(option), value.clone()]);
        }
        Command::new(words, SHORT)
    }

    /// Runs a command that answers with one line of JSON.
    fn ask<T: serde::de::DeserializeOwned>(&self, command: &Command) -> Result<T, Trouble> {
        let mut out = Vec::new();
        let finished = self.target.exec(command, &mut |piece| {
            out.extend_from_slice(piece);
            ControlFlow::Continue(())
        })?;
        let out = String::from_utf8_lossy(&out);
        let answer = out.lines().last().and_then(|line| serde_json::from_str(line).ok());
        match (finished.exit, answer) {
            (Some(Exit::Code(0)), Some(answer)) => Ok(answer),
            (exit, _) => Err(Trouble::Refused(refusal(&self.engine, exit, &finished.stderr))),
        }
    }

    /// Does something with the target again and again until it answers or has been away for too long.
    fn patiently<T>(
        &self,
        on_event: &mut dyn FnMut(Event),
        mut attempt: impl FnMut() -> Result<T, Trouble>,
    ) -> Result<T, ExecutorError> {
        let mut lost: Option<Instant> = None;
        let mut wait = BACK_OFF[0];
        loop {
            let reason = match attempt() {
                Ok(done) => {
                    if let Some(since) = lost {
                        let away = since.elapsed().as_secs();
                        let name = self.target.name();
                        on_event(Event::Notice(format!("{name} is back after {away} s")));
                    }
                    return Ok(done);
                }
                Err(Trouble::Refused(message)) => return Err(ExecutorError::Refused(message)),
                Err(Trouble::Target(error)) if is_absence(&error) => error.to_string(),
                Err(Trouble::Target(error)) => {
                    return Err(ExecutorError::Refused(error.to_string()));
                }
            };
            let since = *lost.get_or_insert_with(|| {
                on_event(Event::Notice(format!(
                    "{reason}; waiting for it, {} s at most",
                    self.patience.as_secs()
                )));
                Instant::now()
            });
            if since.elapsed() >= self.patience {
                return Err(ExecutorError::Lost(format!(
                    "{reason}; it did not come back within {} s",
                    self.patience.as_secs()
                )));
            }
            let end = Instant::now() + wait.min(self.patience.saturating_sub(since.elapsed()));
            while Instant::now() < end {
                if self.interrupt.signal().is_some() {
                    return Err(ExecutorError::Left);
                }
                std::thread::sleep(TICK);
            }
            wait = (wait * 2).min(BACK_OFF[1]);
        }
    }

    /// Follows a run for a while.
    fn follow(
        &self,
        job: &Job<'_>,
        feed: &mut Feed,
        interruptible: bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Turn, Trouble> {
        let at = feed.offsets();
        let from = [
            ("--lines-from", at.lines.to_string().into()),
            ("--samples-from", at.samples.to_string().into()),
        ];
        let mut command = self.command("follow", job.place, &from);
        command.limit = Some(FOLLOWING);
        feed.reconnected();
        let mut status = None;
        let finished = self.target.exec(&command, &mut |piece| {
            feed.take(piece, &mut |followed| match followed {
                Followed::Line(line) => on_event(Event::Line(line)),
                Followed::Sample(sample) => on_event(Event::Sample(sample)),
                Followed::Status(said) => status = Some(said),
                Followed::At(_) => {}
            });
            if interruptible && self.interrupt.signal().is_some() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        if let Some(status) = status {
            return Ok(Turn::Over(status));
        }
        match finished {
            Err(TargetError::TimedOut { .. }) => Ok(Turn::Again),
            Err(error) => Err(error.into()),
            Ok(finished) => match finished.exit {
                None => Ok(Turn::Interrupted),
                // Its output was cut off.
                Some(Exit::Code(0)) => Ok(Turn::Again),
                exit => Err(Trouble::Refused(refusal(&self.engine, exit, &finished.stderr))),
            },
        }
    }

    /// Follows a run to its end.
    fn follow_to_the_end(
        &self,
        job: &Job<'_>,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Status, ExecutorError> {
        let mut feed = Feed::default();
        let mut asked = false;
        let mut heard = Heard::new(job);
        // What the run says and what is said about the target go the same way.
        let on_event = RefCell::new(on_event);
        let mut tell = |event| on_event.borrow_mut()(event);
        loop {
            let turn = self.patiently(&mut tell, || {
                if !asked && self.interrupt.signal().is_some() {
                    return Ok(Turn::Interrupted);
                }
                self.follow(job, &mut feed, !asked, &mut |event| {
                    heard.keep(&event);
                    on_event.borrow_mut()(event);
                })
            });
            match turn? {
                Turn::Over(status) => return Ok(status),
                Turn::Again => {}
                Turn::Interrupted => {
                    asked = true;
                    self.stop(job.place, &mut tell)?;
                }
            }
        }
    }

    fn stop(&self, place: &Path, on_event: &mut dyn FnMut(Event)) -> Result<Status, ExecutorError> {
        self.patiently(on_event, || self.ask(&self.command("stop", place, &[])))
    }

    /// Brings everything here that a run left.
    fn fetch(&self, job: &Job<'_>, on_event: &mut dyn FnMut(Event)) -> Result<(), ExecutorError> {
        for name in [TRACE_FILE, LINES_FILE, LOG_FILE, SAMPLES_FILE, STATUS_FILE] {
            let (from, to) = (job.place.join(name), job.folder.join(name));
            self.patiently(on_event, || Ok(self.target.fetch(&from, &to)?)).map_err(|error| {
                match error {
                    ExecutorError::Refused(message) => ExecutorError::Storage {
                        path: to.clone(),
                        source: std::io::Error::other(message),
                    },
                    other => other,
                }
            })?;
        }
        Ok(())
    }

    fn finish(
        &self,
        job: &Job<'_>,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Ended, ExecutorError> {
        let status = self.follow_to_the_end(job, on_event)?;
        if status == Status::Absent {
            return Err(ExecutorError::Absent);
        }
        self.fetch(job, on_event)?;
        self.clear(job);
        match status {
            Status::Ended { exit_code, signal, stopped, wall_ns, oom_kills, .. } => Ok(Ended {
                exit: exit_code
                    .map_or_else(|| Exit::Signal(signal.unwrap_or_default()), Exit::Code),
                stopped,
                wall: Duration::from_nanos(wall_ns),
                oom_kills,
            }),
            Status::Refused { message } => Err(ExecutorError::Refused(message)),
            Status::Lost { supervisor } => Err(ExecutorError::Gone(format!(
                "its supervisor (process {}) is gone and left no result: {} was restarted, or \
                 something killed it there",
                supervisor.pid,
                self.target.name()
            ))),
            Status::Running(_) | Status::Absent => Err(ExecutorError::Absent),
        }
    }

    /// What was fetched is not needed there any more. A folder that stays is room lost and nothing else.
    fn clear(&self, job: &Job<'_>) {
        if !is_here(job) {
            let _ = std::fs::remove_file(job.folder.join(FOLLOWED_FILE));
            let words = ["rm".into(), "-rf".into(), job.place.as_os_str().to_owned()];
            let command = Command::new(words, SHORT);
            let _ = self.target.exec(&command, &mut |_| ControlFlow::Continue(()));
        }
    }
}

impl Executor for SupervisedExecutor<'_> {
    fn attempts(&self, results: &Path) -> PathBuf {
        self.target.attempts(results)
    }

    fn sense(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<Sample, ExecutorError> {
        let words = [self.engine.clone().into_os_string(), "sense".into()];
        let command = Command::new(words, SHORT);
        self.patiently(on_event, || self.ask(&command))
    }

    fn run(
        &mut self,
        job: &Job<'_>,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Ended, ExecutorError> {
        let run = job.config.to_toml().into_bytes();
        let options = [
            ("--timeout-s", job.timeout.as_secs().to_string().into()),
            ("--sample-ms", self.sample_every.as_millis().to_string().into()),
            ("--lock", self.target.home().join("engine.lock").into_os_string()),
        ];
        let mut start = self.command("supervise", job.place, &options);
        start.words.push("--detach".into());
        // Starting twice is starting once: a folder that has a status is not run again.
        let status = self.patiently(on_event, || {
            self.target.put(&run, &job.place.join(RUN_FILE))?;
            self.ask::<Status>(&start)
        })?;
        match status {
            Status::Refused { message } => {
                let _ = self.fetch(job, on_event);
                self.clear(job);
                Err(ExecutorError::Refused(message))
            }
            _ => self.finish(job, on_event),
        }
    }

    fn adopt(
        &mut self,
        job: &Job<'_>,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Ended, ExecutorError> {
        self.finish(job, on_event)
    }

    fn abandon(&mut self, place: &Path) -> Result<(), ExecutorError> {
        self.stop(place, &mut |_| {}).map(drop)
    }
}

/// What went wrong with a command on the target.
enum Trouble {
    Target(TargetError),
    /// The command itself failed.
    Refused(String),
}

impl From<TargetError> for Trouble {
    fn from(error: TargetError) -> Self {
        Self::Target(error)
    }
}

/// Whether waiting may help: a target that is gone, that does not answer, or that somebody is to unlock.
fn is_absence(error: &TargetError) -> bool {
    error.is_lost() || matches!(error, TargetError::TimedOut { .. } | TargetError::Unusable { .. })
}

fn refusal(engine: &Path, exit: Option<Exit>, stderr: &str) -> String {
    let how = match exit {
        Some(Exit::Code(code)) => format!("exit code {code}"),
        Some(Exit::Signal(signal)) => super::signal_name(signal),
        None => "no end".to_owned(),
    };
    let lines = || stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    // A command line that isn't understood is told first and explained behind.
    let error = lines().find(|line| line.starts_with("error: "));
    let said =
        if exit == Some(USAGE) { error.or_else(|| lines().next()) } else { lines().next_back() };
    let said = said.unwrap_or("nothing");
    let said = said.strip_prefix("error: ").unwrap_or(said);
    let remedy = if exit == Some(USAGE) {
        "; it is of another version than this bmoe: build both from the same sources (`cargo build`, for \
         devices `scripts/build-device.sh arm64`)"
    } else {
        ""
    };
    format!("{} ended with {how} and said: {said}{remedy}", engine.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_of_another_version_is_told_from_one_that_fails() {
        let engine = Path::new("/data/bmoe-engine");
        let old = "error: unexpected argument '--lock' found\n\nUsage: x\n\nFor more information, try '--help'.\n";
        assert_eq!(
            refusal(engine, Some(Exit::Code(2)), old),
            "/data/bmoe-engine ended with exit code 2 and said: unexpected argument '--lock' found; it is of \
             another version than this bmoe: build both from the same sources (`cargo build`, for devices \
             `scripts/build-device.sh arm64`)"
        );
        assert_eq!(
            refusal(engine, Some(Exit::Code(3)), "a note\nerror: no room\n\n"),
            "/data/bmoe-engine ended with exit code 3 and said: no room"
        );
    }
}
