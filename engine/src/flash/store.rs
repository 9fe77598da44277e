//! The experts in memory: the cache's decisions carried out on frames and files.
//!
//! One event (all experts that a layer uses for one micro-batch) runs like this:
//!
//! 1. [`ExpertStore::begin`] asks the cache, frees what made room, and reads the misses when they all
//!    fit: budget and event room together.
//! 2. Each of the layer's matrix multiplications asks for [`ExpertStore::next_round`] until there is
//!    none. When everything fits, the one round holds all experts of the event. Otherwise the experts
//!    come in pieces: first those that are resident, then as many of the others as there is room for,
//!    each slice read once, when its multiplication needs it.
//!
//! What stays behind the event is what the cache decided, so that the simulator, which runs the same
//! cache, counts the same hits, misses and bytes.
#![expect(unsafe_code, reason = "hands frames of the arena to the read lanes")]

use std::sync::Arc;
use std::time::Instant;

use bmoe_cache::{Cache, Lru};

use super::arena::Arena;
use super::lanes::{Lanes, ReadError, SliceRead};
use super::layout::{ExpertLayout, WINDOW_ALIGN};
use super::memory::{MemoryPlan, frame_sizes};
use super::regions::{FrameId, Move, Regions};

/// What the store did since the numbers were last taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Blocked on reads.
    pub io_wait_ns: u64,
    /// Everything else that the store did.
    pub mgmt_ns: u64,
    /// Summed busy time of the lanes.
    pub lane_busy_ns: u64,
    /// Bytes of the slices read.
    pub expert_read_bytes: u64,
    /// Bytes transferred.
    pub device_read_bytes: u64,
    /// Read operations.
    pub reads: u64,
    /// Distinct experts found.
    pub hits: u64,
    /// Distinct experts read.
    pub misses: u64,
}

/// The event that is running.
#[derive(Debug, Default)]
struct CurrentEvent {
    layer: usize,
    /// Distinct experts: resident ones first.
    experts: Vec<u16>,
    /// How many of them were resident.
    hits: usize,
    /// Which of them stay behind the event (parallel to `experts`).
    stays: Vec<bool>,
    /// Everything is in memory.
    whole: bool,
    /// Next expert of each projection.
    next: Vec<usize>,
    /// First expert of the last round of each projection.
    round_start: Vec<usize>,
}

/// Experts in memory and the way to get more of them.
#[derive(Debug)]
pub struct ExpertStore {
    layout: ExpertLayout,
    cache: Cache<Lru>,
    /// No read is in flight between calls, so the lanes may outlive the arena.
    lanes: Arc<Lanes>,
    arena: Arena,
    regions: Regions,
    plan: MemoryPlan,
    /// Frame of (entry, projection).
    frames: Vec<Option<FrameId>>,
    projections: usize,
    event: CurrentEvent,
    batch: Vec<SliceRead>,
    moves: Vec<Move>,
    stats: StoreStats,
    live_slice_bytes: u64,
    peak_cache_bytes: u64,
    peak_event_bytes: u64,
    poison: bool,
}

impl ExpertStore {
    /// An empty store. The arena must have been made with the plan's total.
    #[must_use]
    pub fn new(
        layout: ExpertLayout,
        plan: MemoryPlan,
        lanes: Arc<Lanes>,
        arena: Arena,
        poison: bool,
    ) -> Self {
        let sizes = layout.entry_sizes();
        let projections = layout.layers.iter().map(|l| l.tensors.len()).max().unwrap_or(0);
        Self {
            frames: vec![None; sizes.entries() * projections],
            cache: Cache::new(sizes.clone(), plan.budget_bytes, Lru::new(sizes.entries())),
            regions: Regions::new(&frame_sizes(&layout), arena.bytes()),
            layout,
            lanes,
            arena,
            plan,
            projections,
            event: CurrentEvent::default(),
            batch: Vec::new(),
            moves: Vec::new(),
            stats: StoreStats::default(),
            live_slice_bytes: 0,
            peak_cache_bytes: 0,
            peak_event_bytes: 0,
            poison,
        }
    }

