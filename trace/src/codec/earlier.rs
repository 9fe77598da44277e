//! Records of the version before, read as those of today.

use std::path::PathBuf;

use serde::Deserialize;

use crate::config::{
    CacheBudget, ComputeTrace, DenseWeights, IoEngine, Mode, RunConfig, Sampling, Think,
};
use crate::record::{ModelShape, Record, RunStart};

/// The version whose first record is laid out as [`Start`]; its other records are those of today.
pub(super) const VERSION: u32 = 2;

/// The record of version 2 that differs. It is the first variant there, too.
#[derive(Deserialize)]
pub(super) enum Earlier {
    Start(Box<Start>),
}

/// [`RunStart`] of version 2.
#[derive(Deserialize)]
pub(super) struct Start {
    run_id: String,
    started_unix_ms: u64,
    engine_version: String,
    llama_version: String,
    config: Config,
    model: ModelShape,
}

/// [`RunConfig`] of version 2.
#[derive(Deserialize)]
struct Config {
    model: PathBuf,
    mode: Mode,
    prompt: String,
    n_predict: u32,
    threads: u32,
    ctx_tokens: u32,
    ubatch_tokens: u32,
    cache_mib: CacheBudget,
    cache_floor_mib: u64,
    cache_ceil_mib: u64,
    force_cache: bool,
    cache_policy: String,
    warm_profile: Option<PathBuf>,
    prefetch_layers: u32,
    predict_experts: u32,
    io_threads: u32,
    io_engine: IoEngine,
    odirect: bool,
    overlap: bool,
    io_ceiling_mib_s: f64,
    dense_weights: DenseWeights,
    cpu_mask: String,
    n_expert_used: u32,
    chat: bool,
    think: Think,
    sampling: Sampling,
    hash_logits: bool,
    trace_scores: u32,
    io_trace: bool,
    compute_trace: ComputeTrace,
}

impl From<Earlier> for Record {
    fn from(Earlier::Start(start): Earlier) -> Self {
        let Start { run_id, started_unix_ms, engine_version, llama_version, config, model } =
            *start;
        let config = config.into();
        Self::Start(Box::new(RunStart {
            run_id,
            started_unix_ms,
            engine_version,
            llama_version,
            config,
            model,
        }))
    }
}

impl From<Config> for RunConfig {
    fn from(config: Config) -> Self {
        // Taken apart so that no field can be forgotten.
        let Config {
            model,
            mode,
            prompt,
            n_predict,
            threads,
            ctx_tokens,
            ubatch_tokens,
            cache_mib,
            cache_floor_mib,
            cache_ceil_mib,
            force_cache,
            cache_policy,
            warm_profile,
            prefetch_layers,
            predict_experts,
            io_threads,
            io_engine,
            odirect,
            overlap,
            io_ceiling_mib_s,
            dense_weights,
            cpu_mask,
            n_expert_used,
            chat,
            think,
            sampling,
            hash_logits,
            trace_scores,
            io_trace,
            compute_trace,
        } = config;
        Self {
            model,
            mode,
            prompt,
            n_predict,
            threads,
            ctx_tokens,
            ubatch_tokens,
            cache_mib,
            cache_floor_mib,
            cache_ceil_mib,
            force_cache,
            cache_policy,
            warm_profile,
            prefetch_layers,
            predict_experts,
            io_threads,
            io_engine,
            odirect,
            overlap,
            io_ceiling_mib_s,
            dense_weights,
            cpu_mask,
            n_expert_used,
            chat,
            think,
            sampling,
            hash_logits,
            trace_scores,
            io_trace,
            compute_trace,
            replay_routes: None,
        }
    }
}
