//! `runs.parquet`

use bmoe_trace::Mode;
use bmoe_trace::record::{DirectIo, IoEngineUsed, Outcome};

use crate::data::column::row;
use crate::data::trace::Run;
use crate::result_set::CellRecord;

row! {
    /// One run. Columns of a part that the run never reached are null.
    #[derive(Debug, Clone, PartialEq)]
    pub struct RunRow {
        /// Content hash of the cell; null when the journal does not know the run.
        pub cell_id: Option<String>,
        /// The cell's name.
        pub cell_name: Option<String>,
        /// The model's name within the matrix.
        pub model: Option<String>,
        /// Repetition, from 0.
        pub repetition: Option<u32>,
        /// Attempt at the repetition, from 1.
        pub attempt: Option<u32>,
        /// Position in the order in which the runner started the attempts.
        pub run_order: Option<u32>,
        /// The cell is the one that others are compared with.
        pub baseline: Option<bool>,
        /// The cell's text must equal the baseline's.
        pub lossless: Option<bool>,
        /// How the runner judged the attempt.
        pub verdict: Option<String>,
        /// Why, for everything that is not valid.
        pub reason: Option<String>,
        /// Start of the process, milliseconds since the Unix epoch.
        pub started_unix_ms: u64,
        /// Version of the engine.
        pub engine_version: String,
        /// Version of its llama.cpp bindings.
        pub llama_version: String,
        /// `general.architecture` of the model.
        pub arch: String,
        /// Layers, dense ones included.
        pub n_layer: u32,
        /// Layers with routed experts.
        pub n_moe_layer: u32,
        /// Experts per MoE layer.
        pub n_expert: u32,
        /// Experts per token.
        pub n_expert_used: u32,
        /// All files of the model.
        pub model_file_bytes: u64,
        /// Bytes outside the routed experts' weights.
        pub dense_bytes: u64,
        /// Bytes of all routed experts.
        pub expert_set_bytes: u64,
        /// Expert bytes that one token touches.
        pub token_demand_bytes: u64,
        /// `stream`, `mmap` or `resident`.
        pub mode: String,
        /// Compute threads.
        pub threads: u32,
        /// Context length.
        pub ctx_tokens: u32,
        /// Largest micro-batch.
        pub ubatch_tokens: u32,
        /// Cache budget asked for, MiB; null = sized by the engine.
        pub cache_mib: Option<u64>,
        /// Read lanes.
        pub io_threads: u32,
        /// Tokens asked for.
        pub n_predict: u32,
        /// Reads overlap with computation; null outside `stream` mode and in version 1, as the next five.
        pub overlap: Option<bool>,
        /// Which experts stay in the cache; also null without a cache.
        pub cache_policy: Option<String>,
        /// Read ahead what the previous token used in so many of the next layers.
        pub prefetch_layers: Option<u32>,
        /// Read ahead at most so many experts that the next layer's router names.
        pub predict_experts: Option<u32>,
        /// `anon`, `warm` or `mmap`.
        pub dense_weights: Option<String>,
        /// What the storage can do as it was given, MiB/s; also null when it was not.
        pub io_ceiling_mib_s: Option<f64>,
        /// Cores of the compute threads; null = any, and in version 1.
        pub cpu_mask: Option<String>,
        /// Reads or computation were recorded, which takes time of its own; null in version 1.
        pub perturbed: Option<bool>,
        /// Process start to a usable context.
        pub load_ns: Option<u64>,
        /// Part of `load_ns` spent reading dense weights; null in `mmap` mode, as the next two.
        pub dense_read_ns: Option<u64>,
        /// Dense bytes read while loading.
        pub dense_read_bytes: Option<u64>,
        /// Expert bytes read while loading.
        pub load_expert_read_bytes: Option<u64>,
        /// Expert bytes that a warm profile had read into the cache; null outside `stream` mode and in
        /// version 1, as the next.
        pub preloaded_bytes: Option<u64>,
        /// Part of `load_ns` that this took.
        pub preload_ns: Option<u64>,
        /// Cache budget in force.
        pub cache_budget_bytes: Option<u64>,
        /// Memory for experts in use, besides the budget.
        pub event_room_bytes: Option<u64>,
        /// `used`, `off`, `not_applicable`, or `unavailable: <reason>`.
        pub direct_io: Option<String>,
        /// `pread`, `uring`, `not_applicable`, or `unavailable: <reason>` (then `pread` was used); null in
        /// version 1.
        pub io_engine: Option<String>,
        /// Turns of a session; 1 for any other run, null in version 1.
        pub turns: Option<u32>,
        /// Prompt tokens; of a session, all about the prompt is its first turn's.
        pub prompt_tokens: Option<u32>,
        /// Micro-batches of the prompt.
        pub prefill_ubatches: Option<u32>,
        /// Wall time of the prompt.
        pub prefill_ns: Option<u64>,
        /// Blocked on expert reads during the prompt; null outside `stream` mode, as the next four.
        pub prefill_io_wait_ns: Option<u64>,
        /// At least one read was outstanding during the prompt; null in version 1.
        pub prefill_io_active_ns: Option<u64>,
        /// Expert bytes fetched for the prompt.
        pub prefill_expert_read_bytes: Option<u64>,
        /// Distinct experts of the prompt's events found in the cache.
        pub prefill_hits: Option<u64>,
        /// Distinct experts of the prompt's events that were read.
        pub prefill_misses: Option<u64>,
        /// Process start to the first sampled token.
        pub time_to_first_token_ns: Option<u64>,
        /// `complete`, `interrupted` or `failed`; null when the trace has no end.
        pub outcome: Option<String>,
        /// The engine's line about an outcome that is not complete.
        pub outcome_message: Option<String>,
        /// Decode steps in the trace.
        pub tokens: u32,
        /// Sum of their wall time.
        pub decode_ns: u64,
        /// Changes of the cache's budget; null outside `stream` mode and in version 1.
        pub cache_resizes: Option<u32>,
        /// Highest resident memory of the process.
        pub peak_rss_bytes: Option<u64>,
        /// Highest number of expert bytes held between events.
        pub peak_cache_bytes: Option<u64>,
        /// Highest number of bytes by which an event went over the budget.
        pub peak_event_bytes: Option<u64>,
        /// The generated text.
        pub text: Option<String>,
        /// SHA-256 of all logits.
        pub logits_sha256: Option<String>,
        /// Bytes of an unfinished last record that were left out; 0 = the trace is whole.
        pub truncated_bytes: u64,
        /// The run configuration, JSON.
        pub config_json: String,
        /// The model's shape with the expert size of each layer, JSON.
        pub model_shape_json: String,
    }
}

