//! What the engine measures. Every record is a value with units in its field names; [`crate::codec`]
//! puts them on disk, one frame a record, in the order in which they happened.

mod memory;
mod published;

use serde::{Deserialize, Serialize};

use crate::config::RunConfig;

pub use memory::MemoryState;
pub use published::Published;

/// One frame of a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// The first frame: what runs, on what. Boxed because it is far larger than the others.
    Start(Box<RunStart>),
    /// The model is loaded.
    Load(LoadRecord),
    /// A request begins; what follows up to the next one belongs to it.
    Turn(TurnRecord),
    /// Which experts one layer used for one micro-batch.
    Route(RouteRecord),
    /// One read (only when reads are recorded).
    Read(ReadRecord),
    /// Where the graph's time went (only when that is recorded).
    Compute(ComputeRecord),
    /// The cache's budget was changed while the run went on.
    Budget(BudgetRecord),
    /// The prompt is computed.
    Prefill(PrefillRecord),
    /// One generated token.
    Token(TokenRecord),
    /// The last frame of a run that came to its end, in success or failure.
    End(Box<RunEnd>),
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunStart {
    /// Differs between any two runs.
    pub run_id: String,
    /// Start of the process, milliseconds since the Unix epoch.
    pub started_unix_ms: u64,
    /// Version of the engine.
    pub engine_version: String,
    /// Version of the llama.cpp bindings it was linked with.
    pub llama_version: String,
    /// The configuration with every default resolved (threads, `n_expert_used`).
    pub config: RunConfig,
    /// The model's shape.
    pub model: ModelShape,
}

/// A model's shape, as far as routing and storage go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelShape {
    /// `general.architecture`.
    pub arch: String,
    /// Transformer layers, dense ones included.
    pub n_layer: u32,
    /// Experts per MoE layer.
    pub n_expert: u32,
    /// Experts per token in this run (top-k).
    pub n_expert_used: u32,
    /// All files of the model together.
    pub file_bytes: u64,
    /// Bytes outside the routed experts' weights.
    pub dense_bytes: u64,
    /// One entry for each MoE layer, in order.
    pub layers: Vec<LayerShape>,
}

/// One MoE layer's storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerShape {
    /// Index of the layer in the model.
    pub layer: u32,
    /// Bytes of one expert: its slices of all routed weight tensors of this layer.
    pub expert_bytes: u64,
}

impl ModelShape {
    /// Bytes of the whole expert set.
    #[must_use]
    pub fn expert_set_bytes(&self) -> u64 {
        self.layers.iter().map(|l| l.expert_bytes * u64::from(self.n_expert)).sum()
    }

    /// Bytes that one token touches when nothing is shared: the working set of one decode step.
    #[must_use]
    pub fn token_demand_bytes(&self) -> u64 {
        self.layers.iter().map(|l| l.expert_bytes * u64::from(self.n_expert_used)).sum()
    }
}

/// What loading cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadRecord {
    /// From the start of the process to a context that is ready to compute.
    pub load_ns: u64,
    /// Part of `load_ns` spent in reads of dense weights (0 in `mmap` mode, which maps them).
    pub dense_read_ns: u64,
    /// Bytes of dense weights read (0 in `mmap` mode).
    pub dense_read_bytes: u64,
    /// Expert bytes read while loading; 0 in `stream` mode, measured, not assumed.
    pub expert_read_bytes: u64,
    /// Memory for experts that are kept between tokens.
    pub cache_budget_bytes: u64,
    /// Memory for the experts being used now, in addition to the budget.
    pub event_room_bytes: u64,
    /// How experts are read.
    pub direct_io: DirectIo,
    /// What hands the reads to the kernel.
    pub io_engine: IoEngineUsed,
    /// Resident memory of the process when loading is done.
    pub rss_bytes: u64,
    /// Expert bytes that a warm profile had read into the cache.
    pub preloaded_bytes: u64,
    /// Part of `load_ns` that this took.
    pub preload_ns: u64,
}

/// Whether reads bypass the page cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DirectIo {
    /// O_DIRECT reads are in use.
    Used,
    /// Buffered reads, because they were asked for.
    Off,
    /// Buffered reads although direct ones were asked for.
    Unavailable {
        /// Why.
        reason: String,
    },
    /// The mode reads no experts itself (`mmap`, `resident`).
    NotApplicable,
}

/// What hands reads to the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum IoEngineUsed {
    /// `pread` on as many threads as there are lanes.
    Pread,
    /// io_uring.
    Uring,
    /// `pread` although io_uring was asked for.
    UringUnavailable {
        /// Why.
        reason: String,
    },
    /// The mode reads no experts itself (`mmap`, `resident`).
    NotApplicable,
}

impl IoEngineUsed {
    /// Its name in files: `pread`, `uring` or `none`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Pread | Self::UringUnavailable { .. } => "pread",
            Self::Uring => "uring",
            Self::NotApplicable => "none",
        }
    }
}

