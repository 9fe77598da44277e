//! Load, prefill, decode greedily, and record what each step cost.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bmoe_trace::record::{
    Cost, DirectIo, IoEngineUsed, LoadRecord, Outcome, PrefillRecord, Record, RunEnd, RunStart,
    TokenRecord,
};
use bmoe_trace::{Mode, RunConfig};
use sha2::{Digest, Sha256};

use super::prepare::{Flash, resolve, shape};
use super::process::{Counters, bytes_read, memory, rss};
use super::sinks::RecordSink;
use super::text::TextStream;
use crate::error::EngineError;
use crate::llama::context::{Context, ContextParams};
use crate::llama::gguf::ModelInfo;
use crate::llama::hook::Hook;
use crate::llama::model::Model;
use crate::llama::{LLAMA_VERSION, log};

/// What a run needs beside its configuration.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// When the process started.
    pub started: Instant,
    /// Print llama.cpp's log.
    pub verbose: bool,
    /// Overwrite freed memory of experts, so that a stale read can't pass by luck (for tests).
    pub poison: bool,
    /// Set to a signal's number to stop the run.
    pub stop: Arc<AtomicUsize>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            verbose: false,
            poison: false,
            stop: Arc::new(AtomicUsize::new(0)),
        }
    }
}

/// What the last record needs.
struct Progress {
    tokens: u32,
    decode_ns: u64,
    text: TextStream,
    hash: Option<Sha256>,
}

/// Runs one configuration from loading to the last token. Records go to `sinks` as they come; the
/// last one, [`Record::End`], comes in success and failure alike once the model's header was read.
///
/// # Errors
/// Whatever keeps the run from its end; see [`EngineError`].
pub fn generate(
    config: &RunConfig,
    options: &RunOptions,
    sinks: &mut [&mut dyn RecordSink],
) -> Result<RunEnd, EngineError> {
    log::start(options.verbose);
    if config.model.as_os_str().is_empty() {
        return Err(EngineError::Config("no model is given; name a GGUF file as the model".into()));
    }
    let info = ModelInfo::read(&config.model)?;
    if config.mode == Mode::Stream {
        info.check_streamable()?;
    }
    let config = resolve(config, &info)?;
    if config.threads > super::default_threads() {
        let _ = writeln!(
            std::io::stderr(),
            "warning: {} threads on {} cores: ggml's barriers spin, expect a large slowdown",
            config.threads,
            super::default_threads()
        );
    }
    let mut totals = Progress {
        tokens: 0,
        decode_ns: 0,
        text: TextStream::default(),
        hash: config.hash_logits.then(Sha256::new),
    };
    let mut peaks = (0, 0);
    let result = run(&config, &info, options, sinks, &mut totals, &mut peaks);
    let outcome = match &result {
        Ok(()) => Outcome::Complete,
        Err(EngineError::Interrupted { signal }) => {
            Outcome::Interrupted { signal: (*signal).to_owned() }
        }
        Err(e) => Outcome::Failed { message: e.to_string() },
    };
    let end = RunEnd {
        outcome,
        tokens: totals.tokens,
        decode_ns: totals.decode_ns,
        peak_rss_bytes: rss().1,
        peak_cache_bytes: peaks.0,
        peak_event_bytes: peaks.1,
        text: totals.text.finish(),
        logits_sha256: totals.hash.map(|h| hex(&h.finalize())),
    };
    let recorded = emit(sinks, &Record::End(Box::new(end.clone())));
    result.and(recorded)?;
    Ok(end)
}

