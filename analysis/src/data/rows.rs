//! The columns of the Parquet files. Field names are column names; a unit is part of the name.
//!
//! Only `stream` mode reads experts itself. The records of the other modes have zeros where nothing was
//! measured; the rows have nulls there.

use bmoe_trace::Mode;
use bmoe_trace::record::{Cost, DirectIo, Outcome, Phase, Residency, TokenRecord};

use super::column::row;
use super::trace::Run;
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
        /// Cache budget asked for, MiB.
        pub cache_mib: u64,
        /// Read lanes.
        pub io_threads: u32,
        /// Tokens asked for.
        pub n_predict: u32,
        /// Process start to a usable context.
        pub load_ns: Option<u64>,
        /// Part of `load_ns` spent reading dense weights; null in `mmap` mode, as the next two.
        pub dense_read_ns: Option<u64>,
        /// Dense bytes read while loading.
        pub dense_read_bytes: Option<u64>,
        /// Expert bytes read while loading.
        pub load_expert_read_bytes: Option<u64>,
        /// Cache budget in force.
        pub cache_budget_bytes: Option<u64>,
        /// Memory for experts in use, besides the budget.
        pub event_room_bytes: Option<u64>,
        /// `used`, `off`, `not_applicable`, or `unavailable: <reason>`.
        pub direct_io: Option<String>,
        /// Prompt tokens.
        pub prompt_tokens: Option<u32>,
        /// Micro-batches of the prompt.
        pub prefill_ubatches: Option<u32>,
        /// Wall time of the prompt.
        pub prefill_ns: Option<u64>,
        /// Blocked on expert reads during the prompt; null outside `stream` mode, as the next three.
        pub prefill_io_wait_ns: Option<u64>,
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

row! {
    /// One decode step.
    #[derive(Debug, Clone, PartialEq)]
    pub struct TokenRow {
        /// Decode step, from 1.
        pub step: u32,
        /// Absolute position of the token computed.
        pub position: u32,
        /// The token that was computed.
        pub token: i32,
        /// The whole step.
        pub wall_ns: u64,
        /// Blocked on expert reads; null outside `stream` mode.
        pub io_wait_ns: Option<u64>,
        /// Computing.
        pub compute_ns: u64,
        /// Cache management; null outside `stream` mode.
        pub mgmt_ns: Option<u64>,
        /// Summed busy time of the read lanes; null outside `stream` mode.
        pub lane_busy_ns: Option<u64>,
        /// Residual.
        pub other_ns: u64,
        /// Expert bytes wanted from storage; null outside `stream` mode.
        pub expert_read_bytes: Option<u64>,
        /// Bytes transferred, alignment included; null outside `stream` mode.
        pub device_read_bytes: Option<u64>,
        /// Read operations; null outside `stream` mode.
        pub reads: Option<u64>,
        /// Distinct experts found in the cache; null outside `stream` mode.
        pub hits: Option<u64>,
        /// Distinct experts read; null outside `stream` mode.
        pub misses: Option<u64>,
        /// Major page faults of the process.
        pub major_faults: u64,
        /// CPU time of all threads.
        pub cpu_ns: u64,
        /// Hits over look-ups since the start of the run, 0 to 1; null before the first look-up.
        pub cumulative_hit_rate: Option<f64>,
        /// Expert bytes in the cache after the step.
        pub cache_resident_bytes: u64,
        /// Resident memory after the step.
        pub rss_bytes: u64,
    }
}

row! {
    /// One expert of one token in one layer. Rows stand in the order of the engine's cache decisions.
    #[derive(Debug, Clone, PartialEq)]
    pub struct RouteRow {
        /// Event of the run, from 0: one layer of one micro-batch, looked up and admitted as one.
        pub event: u32,
        /// Turn of a session, from 0.
        pub turn: u32,
        /// Micro-batch of the run, from 0.
        pub ubatch: u32,
        /// `prefill` or `decode`.
        pub phase: Phase,
        /// Layer of the model.
        pub layer: u32,
        /// Absolute position of the token.
        pub position: u32,
        /// The router's rank of the expert, from 0.
        pub slot: u32,
        /// Expert.
        pub expert: u32,
        /// Router weight; null = unknown.
        pub weight: Option<f32>,
        /// `miss`, `hit` or `prefetch_hit`; null in modes without a cache of ours.
        pub residency: Option<Residency>,
        /// Expert bytes fetched, on the row of the event that first names the expert; 0 elsewhere, null
        /// where `residency` is.
        pub read_bytes: Option<u64>,
    }
}