/// One request of a run. A one-shot run has one turn, without this record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// Turn of the session, from 0.
    pub turn: u32,
    /// The request's own name.
    pub id: String,
    /// Tokens of the whole text so far, this request's prompt included.
    pub prompt_tokens: u32,
    /// Tokens at its start whose state was kept from earlier turns.
    pub reused_tokens: u32,
    /// Tokens to generate at most.
    pub n_predict: u32,
}

/// Why something was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReadPurpose {
    /// A layer needed the expert.
    Demand,
    /// The previous token used it in a coming layer.
    Prefetch,
    /// The next layer's router named it when it was run on this layer's input.
    Predict,
    /// A warm profile named it.
    Warm,
}

/// One read of one expert's slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadRecord {
    /// Micro-batch that was running when the read was asked for.
    pub ubatch: u32,
    /// Index of the slice's layer in the model.
    pub layer: u32,
    /// Expert.
    pub expert: u16,
    /// Which of the layer's expert tensors, in the order in which the graph uses them.
    pub projection: u8,
    /// Lane that read it (io_uring: the slot of the ring).
    pub lane: u8,
    /// Why.
    pub purpose: ReadPurpose,
    /// Bytes of the slice.
    pub wanted_bytes: u64,
    /// Bytes transferred, alignment included.
    pub read_bytes: u64,
    /// When the read was asked for, since the start of the process.
    pub queued_ns: u64,
    /// How long it waited for a lane.
    pub wait_ns: u64,
    /// How long the lane took.
    pub service_ns: u64,
}

/// A stretch of computation: one node of the graph, or one part of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputeRecord {
    /// Micro-batch within the run.
    pub ubatch: u32,
    /// Index of the layer in the model; `None` for what belongs to none.
    pub layer: Option<u32>,
    /// The node's operation, or the part: `dense` (attention and all else), `experts` (their products),
    /// `stall` (products waited for reads), `fetch` (looking up, choosing, issuing).
    pub part: String,
    /// The node's name; empty for parts.
    pub node: String,
    /// How long.
    pub ns: u64,
}

/// A change of the cache's budget between two tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetRecord {
    /// Decode step after which it happened; 0 = before the first.
    pub step: u32,
    /// Budget before.
    pub from_bytes: u64,
    /// Budget after.
    pub to_bytes: u64,
    /// Memory that the system (or the cgroup) had left.
    pub available_bytes: u64,
    /// Experts that had to leave.
    pub evicted: u64,
}

/// Which part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// The prompt.
    Prefill,
    /// Generated tokens.
    Decode,
}

/// How an expert was found when its layer wanted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Residency {
    /// Read from storage for this event.
    Miss,
    /// In the cache.
    Hit,
    /// In the cache because of a speculative read that nobody had used yet.
    PrefetchHit,
}

/// One event: all experts that one layer uses for one micro-batch.
///
/// Replaying the events in file order, each as one batch, repeats the engine's cache decisions.
/// Per-pair vectors (`experts`, `weights`) have `positions.len() * top_k` entries, token-major, the
/// router's order within a token. `distinct`, `residency` and `read_bytes` run in parallel: one entry
/// for each distinct expert, the resident ones first, each group in order of first use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteRecord {
    /// Turn of a session, from 0.
    pub turn: u32,
    /// Micro-batch within the run, from 0; all layers of one micro-batch share the number.
    pub ubatch: u32,
    /// Part of the run.
    pub phase: Phase,
    /// Index of the layer in the model.
    pub layer: u32,
    /// Experts per token.
    pub top_k: u32,
    /// Absolute position of each token. The last layer holds only the tokens whose output is wanted.
    pub positions: Vec<u32>,
    /// Expert of each (token, slot).
    pub experts: Vec<u16>,
    /// Router weight of each (token, slot), as used to mix the experts' outputs; NaN = unknown.
    pub weights: Vec<f32>,
    /// Distinct experts.
    pub distinct: Vec<u16>,
    /// How each distinct expert was found (empty in modes without a cache of ours).
    pub residency: Vec<Residency>,
    /// Expert bytes that this event had to fetch for each distinct expert (0 for a hit).
    pub read_bytes: Vec<u64>,
    /// The router's best experts of every token, chosen or not, best first: `trace_scores` for each token;
    /// empty when they are not recorded.
    pub scored: Vec<u16>,
    /// The router's score of each of them: what the model weighs them by.
    pub scores: Vec<f32>,
}

