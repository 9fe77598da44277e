//! An engine with a model loaded.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bmoe_trace::config::Think;
use bmoe_trace::record::{Outcome, Record, RunEnd};
use bmoe_trace::{Mode, RunConfig};

use super::cores::{Cores, Pinned};
use super::generate::RunOptions;
use super::idle::idle_settings;
use super::load::{Loaded, MakeSource, load};
use super::prepare::resolve;
use super::recorder::Recorder;
use super::replay::{self, Replay};
use super::request::{GeneratedToken, Request, TurnReport};
use super::session::Session;
use super::sinks::RecordSink;
use super::transcript::Transcript;
use super::turn::{Prompt, TurnInput};
use super::watch::BudgetKeeper;
use crate::chat::{ChatTemplate, Message, Rendered, Splitter, ThinkControl};
use crate::error::{CANCEL, EngineError};
use crate::flash::layout::ExpertLayout;
use crate::flash::source::ExpertSource;
use crate::llama::context::Context;
use crate::llama::gguf::ModelInfo;
use crate::llama::log;
use crate::llama::memory::Checkpoint;
use crate::llama::sampler::Sampler;

/// A loaded model that generates text.
///
/// ```no_run
/// use std::ops::ControlFlow;
///
/// use bmoe_engine::run::{Engine, Request, RunOptions};
/// use bmoe_trace::RunConfig;
///
/// let config = RunConfig { model: "model.gguf".into(), prompt: "Once".into(), ..RunConfig::default() };
/// let mut engine = Engine::open(&config, &RunOptions::default(), vec![])?;
/// let turn = engine.generate(&Request::of(&config), &mut |token| {
///     print!("{}", token.delta.text);
///     ControlFlow::Continue(())
/// })?;
/// println!("\n{} tokens", turn.tokens);
/// engine.close()?;
/// # Ok::<(), bmoe_engine::EngineError>(())
/// ```
pub struct Engine<'s> {
    /// The thread that opened the engine, which is the one that decodes, on its cores. Together with the
    /// engine it ends.
    _pinned: Option<Pinned>,
    pub(super) config: RunConfig,
    pub(super) context: Context,
    pub(super) sampler: Sampler,
    pub(super) template: Option<ChatTemplate>,
    /// The recorded routes that every text follows.
    pub(super) replay: Option<Replay>,
    /// Looks after a budget that the engine chose.
    keeper: Option<BudgetKeeper>,
    /// When mapped dense weights were last looked at, and what was seen.
    dense_seen: Option<(Instant, Option<u16>)>,
    pub(super) recorder: Recorder<'s>,
    /// What the context holds.
    pub(super) transcript: Transcript,
    /// Copies of a running state, the oldest first, all of beginnings of the transcript.
    pub(super) checkpoints: Vec<Checkpoint>,
    pub(super) turns: u32,
    pub(super) started: Instant,
    stop: Arc<AtomicUsize>,
    /// Why the engine can't go on.
    failure: Option<Outcome>,
}

/// Ends the request that an engine works on (when there is none, the next one), from any thread. It
/// takes effect within one operation of the graph, also in the middle of a token.
#[derive(Debug, Clone)]
pub struct Canceller(Arc<AtomicUsize>);