impl TokenRow {
    pub(super) fn new(record: &TokenRecord, mode: &str) -> Self {
        let Cost {
            wall_ns,
            io_wait_ns,
            compute_ns,
            mgmt_ns,
            lane_busy_ns,
            other_ns,
            expert_read_bytes,
            device_read_bytes,
            reads,
            hits,
            misses,
            major_faults,
            cpu_ns,
        } = record.cost;
        let row = Self {
            step: record.step,
            position: record.position,
            token: record.token,
            wall_ns,
            io_wait_ns: Some(io_wait_ns),
            compute_ns,
            mgmt_ns: Some(mgmt_ns),
            lane_busy_ns: Some(lane_busy_ns),
            other_ns,
            expert_read_bytes: Some(expert_read_bytes),
            device_read_bytes: Some(device_read_bytes),
            reads: Some(reads),
            hits: Some(hits),
            misses: Some(misses),
            major_faults,
            cpu_ns,
            cumulative_hit_rate: Some(record.cumulative_hit_rate).filter(|r| !r.is_nan()),
            cache_resident_bytes: record.cache_resident_bytes,
            rss_bytes: record.rss_bytes,
        };
        row.only_measured(mode)
    }

    /// Nulls in place of what the mode does not measure.
    pub(super) fn only_measured(self, mode: &str) -> Self {
        if mode == Mode::Stream.as_str() {
            return self;
        }
        Self {
            io_wait_ns: None,
            mgmt_ns: None,
            lane_busy_ns: None,
            expert_read_bytes: None,
            device_read_bytes: None,
            reads: None,
            hits: None,
            misses: None,
            ..self
        }
    }
}

impl RouteRow {
    /// Nulls in place of what is not measured without a cache of ours.
    pub(super) fn only_measured(self) -> Self {
        Self { read_bytes: self.read_bytes.filter(|_| self.residency.is_some()), ..self }
    }
}

impl RunRow {
    /// The row of a run; `cell` is the journal's record of it.
    pub(super) fn new(run: &Run, cell: Option<&CellRecord>) -> Self {
        let Run { start, load, prefill, end, tokens, .. } = run;
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
            n_moe_layer: u32::try_from(model.layers.len()).unwrap_or(u32::MAX),
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
            cache_mib: config.cache_mib,
            io_threads: config.io_threads,
            n_predict: config.n_predict,
            load_ns: load.as_ref().map(|l| l.load_ns),
            dense_read_ns: load.as_ref().map(|l| l.dense_read_ns),
            dense_read_bytes: load.as_ref().map(|l| l.dense_read_bytes),
            load_expert_read_bytes: load.as_ref().map(|l| l.expert_read_bytes),
            cache_budget_bytes: load.as_ref().map(|l| l.cache_budget_bytes),
            event_room_bytes: load.as_ref().map(|l| l.event_room_bytes),
            direct_io: load.as_ref().map(|l| match &l.direct_io {
                DirectIo::Used => "used".to_owned(),
                DirectIo::Off => "off".to_owned(),
                DirectIo::Unavailable { reason } => format!("unavailable: {reason}"),
                DirectIo::NotApplicable => "not_applicable".to_owned(),
            }),
            prompt_tokens: prefill.as_ref().map(|p| p.prompt_tokens),
            prefill_ubatches: prefill.as_ref().map(|p| p.ubatches),
            prefill_ns: prefill.as_ref().map(|p| p.cost.wall_ns),
            prefill_io_wait_ns: prefill.as_ref().map(|p| p.cost.io_wait_ns),
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
            tokens: u32::try_from(tokens.len()).unwrap_or(u32::MAX),
            decode_ns: tokens.iter().map(|t| t.wall_ns).sum(),
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
    pub(super) fn only_measured(mut self) -> Self {
        if self.mode != Mode::Stream.as_str() {
            self.prefill_io_wait_ns = None;
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
    pub(super) fn progress(&self) -> impl Ord + use<> {
        let Self { outcome, tokens, prefill_ns, load_ns, .. } = self;
        (outcome.is_some(), *tokens, prefill_ns.is_some(), load_ns.is_some())
    }
}