impl RunRow {
    /// The row of a run; `cell` is the journal's record of it.
    pub(in crate::data) fn new(run: &Run, cell: Option<&CellRecord>) -> Self {
        let Run { start, load, prefill, end, tables, .. } = run;
        let tokens = &tables.tokens;
        let config = &start.config;
        let model = &start.model;
        let json = |value: serde_json::Result<String>| value.unwrap_or_default();
        let row = Self {
            cell_id: cell.map(|c| c.id.clone()),
            cell_name: cell.map(|c| c.name.clone()),
            model: cell.map(|c| c.model.clone()),
            repetition: cell.map(|c| c.repetition),
            attempt: cell.map(|c| c.attempt),
            run_order: cell.map(|c| c.order),
            baseline: cell.map(|c| c.baseline),
            lossless: cell.map(|c| c.lossless),
            verdict: cell.map(|c| c.verdict.as_str().to_owned()),
            reason: cell.and_then(|c| c.reason.clone()),
            started_unix_ms: start.started_unix_ms,
            engine_version: start.engine_version.clone(),
            llama_version: start.llama_version.clone(),
            arch: model.arch.clone(),
            n_layer: model.n_layer,
            n_moe_layer: count(model.layers.len()),
            n_expert: model.n_expert,
            n_expert_used: model.n_expert_used,
            model_file_bytes: model.file_bytes,
            dense_bytes: model.dense_bytes,
            expert_set_bytes: model.expert_set_bytes(),
            token_demand_bytes: model.token_demand_bytes(),
            mode: config.mode.to_string(),
            threads: config.threads,
            ctx_tokens: config.ctx_tokens,
            ubatch_tokens: config.ubatch_tokens,
            cache_mib: config.cache_mib.mib(),
            io_threads: config.io_threads,
            n_predict: config.n_predict,
            overlap: Some(config.overlap),
            cache_policy: config.cache_mib.is_on().then(|| config.cache_policy.clone()),
            prefetch_layers: Some(config.prefetch_layers),
            predict_experts: Some(config.predict_experts),
            dense_weights: Some(config.dense_weights.to_string()),
            io_ceiling_mib_s: Some(config.io_ceiling_mib_s).filter(|ceiling| *ceiling > 0.0),
            cpu_mask: Some(config.cpu_mask.clone()).filter(|mask| !mask.is_empty()),
            perturbed: Some(config.perturbed()),
            load_ns: load.as_ref().map(|l| l.load_ns),
            dense_read_ns: load.as_ref().map(|l| l.dense_read_ns),
            dense_read_bytes: load.as_ref().map(|l| l.dense_read_bytes),
            load_expert_read_bytes: load.as_ref().map(|l| l.expert_read_bytes),
            preloaded_bytes: load.as_ref().map(|l| l.preloaded_bytes),
            preload_ns: load.as_ref().map(|l| l.preload_ns),
            cache_budget_bytes: load.as_ref().map(|l| l.cache_budget_bytes),
            event_room_bytes: load.as_ref().map(|l| l.event_room_bytes),
            direct_io: load.as_ref().map(|l| match &l.direct_io {
                DirectIo::Used => "used".to_owned(),
                DirectIo::Off => "off".to_owned(),
                DirectIo::Unavailable { reason } => format!("unavailable: {reason}"),
                DirectIo::NotApplicable => "not_applicable".to_owned(),
            }),
            io_engine: load.as_ref().map(|l| match &l.io_engine {
                IoEngineUsed::Pread => "pread".to_owned(),
                IoEngineUsed::Uring => "uring".to_owned(),
                IoEngineUsed::UringUnavailable { reason } => format!("unavailable: {reason}"),
                IoEngineUsed::NotApplicable => "not_applicable".to_owned(),
            }),
            turns: Some(run.turns),
            prompt_tokens: prefill.as_ref().map(|p| p.prompt_tokens),
            prefill_ubatches: prefill.as_ref().map(|p| p.ubatches),
            prefill_ns: prefill.as_ref().map(|p| p.cost.wall_ns),
            prefill_io_wait_ns: prefill.as_ref().map(|p| p.cost.io_wait_ns),
            prefill_io_active_ns: prefill.as_ref().map(|p| p.cost.io_active_ns),
            prefill_expert_read_bytes: prefill.as_ref().map(|p| p.cost.expert_read_bytes),
            prefill_hits: prefill.as_ref().map(|p| p.cost.hits),
            prefill_misses: prefill.as_ref().map(|p| p.cost.misses),
            time_to_first_token_ns: prefill.as_ref().map(|p| p.time_to_first_token_ns),
            outcome: end.as_ref().map(|e| match e.outcome {
                Outcome::Complete => "complete".to_owned(),
                Outcome::Interrupted { .. } => "interrupted".to_owned(),
                Outcome::Failed { .. } => "failed".to_owned(),
            }),
            outcome_message: end.as_ref().and_then(|e| match &e.outcome {
                Outcome::Complete => None,
                Outcome::Interrupted { signal } => Some(format!("stopped by {signal}")),
                Outcome::Failed { message } => Some(message.clone()),
            }),
            tokens: count(tokens.len()),
            decode_ns: tokens.iter().map(|t| t.wall_ns).sum(),
            cache_resizes: Some(count(tables.budgets.len())),
            peak_rss_bytes: end.as_ref().map(|e| e.peak_rss_bytes),
            peak_cache_bytes: end.as_ref().map(|e| e.peak_cache_bytes),
            peak_event_bytes: end.as_ref().map(|e| e.peak_event_bytes),
            text: end.as_ref().map(|e| e.text.clone()),
            logits_sha256: end.as_ref().and_then(|e| e.logits_sha256.clone()),
            truncated_bytes: run.truncated_bytes,
            config_json: json(serde_json::to_string(config)),
            model_shape_json: json(serde_json::to_string(model)),
        };
        row.only_measured()
    }

    /// Nulls in place of what the mode does not measure.
    pub(in crate::data) fn only_measured(mut self) -> Self {
        if self.mode != Mode::Stream.as_str() {
            self.preloaded_bytes = None;
            self.preload_ns = None;
            self.overlap = None;
            self.cache_policy = None;
            self.prefetch_layers = None;
            self.predict_experts = None;
            self.dense_weights = None;
            self.io_ceiling_mib_s = None;
            self.cache_resizes = None;
            self.prefill_io_wait_ns = None;
            self.prefill_io_active_ns = None;
            self.prefill_expert_read_bytes = None;
            self.prefill_hits = None;
            self.prefill_misses = None;
        }
        if self.mode == Mode::Mmap.as_str() {
            self.dense_read_ns = None;
            self.dense_read_bytes = None;
            self.load_expert_read_bytes = None;
        }
        self
    }

    /// How far the run got, as the row tells it: of two rows of one run the greater holds more.
    pub(in crate::data) fn progress(&self) -> impl Ord + use<> {
        let Self { outcome, tokens, prefill_ns, load_ns, .. } = self;
        (outcome.is_some(), *tokens, prefill_ns.is_some(), load_ns.is_some())
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
