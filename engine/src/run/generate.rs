//! A run from loading to the last token.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use bmoe_trace::RunConfig;
use bmoe_trace::record::RunEnd;

use super::engine::Engine;
use super::request::Request;
use super::sinks::RecordSink;
use super::watch::MemoryWatch;
use crate::error::EngineError;
use crate::flash::fault::Faults;

/// What a run needs beside its configuration.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// When the process started.
    pub started: Instant,
    /// Print llama.cpp's log.
    pub verbose: bool,
    /// Overwrite freed memory of experts, so that a stale read can't pass by luck (for tests).
    pub poison: bool,
    /// Faults on the way to the experts (for tests).
    pub faults: Faults,
    /// Set to a signal's number to stop the run.
    pub stop: Arc<AtomicUsize>,
    /// How `--cache-mb auto` looks at the memory.
    pub memory: MemoryWatch,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            verbose: false,
            poison: false,
            faults: Faults::default(),
            stop: Arc::new(AtomicUsize::new(0)),
            memory: MemoryWatch::default(),
        }
    }
}

/// Runs one configuration from loading to the last token. Records go to `sinks` as they come; the
/// last one, [`Record::End`](bmoe_trace::Record::End), comes in success and failure alike once the model's
/// header was read.
///
/// # Errors
/// Whatever keeps the run from its end; see [`EngineError`].
pub fn generate(
    config: &RunConfig,
    options: &RunOptions,
    sinks: &mut [&mut dyn RecordSink],
) -> Result<RunEnd, EngineError> {
    if config.prompt.is_empty() && config.replay_routes.is_none() {
        return Err(EngineError::Config(
            "the prompt is empty; give one with --prompt or --prompt-file".into(),
        ));
    }
    let sinks = sinks.iter_mut().map(|sink| &mut **sink as &mut dyn RecordSink).collect();
    let mut engine = Engine::open(config, options, sinks)?;
    let result = engine.generate(&Request::of(config), &mut |_| ControlFlow::Continue(()));
    if let Err(error) = &result {
        engine.fail(error);
    }
    let end = engine.close();
    result?;
    end
}