    /// Starts the event of one layer and micro-batch: `experts` token-major in the router's order,
    /// duplicates included. The event before it must be over.
    ///
    /// # Errors
    /// A read failed. The store must not be used any more.
    pub fn begin(&mut self, layer: usize, experts: &[u16]) -> Result<(), ReadError> {
        let start = Instant::now();
        let io_before = self.stats.io_wait_ns;
        self.end_event();

        let outcome = self.cache.event(layer, experts);
        self.stats.hits += outcome.hits.len() as u64;
        self.stats.misses += outcome.misses.len() as u64;
        let event = &mut self.event;
        event.layer = layer;
        event.hits = outcome.hits.len();
        event.experts.clear();
        event.experts.extend(outcome.hits.iter().chain(&outcome.misses));
        let evicted = outcome.evicted.clone();
        let sizes = self.cache.sizes();
        event.stays.clear();
        event.stays.extend(event.experts.iter().map(|e| self.cache.contains(sizes.key(layer, *e))));
        let tensors = self.layout.layers[layer].tensors.len();
        event.next = vec![0; tensors];
        event.round_start = vec![0; tensors];
        self.peak_cache_bytes = self.peak_cache_bytes.max(self.cache.resident_bytes());

        for key in evicted {
            let (layer, expert) = (self.cache.sizes().layer(key), self.cache.sizes().expert(key));
            for projection in 0..self.layout.layers[layer].tensors.len() {
                self.free(layer, expert, projection);
            }
        }
        self.event.whole = self.reserve_all();
        if self.event.whole {
            self.read_batch()?;
        }
        self.stats.mgmt_ns +=
            start.elapsed().as_nanos() as u64 - (self.stats.io_wait_ns - io_before);
        Ok(())
    }

    /// The next experts that a projection of the current event can be computed for; empty when all
    /// have been. Asking ends every round before: their frames may be reused.
    ///
    /// # Errors
    /// A read failed. The store must not be used any more.
    pub fn next_round(&mut self, projection: usize) -> Result<&[u16], ReadError> {
        let start = Instant::now();
        let io_before = self.stats.io_wait_ns;
        let layer = self.event.layer;
        let from = self.event.next[projection];
        let all = self.event.experts.len();
        let to = if self.event.whole {
            all
        } else {
            // The products of all rounds before this one are done, the other projections' last ones too.
            for projection in 0..self.event.next.len() {
                for i in self.event.round_start[projection]..self.event.next[projection] {
                    if !self.event.stays[i] {
                        self.free(layer, self.event.experts[i], projection);
                    }
                }
                self.event.round_start[projection] = self.event.next[projection];
            }
            if from < self.event.hits {
                self.event.hits
            } else {
                let mut to = from;
                while to < all && self.reserve(layer, self.event.experts[to], projection) {
                    to += 1;
                }
                assert!(to > from || from == all, "the event room holds at least one slice");
                self.read_batch()?;
                to
            }
        };
        self.event.round_start[projection] = from;
        self.event.next[projection] = to;
        self.stats.mgmt_ns +=
            start.elapsed().as_nanos() as u64 - (self.stats.io_wait_ns - io_before);
        Ok(&self.event.experts[from..to])
    }

    /// Whether the round handed out last was the projection's last one.
    #[must_use]
    pub fn finished(&self, projection: usize) -> bool {
        self.event.next[projection] == self.event.experts.len()
    }

    /// The bytes of a slice that a round handed out.
    ///
    /// # Panics
    /// If the slice is not in memory.
    #[must_use]
    pub fn slice(&self, expert: u16, projection: usize) -> *const u8 {
        let layer = self.event.layer;
        let frame = self.frames[self.frame_index(layer, expert, projection)]
            .expect("the slice was handed out by this event's rounds");
        let lead = self.layout.layers[layer].tensors[projection].slice(expert).start % WINDOW_ALIGN;
        self.arena.at(self.regions.offset(frame) + lead)
    }

    /// Distinct experts of the current event, resident ones first, and how many were resident.
    #[must_use]
    pub fn event_experts(&self) -> (&[u16], usize) {
        (&self.event.experts, self.event.hits)
    }

    /// Bytes of one expert of the current event's layer.
    #[must_use]
    pub fn event_expert_bytes(&self) -> u64 {
        self.layout.layers[self.event.layer].expert_bytes()
    }

    /// The numbers since the last call.
    pub fn take_stats(&mut self) -> StoreStats {
        std::mem::take(&mut self.stats)
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
        self.peak_event_bytes
    }