/// Costs of a stretch of work: one token, or the whole prefill. Terms are measured where they happen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The whole stretch, sampling included.
    pub wall_ns: u64,
    /// The graph was blocked on expert reads. When reads overlap with computation this is the stall: the
    /// time in which a compute thread had nothing to compute, averaged over the threads.
    pub io_wait_ns: u64,
    /// The graph computed: the sum of the stretches between our operations inside it. In `mmap` mode
    /// page faults are in here, since the kernel serves them there.
    pub compute_ns: u64,
    /// Cache look-ups, admissions, evictions and the slots' book-keeping inside the graph.
    pub mgmt_ns: u64,
    /// Summed busy time of all read lanes; more than `io_wait_ns` when several lanes work at once.
    pub lane_busy_ns: u64,
    /// At least one read was outstanding. `device_read_bytes` over this is the rate that reads reached.
    pub io_active_ns: u64,
    /// Residual: `wall_ns` less I/O wait, compute and management (sampling, graph set-up, telemetry).
    pub other_ns: u64,
    /// Expert bytes wanted from storage by the layers that needed them.
    pub expert_read_bytes: u64,
    /// Bytes that the reads transferred, alignment included.
    pub device_read_bytes: u64,
    /// Read operations issued.
    pub reads: u64,
    /// Distinct experts of an event found in the cache.
    pub hits: u64,
    /// Distinct experts of an event that were read.
    pub misses: u64,
    /// Experts read ahead of need (prefetched or predicted).
    pub speculated: u64,
    /// Bytes of their slices.
    pub speculated_bytes: u64,
    /// Of `hits`, those that were there because they had been read ahead.
    pub speculated_hits: u64,
    /// Experts read ahead that left the cache unused.
    pub speculated_wasted: u64,
    /// Major page faults of the process.
    pub major_faults: u64,
    /// CPU time of the process, all threads.
    pub cpu_ns: u64,
}

impl std::ops::AddAssign<&Self> for Cost {
    fn add_assign(&mut self, other: &Self) {
        // Taken apart so that a term added to the type cannot be forgotten here.
        let Self {
            wall_ns,
            io_wait_ns,
            compute_ns,
            mgmt_ns,
            lane_busy_ns,
            io_active_ns,
            other_ns,
            expert_read_bytes,
            device_read_bytes,
            reads,
            hits,
            misses,
            speculated,
            speculated_bytes,
            speculated_hits,
            speculated_wasted,
            major_faults,
            cpu_ns,
        } = other;
        self.wall_ns += wall_ns;
        self.io_wait_ns += io_wait_ns;
        self.compute_ns += compute_ns;
        self.mgmt_ns += mgmt_ns;
        self.lane_busy_ns += lane_busy_ns;
        self.io_active_ns += io_active_ns;
        self.other_ns += other_ns;
        self.expert_read_bytes += expert_read_bytes;
        self.device_read_bytes += device_read_bytes;
        self.reads += reads;
        self.hits += hits;
        self.misses += misses;
        self.speculated += speculated;
        self.speculated_bytes += speculated_bytes;
        self.speculated_hits += speculated_hits;
        self.speculated_wasted += speculated_wasted;
        self.major_faults += major_faults;
        self.cpu_ns += cpu_ns;
    }
}

/// What the prompt cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrefillRecord {
    /// Prompt tokens that were computed; those of a prefix that was kept are not counted.
    pub prompt_tokens: u32,
    /// Micro-batches they were computed in.
    pub ubatches: u32,
    /// What it cost.
    pub cost: Cost,
    /// From the start of the process to the first sampled token, loading included; in a session from the start
    /// of the request's work.
    pub time_to_first_token_ns: u64,
}

/// One decode step: the token sampled last is computed and the next one sampled.
///
/// `n` generated tokens are `n` steps: the first token is sampled from the prefill and computed in step
/// 1; what step `n` samples is dropped, as in the published logs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Decode step, from 1.
    pub step: u32,
    /// Absolute position of the token that was computed.
    pub position: u32,
    /// The token that was computed.
    pub token: i32,
    /// What the step cost.
    pub cost: Cost,
    /// Hits over look-ups since the start of the run, prefill included; NaN before the first look-up.
    pub cumulative_hit_rate: f64,
    /// Expert bytes held by the cache after the step.
    pub cache_resident_bytes: u64,
    /// The cache's budget after the step.
    pub cache_budget_bytes: u64,
    /// Resident memory of the process after the step.
    pub rss_bytes: u64,
    /// Where memory was after the step.
    pub memory: MemoryState,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// All tokens were generated, or the model ended its text.
    Complete,
    /// A signal asked the run to stop.
    Interrupted {
        /// The signal's name.
        signal: String,
    },
    /// The run could not go on.
    Failed {
        /// The one line that was also printed.
        message: String,
    },
}

/// Totals of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    /// How it ended.
    pub outcome: Outcome,
    /// Decode steps done.
    pub tokens: u32,
    /// Sum of the decode steps' wall time.
    pub decode_ns: u64,
    /// Highest resident memory of the process (VmHWM).
    pub peak_rss_bytes: u64,
    /// Highest number of expert bytes held between events; never above the budget.
    pub peak_cache_bytes: u64,
    /// Highest number of bytes by which an event went over what the cache held within its budget.
    pub peak_event_bytes: u64,
    /// The generated text, lossily decoded where tokens are not UTF-8.
    pub text: String,
    /// SHA-256 of all logits in order (hex), when the run hashed them.
    pub logits_sha256: Option<String>,
}