fn run(
    config: &RunConfig,
    info: &ModelInfo,
    options: &RunOptions,
    sinks: &mut [&mut dyn RecordSink],
    totals: &mut Progress,
    peaks: &mut (u64, u64),
) -> Result<(), EngineError> {
    let start = RunStart {
        run_id: run_id(),
        started_unix_ms: unix_ms().saturating_sub(options.started.elapsed().as_millis() as u64),
        engine_version: env!("CARGO_PKG_VERSION").to_owned(),
        llama_version: LLAMA_VERSION.to_owned(),
        config: config.clone(),
        model: shape(info, config.n_expert_used),
    };
    emit(sinks, &Record::Start(Box::new(start)))?;

    let flash = match config.mode {
        Mode::Stream => Some(Flash::open(config, info)?),
        Mode::Mmap | Mode::Resident => None,
    };
    let io_engine = match config.mode {
        Mode::Stream => IoEngineUsed::Pread,
        Mode::Mmap | Mode::Resident => IoEngineUsed::NotApplicable,
    };
    let direct_io = flash.as_ref().map_or(DirectIo::NotApplicable, |f| f.direct_io.clone());
    let read_before = bytes_read();
    let stop = Arc::clone(&options.stop);
    let cancelled = || stop.load(Ordering::Relaxed) != 0;
    let model = Model::load(info, config.mode, config.n_expert_used, &cancelled)
        .map_err(|e| EngineError::interrupted(stop.load(Ordering::Relaxed)).unwrap_or(e))?;
    let read_bytes = read_before.zip(bytes_read()).map(|(before, after)| after - before);

    let tokens = model.tokenize(&config.prompt)?;
    check_length(config, &tokens)?;
    let wants_routes = sinks.iter().any(|s| s.wants_routes());
    let store = flash.map(|f| f.into_store(info, options.poison));
    let (cache_budget_bytes, event_room_bytes) =
        store.as_ref().map_or((0, 0), |s| (s.plan().budget_bytes, s.plan().event_room_bytes));
    let hook =
        Hook::new(info, store, wants_routes, config.ubatch_tokens, Arc::clone(&options.stop));
    let params = ContextParams {
        ctx_tokens: config.ctx_tokens,
        batch_tokens: (tokens.len() as u32).max(config.ubatch_tokens),
        ubatch_tokens: config.ubatch_tokens,
        threads: config.threads,
    };
    let mut context = Context::new(&model, params, hook)?;
    let (dense_read_bytes, expert_read_bytes) = loaded_bytes(config.mode, info, read_bytes);
    emit(
        sinks,
        &Record::Load(LoadRecord {
            load_ns: options.started.elapsed().as_nanos() as u64,
            dense_read_ns: model.dense_read_ns(),
            dense_read_bytes,
            expert_read_bytes,
            cache_budget_bytes,
            event_room_bytes,
            direct_io,
            io_engine,
            rss_bytes: rss().0,
        }),
    )?;
    let result = decode(config, options, &model, &mut context, &tokens, sinks, totals);
    if let Some(store) = context.hook().store() {
        *peaks = (store.peak_cache_bytes(), store.peak_event_bytes());
        if let (Ok(()), Some(path)) = (&result, store.lanes().files().changed()) {
            return Err(EngineError::Changed { path });
        }
    }
    result
}

fn check_length(config: &RunConfig, tokens: &[i32]) -> Result<(), EngineError> {
    let room = config.ctx_tokens as usize;
    if tokens.is_empty() {
        return Err(EngineError::Config("the prompt has no tokens; give a longer one".into()));
    }
    if tokens.len() + config.n_predict as usize > room {
        return Err(EngineError::Config(format!(
            "the prompt has {} tokens and -n asks for {} more, but the context holds {room}; give \
             --ctx {} or a shorter prompt",
            tokens.len(),
            config.n_predict,
            tokens.len() + config.n_predict as usize
        )));
    }
    Ok(())
}

/// Splits what the loader read into dense and expert bytes.
///
/// The kernel counts bytes, not tensors: what goes beyond the headers, the dense weights and the blocks
/// that buffered reads round up to must have been experts.
fn loaded_bytes(mode: Mode, info: &ModelInfo, read_bytes: Option<u64>) -> (u64, u64) {
    match (mode, read_bytes) {
        (Mode::Mmap, _) => (0, 0),
        (_, None) => (info.dense_bytes, 0),
        (_, Some(read)) => {
            let explained = info.dense_bytes + info.header_bytes;
            let beyond = read.saturating_sub(explained + info.stdio_slack_bytes());
            if beyond == 0 {
                (read, 0)
            } else {
                (read.min(explained), read.saturating_sub(explained))
            }
        }
    }
}