    /// The lanes, for compute threads that wait while the store reads.
    #[must_use]
    pub fn lanes(&self) -> &Arc<Lanes> {
        &self.lanes
    }

    /// The memory that was declared.
    #[must_use]
    pub fn plan(&self) -> MemoryPlan {
        self.plan
    }

    /// The model's layout.
    #[must_use]
    pub fn layout(&self) -> &ExpertLayout {
        &self.layout
    }

    /// Frees what the event leaves behind but the cache doesn't keep.
    fn end_event(&mut self) {
        let layer = self.event.layer;
        for i in 0..self.event.experts.len() {
            if !self.event.stays[i] {
                for projection in 0..self.event.next.len() {
                    self.free(layer, self.event.experts[i], projection);
                }
            }
        }
        self.event.experts.clear();
        self.event.stays.clear();
    }

    /// Reserves frames for all misses of the event, or for none.
    fn reserve_all(&mut self) -> bool {
        let layer = self.event.layer;
        let tensors = self.event.next.len();
        for projection in 0..tensors {
            for i in self.event.hits..self.event.experts.len() {
                if !self.reserve(layer, self.event.experts[i], projection) {
                    for projection in 0..tensors {
                        for i in self.event.hits..self.event.experts.len() {
                            self.free(layer, self.event.experts[i], projection);
                        }
                    }
                    self.batch.clear();
                    return false;
                }
            }
        }
        true
    }

    /// Takes a frame for a slice and puts its read into the batch; false when there is no room.
    fn reserve(&mut self, layer: usize, expert: u16, projection: usize) -> bool {
        let tensor = &self.layout.layers[layer].tensors[projection];
        let (frame_bytes, slice_bytes) = (tensor.frame_bytes(), tensor.slice_bytes);
        let read =
            (tensor.file, tensor.slice(expert).start, self.frame_index(layer, expert, projection));
        let frame = self.regions.allocate(frame_bytes, &mut self.moves);
        if !self.moves.is_empty() {
            // Slices already in the batch may have moved (they are not read yet): look them up again
            // when the batch runs. The others carry their bytes along.
            for moved in self.moves.drain(..) {
                self.arena.apply(moved);
            }
        }
        let Some(frame) = frame else { return false };
        let (file, offset, index) = read;
        self.frames[index] = Some(frame);
        self.live_slice_bytes += slice_bytes;
        let over = self.live_slice_bytes.saturating_sub(self.plan.budget_bytes);
        self.peak_event_bytes = self.peak_event_bytes.max(over);
        // The address is filled in when the batch runs.
        let frame = std::ptr::without_provenance_mut(index);
        self.batch.push(SliceRead { file, offset, bytes: slice_bytes, frame });
        true
    }

    /// Gives a slice's frame back, if it has one.
    fn free(&mut self, layer: usize, expert: u16, projection: usize) {
        let index = self.frame_index(layer, expert, projection);
        if let Some(frame) = self.frames[index].take() {
            let tensor = &self.layout.layers[layer].tensors[projection];
            if self.poison {
                self.arena.poison(self.regions.offset(frame), tensor.frame_bytes());
            }
            self.live_slice_bytes -= tensor.slice_bytes;
            self.regions.free(frame);
        }
    }

    fn read_batch(&mut self) -> Result<(), ReadError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        for read in &mut self.batch {
            let frame = self.frames[read.frame.addr()].expect("a reserved slice has a frame");
            read.frame = self.arena.at(self.regions.offset(frame));
        }
        let start = Instant::now();
        // SAFETY: each read has a frame of its own, long enough for any window of its tensor and
        // aligned like the arena (all offsets are multiples of 4096, `Regions::new`); no computation
        // runs while the store reads, since both happen one after the other on the graph's thread 0.
        let result = unsafe { self.lanes.read(&self.batch) };
        self.stats.io_wait_ns += start.elapsed().as_nanos() as u64;
        self.stats.expert_read_bytes += self.batch.iter().map(|r| r.bytes).sum::<u64>();
        self.batch.clear();
        let read = result?;
        self.stats.reads += read.reads;
        self.stats.device_read_bytes += read.device_bytes;
        self.stats.lane_busy_ns += read.lane_busy_ns;
        Ok(())
    }

    fn frame_index(&self, layer: usize, expert: u16, projection: usize) -> usize {
        self.cache.sizes().key(layer, expert).index() * self.projections + projection
    }
}
