//! Tables of single events: `routes`, `scores`, `reads`, `compute`, `budgets`.

use bmoe_trace::record::{BudgetRecord, ComputeRecord, Phase, ReadPurpose, ReadRecord, Residency};

use crate::data::column::row;

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

row! {
    /// One of the router's best experts for one token in one layer, chosen or not.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ScoreRow {
        /// Event of the run, as in `routes`.
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
        /// Place among the token's scores, from 0, the best.
        pub rank: u32,
        /// Expert.
        pub expert: u32,
        /// What the model weighs it by.
        pub score: f32,
    }
}

row! {
    /// One read of one expert's slice.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ReadRow {
        /// Micro-batch that was running when the read was asked for.
        pub ubatch: u32,
        /// Layer of the model.
        pub layer: u32,
        /// Expert.
        pub expert: u32,
        /// Which of the layer's expert tensors, in the order in which the graph uses them.
        pub projection: u32,
        /// Lane that read it.
        pub lane: u32,
        /// `demand`, `prefetch`, `predict` or `warm`.
        pub purpose: ReadPurpose,
        /// Bytes of the slice.
        pub wanted_bytes: u64,
        /// Bytes transferred, alignment included.
        pub read_bytes: u64,
        /// When it was asked for, since the start of the process.
        pub queued_ns: u64,
        /// How long it waited for a lane.
        pub wait_ns: u64,
        /// How long the lane took.
        pub service_ns: u64,
    }
}

row! {
    /// A stretch of computation.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ComputeRow {
        /// Micro-batch of the run.
        pub ubatch: u32,
        /// Layer of the model; null for what belongs to none.
        pub layer: Option<u32>,
        /// The node's operation, or the part of the layer: `dense`, `experts`, `stall`, `fetch`.
        pub part: String,
        /// The node's name; empty for parts.
        pub node: String,
        /// How long.
        pub ns: u64,
    }
}

row! {
    /// A change of the cache's budget.
    #[derive(Debug, Clone, PartialEq)]
    pub struct BudgetRow {
        /// Turn of a session, from 0.
        pub turn: u32,
        /// Decode step after which it happened; 0 = before the first.
        pub step: u32,
        /// Budget before.
        pub from_bytes: u64,
        /// Budget after.
        pub to_bytes: u64,
        /// Memory that the system, or the control group, had left.
        pub available_bytes: u64,
        /// Experts that had to leave.
        pub evicted: u64,
    }
}

impl RouteRow {
    /// Nulls in place of what is not measured without a cache of ours.
    pub(in crate::data) fn only_measured(self) -> Self {
        Self { read_bytes: self.read_bytes.filter(|_| self.residency.is_some()), ..self }
    }
}

impl From<&ReadRecord> for ReadRow {
    fn from(read: &ReadRecord) -> Self {
        let ReadRecord {
            ubatch,
            layer,
            expert,
            projection,
            lane,
            purpose,
            wanted_bytes,
            read_bytes,
            queued_ns,
            wait_ns,
            service_ns,
        } = *read;
        Self {
            ubatch,
            layer,
            expert: u32::from(expert),
            projection: u32::from(projection),
            lane: u32::from(lane),
            purpose,
            wanted_bytes,
            read_bytes,
            queued_ns,
            wait_ns,
            service_ns,
        }
    }
}

impl From<ComputeRecord> for ComputeRow {
    fn from(record: ComputeRecord) -> Self {
        let ComputeRecord { ubatch, layer, part, node, ns } = record;
        Self { ubatch, layer, part, node, ns }
    }
}

impl BudgetRow {
    pub(in crate::data) fn new(record: &BudgetRecord, turn: u32) -> Self {
        let BudgetRecord { step, from_bytes, to_bytes, available_bytes, evicted } = *record;
        Self { turn, step, from_bytes, to_bytes, available_bytes, evicted }
    }
}
