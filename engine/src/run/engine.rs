//! An engine with a model loaded.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bmoe_trace::config::{DenseWeights, Think};
use bmoe_trace::record::{DirectIo, IoEngineUsed, LoadRecord, Outcome, Record, RunEnd, RunStart};
use bmoe_trace::{CacheBudget, Mode, RunConfig};
use sha2::{Digest, Sha256};

use super::budget::{Claims, fixed_bytes};
use super::cores::{Cores, Pinned};
use super::generate::RunOptions;
use super::prepare::{Flash, policy, resolve, shape};
use super::process::{AddressSpace, bytes_read, rss};
use super::profile::{self, Preloaded};
use super::recorder::{Recorder, hex};
use super::request::{GeneratedToken, Request, TurnReport};
use super::session::Session;
use super::sinks::{Event, RecordSink};
use super::transcript::Transcript;
use super::turn::{Prompt, TurnInput};
use super::watch::BudgetKeeper;
use crate::chat::{ChatTemplate, Message, Rendered, Splitter, ThinkControl};
use crate::error::{CANCEL, EngineError};
use crate::flash::memory::MemoryPlan;
use crate::flash::store::StoreOptions;
use crate::llama::context::{Context, ContextParams};
use crate::llama::gguf::ModelInfo;
use crate::llama::hook::{Ahead, Hook, HookOptions};
use crate::llama::memory::Checkpoint;
use crate::llama::model::Model;
use crate::llama::sampler::Sampler;
use crate::llama::{LLAMA_VERSION, log};

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
    /// Looks after a budget that the engine chose.
    keeper: Option<BudgetKeeper>,
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
        match load(&config, &info, options, cores.as_ref(), &mut recorder) {
            Ok(Loaded { context, template, keeper }) => Ok(Self {
                _pinned: pinned,
                config,
                context,
                sampler,
                template,
                keeper,
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

/// What loading brings.
struct Loaded {
    context: Context,
    template: Option<ChatTemplate>,
    keeper: Option<BudgetKeeper>,
}

/// Loads everything, with the records of it.
fn load(
    config: &RunConfig,
    info: &ModelInfo,
    options: &RunOptions,
    cores: Option<&Cores>,
    recorder: &mut Recorder<'_>,
) -> Result<Loaded, EngineError> {
    let start = RunStart {
        run_id: run_id(),
        started_unix_ms: unix_ms().saturating_sub(options.started.elapsed().as_millis() as u64),
        engine_version: env!("CARGO_PKG_VERSION").to_owned(),
        llama_version: LLAMA_VERSION.to_owned(),
        config: config.clone(),
        model: shape(info, config.n_expert_used),
    };
    recorder.emit(&Record::Start(Box::new(start.clone())))?;

    let profile = profile::load(config, &start.model)?;

    let flash = match config.mode {
        Mode::Stream => Some(Flash::open(config, info, cores, &options.faults)?),
        Mode::Mmap | Mode::Resident => None,
    };
    let io_engine = flash.as_ref().map_or(IoEngineUsed::NotApplicable, Flash::io_engine);
    let direct_io = flash.as_ref().map_or(DirectIo::NotApplicable, |f| f.direct_io.clone());
    let read_before = bytes_read();
    let stop = Arc::clone(&options.stop);
    let cancelled = || stop.load(Ordering::Relaxed) != 0;
    let model =
        Model::load(info, config.mode, config.dense_weights, config.n_expert_used, &cancelled)
            .map_err(|e| EngineError::interrupted(stop.load(Ordering::Relaxed)).unwrap_or(e))?;
    let read_bytes = read_before.zip(bytes_read()).map(|(before, after)| after - before);

    let template = match &info.chat_template {
        Some(source) if config.chat => Some(
            ChatTemplate::new(source, &model.bos_text(), &model.eos_text())
                .map_err(|e| EngineError::Config(e.to_string()))?,
        ),
        _ => None,
    };
    let hook_options = HookOptions {
        record: recorder.wants_routes(),
        ahead: Ahead {
            prefetch_layers: config.prefetch_layers,
            predict_experts: config.predict_experts,
        },
        scores: config.trace_scores,
        compute_trace: config.compute_trace,
        ubatch_tokens: config.ubatch_tokens,
        stop: Arc::clone(&options.stop),
    };
    let hook = Hook::new(info, hook_options);
    let params = ContextParams {
        ctx_tokens: config.ctx_tokens,
        // The whole context: how long a prompt will be isn't known. Buffers are sized by the micro-batch.
        batch_tokens: config.ctx_tokens.max(config.ubatch_tokens),
        ubatch_tokens: config.ubatch_tokens,
        threads: config.threads,
    };
    let dense_read_ns = model.dense_read_ns();
    let before = AddressSpace::now();
    let mut context = Context::new(Rc::new(model), params, hook)?;
    // The cache comes last: a size chosen from what is available knows what everything else takes.
    let (mut cache_budget_bytes, mut event_room_bytes, mut keeper) = (0, 0, None);
    let mut preloaded = Preloaded::default();
    if let Some(flash) = flash {
        let plan = match config.cache_mib {
            CacheBudget::Mib(_) => {
                MemoryPlan::new(&info.experts, fixed_bytes(config), config.n_expert_used)
            }
            CacheBudget::Auto => {
                let claims = Claims::new(config, info, before.untouched_since());
                let chosen = BudgetKeeper::choose(config, &info.experts, claims, &options.memory)?;
                keeper = Some(chosen.1);
                chosen.0
            }
        };
        (cache_budget_bytes, event_room_bytes) = (plan.budget_bytes, plan.event_room_bytes);
        let store_options = StoreOptions {
            policy: policy(config)?,
            overlap: config.overlap,
            poison: options.poison,
        };
        let mut store = flash.into_store(info, plan, store_options)?;
        if let Some(profile) = &profile {
            preloaded = profile::preload(&mut store, profile, &cancelled)?;
            if let Some(error) = EngineError::interrupted(stop.load(Ordering::Relaxed)) {
                return Err(error);
            }
        }
        context.hook().set_store(store);
    }
    let (dense_read_bytes, expert_read_bytes) = loaded_bytes(config, info, read_bytes);
    recorder.emit(&Record::Load(LoadRecord {
        load_ns: options.started.elapsed().as_nanos() as u64,
        dense_read_ns,
        dense_read_bytes,
        expert_read_bytes,
        cache_budget_bytes,
        event_room_bytes,
        direct_io,
        io_engine,
        rss_bytes: rss().0,
        preloaded_bytes: preloaded.bytes,
        preload_ns: preloaded.took.as_nanos() as u64,
    }))?;
    let think_control = template.as_ref().map_or(ThinkControl::None, ChatTemplate::think_control);
    recorder.event(&Event::Opened { think_control })?;
    Ok(Loaded { context, template, keeper })
}

/// Splits what the loader read into dense and expert bytes.
///
/// The kernel counts bytes, not tensors: what goes beyond the headers, the dense weights and the blocks
/// that buffered reads round up to must have been experts.
fn loaded_bytes(config: &RunConfig, info: &ModelInfo, read_bytes: Option<u64>) -> (u64, u64) {
    let dense_bytes = match (config.mode, config.dense_weights) {
        (Mode::Mmap, _) => return (0, 0),
        (Mode::Stream, DenseWeights::Mmap) => 0,
        _ => info.dense_bytes,
    };
    let Some(read) = read_bytes else { return (dense_bytes, 0) };
    let explained = dense_bytes + info.header_bytes;
    let beyond = read.saturating_sub(explained + info.stdio_slack_bytes());
    let (dense_read, expert_read) =
        if beyond == 0 { (read, 0) } else { (read.min(explained), read.saturating_sub(explained)) };
    (if dense_bytes == 0 { 0 } else { dense_read }, expert_read)
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// Unique without a random source: start time and process.
fn run_id() -> String {
    let ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let digest = Sha256::digest(format!("{ns} {}", std::process::id()));
    hex(&digest[..8])
}
