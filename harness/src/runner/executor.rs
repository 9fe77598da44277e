//! The one thing the runner asks of the place where engines run.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bmoe_analysis::result_set::LoadAverage;
use bmoe_trace::line::Line;

/// One run of the engine.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The run file.
    pub config: &'a Path,
    /// Where the engine writes its trace.
    pub trace: &'a Path,
    /// Where the engine's messages go.
    pub log: &'a Path,
    /// All files of the model.
    pub model_files: &'a [std::path::PathBuf],
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

/// Why the executor ended a process before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Its time was up.
    Timeout,
    /// The user asked for it.
    Interrupt,
}

/// A run that came to an end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ended {
    /// How the process ended.
    pub exit: Exit,
    /// Whether it was ended by the executor.
    pub stopped: Option<Stopped>,
    /// From the start of the process to its end.
    pub wall: Duration,
    /// Processes that the kernel killed for lack of memory meanwhile; `None` when nobody counts them.
    pub oom_kills: Option<u64>,
    /// How busy the machine was before and after; `None` when it does not tell.
    pub load_average: Option<LoadAverage>,
}

/// An engine that can't be run.
#[derive(Debug, thiserror::Error)]
#[error("cannot run the engine: {what}: {source}")]
pub struct ExecutorError {
    /// What was being done.
    pub what: String,
    /// What the system said.
    pub source: std::io::Error,
}

/// Runs engines, one at a time: on this machine, elsewhere, or not at all (in tests).
pub trait Executor {
    /// Runs the engine to its end and hands over each protocol line as it comes.
    ///
    /// # Errors
    /// The engine can't be started or followed; it isn't left running.
    fn run(
        &mut self,
        job: &Job<'_>,
        on_line: &mut dyn FnMut(&Line),
    ) -> Result<Ended, ExecutorError>;
}

/// Whether the user asked to stop, and with which signal.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Watches SIGINT, SIGTERM and SIGHUP of this process. The first one asks the runner to stop in
    /// order; the second ends the process at once (and the engine with it).
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
