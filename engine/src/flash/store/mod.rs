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
mod warm;

use std::sync::Arc;
use std::time::Instant;

use bmoe_cache::{Cache, Key, PolicyKind};
use bmoe_trace::record::{ReadPurpose, ReadRecord, Residency};

use self::frames::{Frames, Slice};
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

/// Some of an event's experts for one projection: `experts[from..to]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Round {
    projection: usize,
    from: usize,
    to: usize,
}

/// The event that is running.
#[derive(Debug, Default)]
struct CurrentEvent {
    layer: usize,
    /// Distinct experts: resident ones first.
    experts: Vec<u16>,
    /// How many of them were resident.
    hits: usize,
    /// Those of the resident ones that had been read early and were not used before.
    early: Vec<u16>,
    /// Which of them stay behind the event (parallel to `experts`).
    stays: Vec<bool>,
    /// All slices have a frame.
    whole: bool,
    /// Next expert of each projection.
    next: Vec<usize>,
    /// The round handed out last.
    current: Option<Round>,
    /// A round whose reads were submitted before it is asked for.
    ahead: Option<Round>,
    /// Most bytes of a round, so that the next one fits beside it.
    round_bytes: u64,
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

    /// The next experts that a projection of the current event can be computed for; empty when all
    /// have been. Asking ends every round before: their frames may be reused.
    ///
    /// # Errors
    /// A read failed. The store must not be used any more.
    pub fn next_round(&mut self, projection: usize) -> Result<&[u16], ReadError> {
        let start = Instant::now();
        let all = self.event.experts.len();
        let mut round = Round { projection, from: self.event.next[projection], to: all };
        let mut result = Ok(());
        if !self.event.whole {
            self.end_round();
            if round.from == all {
                return Ok(&[]);
            }
            self.drop_other_ahead(projection);
            round.to = if round.from < self.event.hits {
                self.event.hits
            } else if let Some(ahead) = self.event.ahead.take() {
                ahead.to
            } else {
                let to = self.reserve_some(projection, round.from);
                assert!(to > round.from, "the event room holds at least one slice");
                to
            };
            self.event.current = Some(round);
            self.submit();
            if self.overlap {
                self.read_ahead(round);
            } else {
                result = self.complete(round);
            }
        }
        self.event.next[projection] = round.to;
        self.count_time(start);
        result.map(|()| &self.event.experts[round.from..round.to])
    }

    /// Gives up the running event: its graph was stopped somewhere, and another one may begin. An event that
    /// came in rounds leaves experts that the cache counts as resident without all of their slices; since
    /// such an event has emptied the cache of nearly everything else, all of it goes.
    pub fn abandon(&mut self) {
        let all = self.event.experts.len();
        let finished = self.event.next.iter().all(|next| *next == all);
        let whole = self.event.whole;
        self.end_event();
        if whole || finished {
            return;
        }
        let gone = self.cache.set_budget(0).to_vec();
        self.cache.set_budget(self.plan.budget_bytes);
        for key in gone {
            let (layer, expert) = (self.cache.sizes().layer(key), self.cache.sizes().expert(key));
            for projection in 0..self.frames.tensors(layer) {
                self.frames.free(Slice { layer, expert, projection });
            }
        }
    }

    /// Whether the round handed out last was the projection's last one.
    #[must_use]
    pub fn finished(&self, projection: usize) -> bool {
        self.event.next[projection] == self.event.experts.len()
    }

