//! The experts in memory: the cache's decisions carried out on frames and files.
//!
//! One event (all experts that a layer uses for one micro-batch) runs like this:
//!
//! 1. [`ExpertStore::begin`] asks the cache, frees what made room, and submits the reads of all misses
//!    when they all fit: budget and event room together. Slices are read in the order in which the graph
//!    multiplies with them.
//! 2. Each of the layer's matrix multiplications asks for [`ExpertStore::next_round`] until there is
//!    none. When everything fits, the one round holds all experts of the event, those that were resident
//!    first. Otherwise the experts come in pieces: first those that are resident, then as many of the
//!    others as there is room for, each slice read once; the next piece is read while one is computed.
//!
//! With overlap a round's slices may still be on their way: [`ExpertStore::pending`] says which to wait for.
//! Without, `begin` and `next_round` return when everything is there.
//!
//! What stays behind the event is what the cache decided, so that the simulator, which runs the same
//! cache, counts the same hits, misses and bytes.

mod ahead;
mod frames;
mod resize;
mod rounds;
mod warm;

use std::sync::Arc;
use std::time::Instant;

use bmoe_cache::{Cache, Key, PolicyKind};
use bmoe_trace::record::{ReadRecord, Residency};

use self::frames::{Frames, Slice};
use self::rounds::{CurrentEvent, Round};
use super::arena::Arena;
use super::lanes::Lanes;
use super::layout::ExpertLayout;
use super::memory::MemoryPlan;
use super::queue::{ReadError, SliceState};

/// What the store did since the numbers were last taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Thread 0 was blocked on reads.
    pub io_wait_ns: u64,
    /// Everything else that the store did.
    pub mgmt_ns: u64,
    /// Summed busy time of the lanes.
    pub lane_busy_ns: u64,
    /// Time during which reads were outstanding.
    pub io_active_ns: u64,
    /// Bytes of the slices read because a layer needed them.
    pub expert_read_bytes: u64,
    /// Bytes transferred.
    pub device_read_bytes: u64,
    /// Read operations.
    pub reads: u64,
    /// Distinct experts found.
    pub hits: u64,
    /// Distinct experts read.
    pub misses: u64,
    /// Experts read before a layer asked for them.
    pub speculated: u64,
    /// Bytes of their slices.
    pub speculated_bytes: u64,
    /// Hits on them.
    pub speculated_hits: u64,
    /// Those that left unused.
    pub speculated_wasted: u64,
}

/// How a store works.
#[derive(Debug, Clone, Copy)]
pub struct StoreOptions {
    /// Which experts stay.
    pub policy: PolicyKind,
    /// Rounds are handed out while their reads run.
    pub overlap: bool,
    /// Overwrite freed memory, so that a stale read can't pass by luck (for tests).
    pub poison: bool,
}

/// Seed of policies that choose at random: runs repeat.
const POLICY_SEED: u64 = 0;

/// Experts in memory and the way to get more of them.
#[derive(Debug)]
pub struct ExpertStore {
    cache: Cache,
    frames: Frames,
    plan: MemoryPlan,
    /// Projections of each layer in the order in which the graph multiplies with them.
    order: Vec<Vec<usize>>,
    event: CurrentEvent,
    /// What the last token used, by layer; kept by [`Self::prefetch_after`].
    last_token: Vec<Vec<u16>>,
    stats: StoreStats,
    /// Wasted experts up to when the numbers were last taken.
    wasted_before: u64,
    peak_cache_bytes: u64,
    overlap: bool,
}

impl ExpertStore {
    /// Number of slices, for [`LaneOptions`](super::lanes::LaneOptions).
    #[must_use]
    pub fn slices(layout: &ExpertLayout) -> usize {
        frames::slice_count(layout)
    }

    /// An empty store. The arena must have been made with the plan's total.
    #[must_use]
    pub fn new(
        layout: ExpertLayout,
        plan: MemoryPlan,
        lanes: Arc<Lanes>,
        arena: Arena,
        options: StoreOptions,
    ) -> Self {
        let sizes = layout.entry_sizes();
        Self {
            cache: Cache::new(
                sizes.clone(),
                plan.budget_bytes,
                options.policy.build(&sizes, POLICY_SEED),
            ),
            order: layout.layers.iter().map(|l| (0..l.tensors.len()).collect()).collect(),
            frames: Frames::new(layout, plan.budget_bytes, lanes, arena, options.poison),
            plan,
            event: CurrentEvent::default(),
            last_token: Vec::new(),
            stats: StoreStats::default(),
            wasted_before: 0,
            peak_cache_bytes: 0,
            overlap: options.overlap,
        }
    }