fn decode(
    config: &RunConfig,
    options: &RunOptions,
    model: &Model,
    context: &mut Context<'_>,
    prompt: &[i32],
    sinks: &mut [&mut dyn RecordSink],
    totals: &mut Progress,
) -> Result<(), EngineError> {
    let hashing = config.hash_logits;
    let mut meter = Meter::start();
    context.decode(prompt, 0, hashing)?;
    let mut next = sample(context, prompt.len(), hashing, &mut totals.hash)?;
    let time_to_first_token_ns = options.started.elapsed().as_nanos() as u64;
    let cost = meter.read(context);
    emit_routes(context, sinks)?;
    let ubatches = context.hook().ubatches();
    emit(
        sinks,
        &Record::Prefill(PrefillRecord {
            prompt_tokens: prompt.len() as u32,
            ubatches,
            cost,
            time_to_first_token_ns,
        }),
    )?;

    context.hook().start_decode();
    for step in 1..=config.n_predict {
        if model.ends_text(next) {
            break;
        }
        let token = next;
        let position = prompt.len() as u32 + step - 1;
        let mut meter = Meter::start();
        let text = totals.text.push(&model.piece(token));
        for sink in sinks.iter_mut() {
            sink.text(text)?;
        }
        context.decode(&[token], position, hashing)?;
        next = sample(context, 1, hashing, &mut totals.hash)?;
        emit_routes(context, sinks)?;
        let cost = meter.read(context);
        totals.tokens = step;
        totals.decode_ns += cost.wall_ns;
        let (hit_rate, cache_resident_bytes, cache_budget_bytes) =
            context.hook().store().map_or((f64::NAN, 0, 0), |s| {
                let hit_rate = s.counts().hit_rate().unwrap_or(f64::NAN);
                (hit_rate, s.resident_bytes(), s.plan().budget_bytes)
            });
        let (rss_bytes, memory) = memory();
        emit(
            sinks,
            &Record::Token(TokenRecord {
                step,
                position,
                token,
                cost,
                cumulative_hit_rate: hit_rate,
                cache_resident_bytes,
                cache_budget_bytes,
                rss_bytes,
                memory,
            }),
        )?;
    }
    Ok(())
}

/// The most probable token; the smallest of equals. Hashes the logits on the way.
///
/// # Errors
/// A logit is not a number: the weights are damaged, and no choice would mean anything.
fn sample(
    context: &Context<'_>,
    tokens: usize,
    all: bool,
    hash: &mut Option<Sha256>,
) -> Result<i32, EngineError> {
    if let Some(hash) = hash {
        for i in if all { 0..tokens } else { tokens - 1..tokens } {
            for logit in context.logits(i) {
                hash.update(logit.to_le_bytes());
            }
        }
    }
    let mut best = (f32::NEG_INFINITY, 0);
    for (token, &logit) in context.logits(tokens - 1).iter().enumerate() {
        if logit > best.0 {
            best = (logit, token as i32);
        } else if logit.is_nan() {
            return Err(EngineError::Llama(
                "the logits are not numbers; the model's weights are damaged".into(),
            ));
        }
    }
    Ok(best.1)
}

/// Measures one stretch of work.
struct Meter {
    start: Instant,
    counters: Counters,
}

impl Meter {
    fn start() -> Self {
        Self { counters: Counters::now(), start: Instant::now() }
    }

    fn read(&mut self, context: &mut Context<'_>) -> Cost {
        let wall_ns = self.start.elapsed().as_nanos() as u64;
        let counters = Counters::now().since(self.counters);
        let (store, compute_ns) = context.hook().take_costs();
        Cost {
            wall_ns,
            io_wait_ns: store.io_wait_ns,
            compute_ns,
            mgmt_ns: store.mgmt_ns,
            lane_busy_ns: store.lane_busy_ns,
            io_active_ns: 0,
            other_ns: wall_ns.saturating_sub(store.io_wait_ns + compute_ns + store.mgmt_ns),
            expert_read_bytes: store.expert_read_bytes,
            device_read_bytes: store.device_read_bytes,
            reads: store.reads,
            hits: store.hits,
            misses: store.misses,
            speculated: 0,
            speculated_bytes: 0,
            speculated_hits: 0,
            speculated_wasted: 0,
            major_faults: counters.major_faults,
            cpu_ns: counters.cpu_ns,
        }
    }
}

fn emit(sinks: &mut [&mut dyn RecordSink], record: &Record) -> Result<(), EngineError> {
    sinks.iter_mut().try_for_each(|sink| sink.record(record))
}

fn emit_routes(
    context: &mut Context<'_>,
    sinks: &mut [&mut dyn RecordSink],
) -> Result<(), EngineError> {
    for record in context.hook().take_records() {
        emit(sinks, &Record::Route(record))?;
    }
    Ok(())
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
