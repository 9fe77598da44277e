//! What the runner asks of the place where engines run.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bmoe_trace::RunConfig;
use bmoe_trace::line::Line;
use bmoe_trace::supervised::{Sample, StoppedBy};

/// One run of the engine.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// What is run; the model is where the target has it.
    pub config: &'a RunConfig,
    /// The folder there that the engine writes into; one that no other attempt has or had.
    pub place: &'a Path,
    /// The folder here that gets what it wrote.
    pub folder: &'a Path,
    /// How long it may take.
    pub timeout: Duration,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// A run that came to an end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ended {
    /// How the process ended.
    pub exit: Exit,
    /// Why it was ended, when it was.
    pub stopped: Option<StoppedBy>,
    /// From the start of the process to its end.
    pub wall: Duration,
    /// Processes that the kernel killed for lack of memory meanwhile; `None` when nobody counts them.
    pub oom_kills: Option<u64>,
}

/// What happens while an engine runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The engine said something.
    Line(Line),
    /// How the device is.
    Sample(Box<Sample>),
    /// Something that a person should know.
    Notice(String),
}

/// A run without an end that could be judged.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The engine can't be started.
    #[error("cannot run the engine: {0}")]
    Refused(String),
    /// The target went away and did not come back.
    #[error("{0}")]
    Lost(String),
    /// Who watched the engine is gone and left no result.
    #[error("{0}")]
    Gone(String),
    /// There is no such run.
    #[error("the run was never begun")]
    Absent,
    /// The user asked to stop while the target was away: the run may still go on there.
    #[error("left alone while the target was away")]
    Left,
    /// What was fetched can't be written here.
    #[error("cannot write {}: {source}", path.display())]
    Storage {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Runs engines, one at a time: here, elsewhere, or not at all (in tests).
pub trait Executor {
    /// Where the attempts of a result folder have their places.
    fn attempts(&self, results: &Path) -> PathBuf;

    /// How the target is now.
    ///
    /// # Errors
    /// It can't be reached.
    fn sense(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<Sample, ExecutorError>;

    /// Runs the engine to its end, hands over what happens meanwhile, and brings here what it left.
    ///
    /// # Errors
    /// See [`ExecutorError`].
    fn run(
        &mut self,
        job: &Job<'_>,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Ended, ExecutorError>;

    /// The same with a run that somebody else has begun.
    ///
    /// # Errors
    /// See [`ExecutorError`].
    fn adopt(
        &mut self,
        job: &Job<'_>,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Ended, ExecutorError>;

    /// Ends whatever may still run in a place that was given up, or makes sure that it never will.
    ///
    /// # Errors
    /// The target can't be reached.
    fn abandon(&mut self, place: &Path) -> Result<(), ExecutorError>;
}

/// Whether the user asked to stop, and with which signal.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Watches SIGINT, SIGTERM and SIGHUP of this process. The first one asks the runner to stop in
    /// order; the second ends the process at once.
    ///
    /// # Errors
    /// The handlers can't be set.
    pub fn watch() -> std::io::Result<Self> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let interrupt = Self::default();
        let again = Arc::new(std::sync::atomic::AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the second signal finds the flag that the first one set.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                128 + signal,
                Arc::clone(&again),
            )?;
            signal_hook::flag::register(signal, Arc::clone(&again))?;
            signal_hook::flag::register_usize(signal, Arc::clone(&interrupt.0), signal as usize)?;
        }
        Ok(interrupt)
    }

    /// The signal that asked to stop.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        match self.0.load(Ordering::SeqCst) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }

    /// Asks to stop.
    pub fn raise(&self, signal: i32) {
        self.0.store(usize::try_from(signal).unwrap_or_default(), Ordering::SeqCst);
    }
}

/// A signal's name.
#[must_use]
pub fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal)
        .map_or_else(|| format!("signal {signal}"), str::to_owned)
}
