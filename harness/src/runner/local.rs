//! Engines as processes of this machine.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use bmoe_analysis::result_set::LoadAverage;
use bmoe_trace::line::Line;
use rustix::process::{Pid, Signal, kill_process_group};

use super::executor::{Ended, Executor, ExecutorError, Exit, Interrupt, Job, Stopped};
use super::lines::{LINE_BYTES, read_line};
use crate::environment::Machine;

/// How often a quiet engine is looked after.
const TICK: Duration = Duration::from_millis(50);

/// What an engine that was asked to end gets before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// Runs the engine binary on this machine.
#[derive(Debug)]
pub struct LocalExecutor {
    /// Words in front of the engine's arguments: the launcher, when there is one, and the engine.
    command: Vec<OsString>,
    interrupt: Interrupt,
}

impl LocalExecutor {
    /// `launcher` is a program that makes the engine end when its parent ends and then becomes it
    /// (`bmoe launch`).
    #[must_use]
    pub fn new(engine: &Path, launcher: Option<&Path>, interrupt: Interrupt) -> Self {
        let mut command: Vec<OsString> = Vec::new();
        if let Some(launcher) = launcher {
            let own_pid = std::process::id().to_string();
            command.extend([launcher.as_os_str().to_owned(), "launch".into(), own_pid.into()]);
        }
        command.push(engine.as_os_str().to_owned());
        Self { command, interrupt }
    }

    fn spawn(&self, job: &Job<'_>) -> Result<Engine, ExecutorError> {
        let log = File::create(job.log)
            .map_err(failed(|| format!("the log {} cannot be written", job.log.display())))?;
        let child = Command::new(&self.command[0])
            .args(&self.command[1..])
            .args(["generate".as_ref(), "--config".as_ref(), job.config.as_os_str()])
            .args(["--trace".as_ref(), job.trace.as_os_str(), "--progress".as_ref()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            // A group of its own: Ctrl-C reaches the runner alone, which then stops the engine.
            .process_group(0)
            .spawn()
            .map_err(failed(|| format!("{} does not start", self.command[0].display())))?;
        Ok(Engine(child))
    }
}

fn failed(what: impl FnOnce() -> String) -> impl FnOnce(io::Error) -> ExecutorError {
    move |source| ExecutorError { what: what(), source }
}

/// A running engine; dropping it kills what is left of it.
struct Engine(Child);

impl Engine {
    fn signal(&self, signal: Signal) {
        // An error means that the group is gone, which is what was wanted.
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None) | Err(_)) {
            self.signal(Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

impl Executor for LocalExecutor {
    fn run(
        &mut self,
        job: &Job<'_>,
        on_line: &mut dyn FnMut(&Line),
    ) -> Result<Ended, ExecutorError> {
        for file in job.model_files {
            drop_from_page_cache(file)
                .map_err(failed(|| format!("{} cannot be opened", file.display())))?;
        }
        let oom_kills_before = Machine::here().oom_kills();
        let load_before = Machine::here().load_average();
        let start = Instant::now();
        let mut engine = self.spawn(job)?;
        let lines = follow(&mut engine.0);
        let mut stopped = None;
        let mut kill_at = None;
        let mut open = true;
        let status = loop {
            if open {
                match lines.recv_timeout(TICK) {
                    Ok(line) => on_line(&line),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => open = false,
                }
            }
            // The end of the output comes before the end of the process, except when the process is
            // killed and something else holds its output open.
            let status = engine.0.try_wait().map_err(failed(|| "its end is unknown".to_owned()))?;
            if let Some(status) = status {
                break status;
            }
            if !open {
                std::thread::sleep(TICK);
            }
            if stopped.is_none() {
                stopped = if self.interrupt.signal().is_some() {
                    Some(Stopped::Interrupt)
                } else if start.elapsed() >= job.timeout {
                    Some(Stopped::Timeout)
                } else {
                    None
                };
                if stopped.is_some() {
                    engine.signal(Signal::TERM);
                    kill_at = Some(Instant::now() + GRACE);
                }
            }
            if kill_at.is_some_and(|at| Instant::now() >= at) {
                engine.signal(Signal::KILL);
            }
        };
        let wall = start.elapsed();
        let oom_kills = Machine::here()
            .oom_kills()
            .zip(oom_kills_before)
            .map(|(after, before)| after.saturating_sub(before));
        // The rest of the output ends with the process, unless something else holds it open.
        let patience = Instant::now() + GRACE;
        while open
            && let Ok(line) = lines.recv_timeout(patience.saturating_duration_since(Instant::now()))
        {
            on_line(&line);
        }
        let load_average = load_before
            .zip(Machine::here().load_average())
            .map(|(start, end)| LoadAverage { start, end });
        Ok(Ended { exit: exit(status), stopped, wall, oom_kills, load_average })
    }
}

fn exit(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, signal) => Exit::Signal(signal.unwrap_or_default()),
    }
}

/// Reads the engine's output on a thread of its own; what isn't of the protocol is passed over.
fn follow(child: &mut Child) -> mpsc::Receiver<Line> {
    let (sender, receiver) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            let mut bytes = Vec::new();
            while matches!(read_line(&mut reader, &mut bytes, LINE_BYTES), Ok(true)) {
                let line = Line::parse(&String::from_utf8_lossy(&bytes));
                if line.is_some_and(|line| sender.send(line).is_err()) {
                    break;
                }
            }
        });
    }
    receiver
}

/// Each run starts with its model outside the page cache, whatever ran before it. (The caches of a
/// disk or of the host of a virtual machine are out of reach.)
fn drop_from_page_cache(file: &PathBuf) -> io::Result<()> {
    let file = File::open(file)?;
    // Pages that aren't on the disk yet would stay.
    let _ = file.sync_data();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}