impl Canceller {
    /// Cancels. A signal that came before has precedence.
    pub fn cancel(&self) {
        let _ = self.0.compare_exchange(0, CANCEL, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Takes a cancel back that has not taken effect.
    pub fn clear(&self) {
        let _ = self.0.compare_exchange(CANCEL, 0, Ordering::SeqCst, Ordering::SeqCst);
    }
}

impl<'s> Engine<'s> {
    /// Loads the model. Records go to `sinks` from here on to [`Engine::close`]; an engine that fails to
    /// open has closed its records.
    ///
    /// Of the configuration, `prompt` and `n_predict` are only written down.
    ///
    /// # Errors
    /// The model or a setting is refused, loading fails, or a signal came.
    pub fn open(
        config: &RunConfig,
        options: &RunOptions,
        sinks: Vec<&'s mut dyn RecordSink>,
    ) -> Result<Self, EngineError> {
        Self::open_from(config, options, sinks, None)
    }

    /// As [`Engine::open`], with experts from a source of one's own in the place of the engine's store (in
    /// `stream` mode). What configures the store, its cache and its reads is then unused.
    ///
    /// # Errors
    /// Those of [`Engine::open`] and of `make`; another mode than `stream` is refused.
    pub fn open_with_source(
        config: &RunConfig,
        options: &RunOptions,
        sinks: Vec<&'s mut dyn RecordSink>,
        make: impl FnOnce(&ExpertLayout) -> Result<Box<dyn ExpertSource>, EngineError>,
    ) -> Result<Self, EngineError> {
        if config.mode != Mode::Stream {
            return Err(EngineError::Config(format!(
                "a source of experts goes with stream mode; {} has all weights in one place",
                config.mode
            )));
        }
        Self::open_from(config, options, sinks, Some(Box::new(make)))
    }

    fn open_from(
        config: &RunConfig,
        options: &RunOptions,
        sinks: Vec<&'s mut dyn RecordSink>,
        own_source: Option<MakeSource<'_>>,
    ) -> Result<Self, EngineError> {
        log::start(options.verbose);
        if config.model.as_os_str().is_empty() {
            return Err(EngineError::Config(
                "no model is given; name a GGUF file as the model".into(),
            ));
        }
        let info = ModelInfo::read(&config.model)?;
        if config.mode == Mode::Stream {
            info.check_streamable()?;
            if let Some(warning) = crate::arch::warning(&info.arch) {
                let _ = writeln!(std::io::stderr(), "warning: {warning}");
            }
        }
        let config = resolve(config, &info)?;
        check_text(&config, &info)?;
        let replay = replay::load(&config, &info)?;
        for idle in idle_settings(&config) {
            let _ = writeln!(std::io::stderr(), "warning: {idle}");
        }
        let sampler = Sampler::new(&config.sampling)?;
        let cores = Cores::of(&config.cpu_mask)?;
        let compute_cores =
            cores.as_ref().map_or_else(super::default_threads, |c| c.compute.len() as u32);
        if config.threads > compute_cores {
            let _ = writeln!(
                std::io::stderr(),
                "warning: {} threads on {compute_cores} cores: ggml's barriers spin, expect a large slowdown",
                config.threads,
            );
        }
        if config.mode == Mode::Stream && cores.as_ref().is_some_and(|c| c.others.is_empty()) {
            let _ = writeln!(
                std::io::stderr(),
                "warning: --cpu-mask {} leaves no core to the read lanes; they share those of the compute threads",
                config.cpu_mask
            );
        }
        let mut recorder = Recorder::new(sinks, config.hash_logits);
        let pinned = cores.as_ref().map(Cores::compute).transpose()?;
        let forced = replay.as_ref().map(|replay| Arc::clone(&replay.routes));
        match load(&config, &info, options, cores.as_ref(), own_source, forced, &mut recorder) {
            Ok(Loaded { context, template, keeper }) => Ok(Self {
                _pinned: pinned,
                config,
                context,
                sampler,
                template,
                replay,
                keeper,
                dense_seen: None,
                recorder,
                transcript: Transcript::default(),
                checkpoints: Vec::new(),
                turns: 0,
                started: options.started,
                stop: Arc::clone(&options.stop),
                failure: None,
            }),
            Err(error) => {
                // What went wrong first is what is told.
                let _ = recorder.end(outcome(&error), (0, 0));
                Err(error)
            }
        }
    }

    /// The configuration, with every default replaced by what it means here.
    #[must_use]
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// How thinking is switched off; nothing without a chat template.
    #[must_use]
    pub fn think_control(&self) -> ThinkControl {
        self.template.as_ref().map_or(ThinkControl::None, ChatTemplate::think_control)
    }

    /// A handle that ends requests from other threads.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller(Arc::clone(&self.stop))
    }

    /// Generates text from nothing but the request. `on_token` sees every token, and ends the text there
    /// when it breaks.
    ///
    /// # Errors
    /// [`EngineError::Request`] when prompt and tokens don't fit: the engine is as before. Any other
    /// error is the end of it.
    pub fn generate(
        &mut self,
        request: &Request,
        on_token: &mut dyn FnMut(&GeneratedToken<'_>) -> ControlFlow<()>,
    ) -> Result<TurnReport, EngineError> {
        let (prompt, splitter) = self.write_prompt(&[Message::user(&request.prompt)], request)?;
        let input = TurnInput {
            id: &request.id,
            prompt,
            fresh: true,
            n_predict: request.n_predict,
            splitter,
            session: false,
        };
        self.turn(input, on_token)
    }

    /// A conversation. It begins with nothing.
    #[must_use]
    pub fn session(&mut self) -> Session<'_, 's> {
        Session::new(self)
    }

    /// Marks the run as failed, if it isn't yet: the last record will say so.
    pub fn fail(&mut self, error: &EngineError) {
        self.failure.get_or_insert_with(|| outcome(error));
    }

    /// Ends the run with its last record. (A run without one was ended from outside, so it says.)
    ///
    /// # Errors
    /// A sink can't take the record.
    pub fn close(mut self) -> Result<RunEnd, EngineError> {
        let peaks = self.peaks();
        self.recorder.end(self.failure.take().unwrap_or(Outcome::Complete), peaks)
    }

    /// Looks at the memory, and makes the cache's budget fit. `step` is the decode step that was done last.
    pub(super) fn keep_budget(&mut self, step: u32) -> Result<(), EngineError> {
        if let (Some(keeper), Some(store)) = (&mut self.keeper, self.context.hook().store_mut())
            && let Some(record) = keeper.look(store, step)
        {
            self.recorder.emit(&Record::Budget(record))?;
        }
        Ok(())
    }

    /// Thousandths of mapped dense weights that are in memory. Looking takes a while, so what was seen a moment
    /// ago is told again.
    pub(super) fn dense_resident_permille(&mut self) -> Option<u16> {
        const EVERY: Duration = Duration::from_millis(250);
        if let Some((when, seen)) = self.dense_seen
            && when.elapsed() < EVERY
        {
            return seen;
        }
        let share = self.context.model().dense_resident();
        let seen = share.map(|share| (1000.0 * share).round() as u16);
        self.dense_seen = Some((Instant::now(), seen));
        seen
    }

    /// Highest bytes of cache and event.
    pub(super) fn peaks(&mut self) -> (u64, u64) {
        let store = self.context.hook().store();
        store.map_or((0, 0), |s| (s.peak_cache_bytes(), s.peak_event_bytes()))
    }

    /// Refuses to work on after a failure.
    pub(super) fn check_usable(&self) -> Result<(), EngineError> {
        match &self.failure {
            None => Ok(()),
            Some(_) => Err(EngineError::Llama("an earlier request ended this engine".into())),
        }
    }

    /// The text of a conversation's messages, and what reads its answer. Without a template it is the
    /// request's own prompt.
    pub(super) fn write_prompt(
        &self,
        messages: &[Message],
        request: &Request,
    ) -> Result<(Prompt, Splitter), EngineError> {
        if let Some(replay) = &self.replay {
            return Ok((Prompt::Replayed(replay.prompt_tokens), Splitter::raw()));
        }
        if request.prompt.is_empty() {
            return Err(EngineError::Request("the prompt is empty; give one with text".into()));
        }
        match &self.template {
            None => Ok((Prompt::Next(request.prompt.clone()), Splitter::raw())),
            Some(template) => {
                let rendered = template
                    .render(messages, request.think)
                    .map_err(|e| EngineError::Request(e.to_string()))?;
                let Rendered { text, conversation_bytes, splitter } = rendered;
                Ok((Prompt::Whole { text, conversation_bytes }, splitter))
            }
        }
    }
}

/// Refuses settings of the prompt that would do nothing.
fn check_text(config: &RunConfig, info: &ModelInfo) -> Result<(), EngineError> {
    let refuse = |message: String| Err(EngineError::Config(message));
    if config.chat && info.chat_template.is_none() {
        return refuse(format!(
            "{} has no chat template (\"tokenizer.chat_template\"); give a raw prompt, without a chat",
            config.model.display()
        ));
    }
    if !config.chat && config.think != Think::Default {
        return refuse(format!(
            "--think {} needs the model's chat template: a raw prompt says itself whether to think",
            config.think
        ));
    }
    Ok(())
}

fn outcome(error: &EngineError) -> Outcome {
    match error {
        EngineError::Interrupted { signal } => {
            Outcome::Interrupted { signal: (*signal).to_owned() }
        }
        e => Outcome::Failed { message: e.to_string() },
    }
}
