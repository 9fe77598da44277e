//! Loads a model, its context and its store, and records what that cost.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use bmoe_trace::config::DenseWeights;
use bmoe_trace::record::{DirectIo, IoEngineUsed, LoadRecord, Record, RunStart};
use bmoe_trace::{CacheBudget, Mode, RunConfig};
use sha2::{Digest, Sha256};

use super::budget::{Claims, fixed_bytes};
use super::cores::Cores;
use super::generate::RunOptions;
use super::prepare::{Flash, policy, shape};
use super::process::{AddressSpace, bytes_read, rss};
use super::profile::{self, Preloaded};
use super::recorder::{Recorder, hex};
use super::sinks::Event;
use super::watch::BudgetKeeper;
use crate::chat::{ChatTemplate, ThinkControl};
use crate::error::EngineError;
use crate::flash::layout::ExpertLayout;
use crate::flash::memory::MemoryPlan;
use crate::flash::source::ExpertSource;
use crate::flash::store::StoreOptions;
use crate::llama::LLAMA_VERSION;
use crate::llama::context::{Context, ContextParams};
use crate::llama::forced::ForcedRoutes;
use crate::llama::gguf::ModelInfo;
use crate::llama::hook::{Ahead, Hook, HookOptions};
use crate::llama::model::Model;

/// Makes a source of experts for a model.
pub(super) type MakeSource<'a> =
    Box<dyn FnOnce(&ExpertLayout) -> Result<Box<dyn ExpertSource>, EngineError> + 'a>;

/// What loading brings.
pub(super) struct Loaded {
    pub(super) context: Context,
    pub(super) template: Option<ChatTemplate>,
    pub(super) keeper: Option<BudgetKeeper>,
}

/// Loads everything, with the records of it.
pub(super) fn load(
    config: &RunConfig,
    info: &ModelInfo,
    options: &RunOptions,
    cores: Option<&Cores>,
    own_source: Option<MakeSource<'_>>,
    forced: Option<Arc<ForcedRoutes>>,
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
        Mode::Stream if own_source.is_none() => {
            Some(Flash::open(config, info, cores, &options.faults)?)
        }
        Mode::Stream | Mode::Mmap | Mode::Resident => None,
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
        forced,
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
        context.hook().set_source(Box::new(store));
    }
    if let Some(make) = own_source {
        context.hook().set_source(make(&info.experts)?);
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
