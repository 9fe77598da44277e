//! From a configuration to a model that is ready: checks, memory, files.

use std::io::Write as _;

use bmoe_cache::{PolicyKind, UnknownPolicy};
use bmoe_trace::config::DenseWeights;
use bmoe_trace::record::{DirectIo, IoEngineUsed, LayerShape, ModelShape};
use bmoe_trace::{CacheBudget, Mode, RunConfig};

use super::budget;
use super::cores::Cores;
use crate::error::EngineError;
use crate::flash::arena::Arena;
use crate::flash::fault::Faults;
use crate::flash::file::SliceFiles;
use crate::flash::lanes::{LaneOptions, Lanes, MAX_LANES};
use crate::flash::memory::MemoryPlan;
use crate::flash::probe;
use crate::flash::store::{ExpertStore, StoreOptions};
use crate::llama::gguf::ModelInfo;

/// Cores that this process may use: more threads than that make ggml's spinning barriers hundreds of
/// times slower.
#[must_use]
pub fn default_threads() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// A configuration with every default replaced by what it means here.
///
/// # Errors
/// A value is out of its range.
pub(super) fn resolve(config: &RunConfig, info: &ModelInfo) -> Result<RunConfig, EngineError> {
    let refuse = |message: String| Err(EngineError::Config(message));
    let mut resolved = config.clone();
    let cores = Cores::of(&resolved.cpu_mask)?;
    if let Some(cores) = &cores {
        resolved.cpu_mask = cores.mask();
    }
    if resolved.threads == 0 {
        resolved.threads = cores.map_or_else(default_threads, |c| c.compute.len() as u32);
    }
    if resolved.threads > 512 {
        return refuse(format!("--threads {} is out of range: 1 to 512", resolved.threads));
    }
    if resolved.ubatch_tokens == 0 || resolved.ctx_tokens == 0 {
        return refuse("--ubatch and --ctx must be at least 1".into());
    }
    if resolved.n_predict >= resolved.ctx_tokens {
        return refuse(format!(
            "-n asks for {} tokens, but the context holds {} with the prompt; give a larger --ctx or a \
             smaller -n",
            resolved.n_predict, resolved.ctx_tokens
        ));
    }
    if info.context_tokens > 0 && resolved.ctx_tokens > info.context_tokens {
        return refuse(format!(
            "--ctx {} is more than the model's context of {} tokens; give --ctx {} or less",
            resolved.ctx_tokens, info.context_tokens, info.context_tokens
        ));
    }
    if resolved.model.to_str().is_none() {
        return refuse(format!(
            "the model's path {} is not UTF-8, so no record can hold it; rename it",
            resolved.model.display()
        ));
    }
    if config.n_expert_used > info.n_expert {
        return refuse(format!(
            "--n-expert-used {} is more than the model's {} experts",
            config.n_expert_used, info.n_expert
        ));
    }
    if resolved.n_expert_used == 0 {
        resolved.n_expert_used = info.n_expert_used;
    }
    if resolved.mode == Mode::Stream {
        if !(1..=MAX_LANES).contains(&resolved.io_threads) {
            return refuse(format!(
                "--io-threads {} is out of range: 1 to {MAX_LANES}",
                resolved.io_threads
            ));
        }
        policy(&resolved)?;
        if resolved.cache_ceil_mib > 0
            && resolved.cache_ceil_mib < resolved.cache_floor_mib
            && resolved.cache_mib == CacheBudget::Auto
            && resolved.cache_floor_mib != RunConfig::default().cache_floor_mib
        {
            return refuse(format!(
                "--cache-floor-mb {} is more than --cache-ceil-mb {}; give a smaller floor or a larger \
                 ceiling",
                resolved.cache_floor_mib, resolved.cache_ceil_mib
            ));
        }
        budget::check(&resolved, &info.experts)?;
    } else if resolved.dense_weights != DenseWeights::default() {
        return refuse(format!(
            "--dense-weights {} goes with --mode stream; --mode {} has all weights in one place",
            resolved.dense_weights, resolved.mode
        ));
    }
    Ok(resolved)
}

/// The policy that a configuration names.
///
/// # Errors
/// There is none of that name.
pub(super) fn policy(config: &RunConfig) -> Result<PolicyKind, EngineError> {
    config
        .cache_policy
        .parse()
        .map_err(|e: UnknownPolicy| EngineError::Config(format!("--cache-policy: {e}")))
}

/// The model's shape as records carry it.
pub(super) fn shape(info: &ModelInfo, n_expert_used: u32) -> ModelShape {
    ModelShape {
        arch: info.arch.clone(),
        n_layer: info.n_layer,
        n_expert: info.n_expert,
        n_expert_used,
        file_bytes: info.file_bytes,
        dense_bytes: info.dense_bytes,
        layers: info
            .experts
            .layers
            .iter()
            .map(|l| LayerShape { layer: l.layer, expert_bytes: l.expert_bytes() })
            .collect(),
    }
}

/// The lanes of a streamed run. Made before its model is loaded, so that files that can't be read are
/// refused at once.
pub(super) struct Flash {
    lanes: Lanes,
    pub(super) direct_io: DirectIo,
}

impl Flash {
    /// # Errors
    /// A file can't be opened, or a thread can't be started.
    pub(super) fn open(
        config: &RunConfig,
        info: &ModelInfo,
        cores: Option<&Cores>,
        faults: &Faults,
    ) -> Result<Self, EngineError> {
        let probes = probe::probes(&info.experts);
        let (files, direct_io) = SliceFiles::open(&info.experts.files, config.odirect, &probes)?;
        let reads_ahead = config.prefetch_layers > 0 || config.predict_experts > 0;
        let options = LaneOptions {
            lanes: config.io_threads,
            // Reading ahead needs lanes that are idle while others compute.
            helpers: if config.overlap || reads_ahead { 0 } else { config.threads },
            engine: config.io_engine,
            slices: ExpertStore::slices(&info.experts),
            record: config.io_trace,
        };
        let files = files.with_faults(faults.clone());
        let start = || Lanes::new(files, options);
        let lanes = match cores {
            Some(cores) => cores.apart(start)?,
            None => start(),
        }
        .map_err(|e| EngineError::Config(format!("no thread can be started for reads: {e}")))?;
        if let IoEngineUsed::UringUnavailable { reason } = lanes.engine() {
            let _ = writeln!(
                std::io::stderr(),
                "warning: io_uring is not available, reads use pread: {reason}"
            );
        }
        Ok(Self { lanes, direct_io })
    }

    /// What hands the reads to the kernel.
    pub(super) fn io_engine(&self) -> IoEngineUsed {
        self.lanes.engine().clone()
    }

    /// The store, with memory of its own.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn into_store(
        self,
        info: &ModelInfo,
        plan: MemoryPlan,
        options: StoreOptions,
    ) -> Result<ExpertStore, EngineError> {
        let arena = Arena::new(plan.total_bytes())
            .map_err(|source| EngineError::Memory { mib: plan.total_bytes() >> 20, source })?;
        Ok(ExpertStore::new(info.experts.clone(), plan, self.lanes.into(), arena, options))
    }
}