    /// The bytes of a slice that a round handed out.
    ///
    /// # Panics
    /// If the slice was not handed out.
    #[must_use]
    pub fn slice(&self, expert: u16, projection: usize) -> *const u8 {
        self.frames.address(Slice { layer: self.event.layer, expert, projection })
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

    /// Blocks until a round's slices are in memory.
    fn complete(&mut self, round: Round) -> Result<(), ReadError> {
        let Round { projection, from, to } = round;
        let layer = self.event.layer;
        let experts = &self.event.experts[from..to];
        self.frames.complete(experts.iter().map(|&expert| Slice { layer, expert, projection }))
    }

    fn free_entries(&mut self, entries: &[Key]) {
        for &key in entries {
            let (layer, expert) = (self.cache.sizes().layer(key), self.cache.sizes().expert(key));
            for projection in 0..self.frames.tensors(layer) {
                self.frames.free(Slice { layer, expert, projection });
            }
        }
    }

    /// Frees what the event leaves behind but the cache doesn't keep.
    fn end_event(&mut self) {
        let layer = self.event.layer;
        for i in 0..self.event.experts.len() {
            if !self.event.stays[i] {
                for projection in 0..self.event.next.len() {
                    self.frames.free(Slice { layer, expert: self.event.experts[i], projection });
                }
            }
        }
        self.event.experts.clear();
        self.event.stays.clear();
        self.event.current = None;
        self.event.ahead = None;
    }

    /// Frees what the last round leaves behind but the cache doesn't keep: its products are done.
    fn end_round(&mut self) {
        let Some(Round { projection, from, to }) = self.event.current.take() else { return };
        for i in from..to {
            if !self.event.stays[i] {
                let expert = self.event.experts[i];
                self.frames.free(Slice { layer: self.event.layer, expert, projection });
            }
        }
    }

    /// Reads of hits that speculation has not finished go before all other speculation.
    fn promote_hits(&mut self) {
        for i in 0..self.event.hits {
            for &projection in &self.order[self.event.layer] {
                let (layer, expert) = (self.event.layer, self.event.experts[i]);
                let slice = self.frames.index(Slice { layer, expert, projection }) as u32;
                let queue = self.frames.lanes().queue();
                if queue.state(slice) == SliceState::Pending {
                    queue.promote(slice);
                }
            }
        }
    }

    /// Reserves frames for all misses of the event, or for none.
    fn reserve_all(&mut self) -> bool {
        let layer = self.event.layer;
        for at in 0..self.order[layer].len() {
            let projection = self.order[layer][at];
            for i in self.event.hits..self.event.experts.len() {
                let slice = Slice { layer, expert: self.event.experts[i], projection };
                if !self.frames.reserve(slice, ReadPurpose::Demand) {
                    self.frames.give_up_batch();
                    return false;
                }
            }
        }
        true
    }

    /// Reserves frames for a projection's experts from `from` on: at least one, then as many as a round may
    /// have; returns where it stopped.
    fn reserve_some(&mut self, projection: usize, from: usize) -> usize {
        let layer = self.event.layer;
        let slice_bytes = self.layout().layers[layer].tensors[projection].slice_bytes;
        let mut to = from;
        let mut bytes = 0;
        while to < self.event.experts.len() && (to == from || bytes < self.event.round_bytes) {
            let slice = Slice { layer, expert: self.event.experts[to], projection };
            if !self.frames.reserve(slice, ReadPurpose::Demand) {
                break;
            }
            bytes += slice_bytes;
            to += 1;
        }
        to
    }

    /// Gives up what was read ahead for another projection than the graph now asks for.
    fn drop_other_ahead(&mut self, projection: usize) {
        if let Some(Round { projection, from, to }) =
            self.event.ahead.take_if(|a| a.projection != projection)
        {
            for i in from..to {
                let expert = self.event.experts[i];
                self.frames.free(Slice { layer: self.event.layer, expert, projection });
            }
        }
    }

    /// Submits the reads of the round behind `round`, as far as there is room beside it.
    fn read_ahead(&mut self, round: Round) {
        if self.event.ahead.is_some() {
            return;
        }
        let all = self.event.experts.len();
        let order = &self.order[self.event.layer];
        let at = order
            .iter()
            .position(|p| *p == round.projection)
            .expect("every projection has a place");
        let (projection, from) = if round.to < all {
            (round.projection, round.to)
        } else {
            match order.get(at + 1) {
                Some(&projection) => (projection, self.event.hits),
                None => return,
            }
        };
        let to = self.reserve_some(projection, from);
        if to > from {
            self.submit();
            self.event.ahead = Some(Round { projection, from, to });
        }
    }
}