    /// Says in which order the graph multiplies with a layer's projections: reads follow it.
    ///
    /// # Panics
    /// If a projection is missing or named twice.
    pub fn set_order(&mut self, layer: usize, order: &[usize]) {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..self.frames.tensors(layer)), "{order:?}");
        self.order[layer] = order.to_vec();
    }

    /// Starts the event of one layer and of micro-batch `ubatch` of the run: `experts` token-major in the router's order,
    /// duplicates included. The event before it must be over.
    ///
    /// # Errors
    /// A read failed. The store must not be used any more.
    pub fn begin(&mut self, ubatch: u32, layer: usize, experts: &[u16]) -> Result<(), ReadError> {
        let start = Instant::now();
        self.frames.ubatch = ubatch;
        self.end_event();

        let outcome = self.cache.event(layer, experts);
        self.stats.hits += outcome.hits.len() as u64;
        self.stats.misses += outcome.misses.len() as u64;
        self.stats.speculated_hits += outcome.prefetch_hits.len() as u64;
        let event = &mut self.event;
        event.layer = layer;
        event.hits = outcome.hits.len();
        event.early.clone_from(&outcome.prefetch_hits);
        event.experts.clear();
        event.experts.extend(outcome.hits.iter().chain(&outcome.misses));
        let evicted = outcome.evicted.clone();
        let sizes = self.cache.sizes();
        event.stays.clear();
        event.stays.extend(event.experts.iter().map(|e| self.cache.contains(sizes.key(layer, *e))));
        event.next.clear();
        event.next.resize(self.frames.tensors(layer), 0);
        self.peak_cache_bytes = self.peak_cache_bytes.max(self.cache.resident_bytes());

        self.free_entries(&evicted);
        self.promote_hits();
        self.event.whole = self.reserve_all();
        self.submit();
        self.event.round_bytes = self.frames.free_bytes() / 2;
        let mut result = Ok(());
        if !self.overlap && self.event.whole {
            for projection in 0..self.event.next.len() {
                let round = Round { projection, from: 0, to: self.event.experts.len() };
                result = result.and(self.complete(round));
            }
        }
        self.count_time(start);
        result
    }

    /// The bytes of a slice that a round handed out.
    ///
    /// # Panics
    /// If the slice was not handed out.
    #[must_use]
    pub fn slice(&self, expert: u16, projection: usize) -> *const u8 {
        self.frames.address(Slice { layer: self.event.layer, expert, projection })
    }

    /// Bytes of one expert's slice of the current event's layer.
    #[must_use]
    pub fn slice_bytes(&self, projection: usize) -> u64 {
        self.layout().layers[self.event.layer].tensors[projection].slice_bytes
    }

    /// The number of a slice whose read has to be waited for; `None` when it is in memory.
    #[must_use]
    pub fn pending(&self, expert: u16, projection: usize) -> Option<u32> {
        let index = self.frames.index(Slice { layer: self.event.layer, expert, projection }) as u32;
        (self.frames.lanes().queue().state(index) != SliceState::Ready).then_some(index)
    }

    /// Distinct experts of the current event, resident ones first, and how each was found.
    pub fn event_experts(&self) -> impl Iterator<Item = (u16, Residency)> {
        let event = &self.event;
        event.experts.iter().enumerate().map(|(i, &expert)| {
            let residency = if i >= event.hits {
                Residency::Miss
            } else if event.early.contains(&expert) {
                Residency::PrefetchHit
            } else {
                Residency::Hit
            };
            (expert, residency)
        })
    }

    /// Bytes of one expert of the current event's layer.
    #[must_use]
    pub fn event_expert_bytes(&self) -> u64 {
        self.layout().layers[self.event.layer].expert_bytes()
    }

    /// The numbers since the last call.
    pub fn take_stats(&mut self) -> StoreStats {
        let reads = self.frames.lanes().queue().take_stats();
        let wasted = self.cache.counts().prefetch_wasted;
        self.stats.speculated_wasted = wasted - std::mem::replace(&mut self.wasted_before, wasted);
        StoreStats {
            lane_busy_ns: reads.lane_busy_ns,
            io_active_ns: reads.active_ns,
            device_read_bytes: reads.device_bytes,
            reads: reads.reads,
            ..std::mem::take(&mut self.stats)
        }
    }

    /// The reads that were finished since the last call, when lanes record them; times count from `origin`.
    pub fn take_reads(&mut self, origin: Instant) -> Vec<ReadRecord> {
        self.frames.take_reads(origin)
    }

    /// Totals of the cache.
    #[must_use]
    pub fn counts(&self) -> bmoe_cache::Counts {
        self.cache.counts()
    }

    /// Bytes that the cache holds.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.cache.resident_bytes()
    }

    /// Highest [`Self::resident_bytes`].
    #[must_use]
    pub fn peak_cache_bytes(&self) -> u64 {
        self.peak_cache_bytes
    }

    /// Highest number of slice bytes in memory beyond the budget.
    #[must_use]
    pub fn peak_event_bytes(&self) -> u64 {
        self.frames.peak_event_bytes
    }

    /// The lanes, for compute threads that wait for reads.
    #[must_use]
    pub fn lanes(&self) -> &Arc<Lanes> {
        self.frames.lanes()
    }

    /// The memory that was declared.
    #[must_use]
    pub fn plan(&self) -> MemoryPlan {
        self.plan
    }

    /// The model's layout.
    #[must_use]
    pub fn layout(&self) -> &ExpertLayout {
        self.frames.layout()
    }

    /// Whether rounds are handed out while their reads run.
    #[must_use]
    pub fn overlaps(&self) -> bool {
        self.overlap
    }

    /// Blocked time goes to I/O, the rest of the time since `start` to management.
    fn count_time(&mut self, start: Instant) {
        let blocked_ns = std::mem::take(&mut self.frames.blocked_ns);
        self.stats.io_wait_ns += blocked_ns;
        self.stats.mgmt_ns += (start.elapsed().as_nanos() as u64).saturating_sub(blocked_ns);
    }

    fn submit(&mut self) {
        self.stats.expert_read_bytes += self.frames.submit();
    }

    fn free_entries(&mut self, entries: &[Key]) {
        for &key in entries {
            let (layer, expert) = (self.cache.sizes().layer(key), self.cache.sizes().expert(key));
            for projection in 0..self.frames.tensors(layer) {
                self.frames.free(Slice { layer, expert, projection });
            }
        }
    }
}
