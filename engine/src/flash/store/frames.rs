//! Frames of the arena: which slice has which, and the reads that fill them.
#![expect(unsafe_code, reason = "hands frames of the arena to the read lanes")]

use std::sync::Arc;
use std::time::Instant;

use bmoe_cache::{EntrySizes, Key};
use bmoe_trace::record::{ReadPurpose, ReadRecord};

use super::super::arena::Arena;
use super::super::lanes::Lanes;
use super::super::layout::{ExpertLayout, WINDOW_ALIGN};
use super::super::memory::frame_sizes;
use super::super::queue::{CompletedRead, ReadError, SliceRead, SliceState};
use super::super::regions::{FrameId, Move, Regions};

/// One slice: an expert's part of one of its layer's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) layer: usize,
    pub(super) expert: u16,
    pub(super) projection: usize,
}

/// The frames, and the reads that wait to be submitted.
#[derive(Debug)]
pub(super) struct Frames {
    layout: ExpertLayout,
    sizes: EntrySizes,
    /// Closed before the arena that they read into is dropped.
    lanes: Arc<Lanes>,
    arena: Arena,
    regions: Regions,
    /// Frame of each slice, by [`Self::index`].
    frames: Vec<Option<FrameId>>,
    /// Most tensors that a layer has.
    projections: usize,
    /// What [`Regions`] needs beyond the frames in use.
    slack_bytes: u64,
    batch: Vec<(Slice, ReadPurpose)>,
    reads: Vec<SliceRead>,
    moves: Vec<Move>,
    live_slice_bytes: u64,
    /// Highest number of slice bytes in memory beyond `budget_bytes`.
    pub(super) peak_event_bytes: u64,
    pub(super) budget_bytes: u64,
    /// Micro-batch that is running.
    pub(super) ubatch: u32,
    /// Thread 0 was blocked on reads, since it was last taken.
    pub(super) blocked_ns: u64,
    poison: bool,
}

/// Number of slices of a layout, absent ones of layers with fewer tensors included.
pub(super) fn slice_count(layout: &ExpertLayout) -> usize {
    layout.entry_sizes().entries() * projections(layout)
}

fn projections(layout: &ExpertLayout) -> usize {
    layout.layers.iter().map(|l| l.tensors.len()).max().unwrap_or(0)
}

impl Frames {
    pub(super) fn new(
        layout: ExpertLayout,
        budget_bytes: u64,
        lanes: Arc<Lanes>,
        arena: Arena,
        poison: bool,
    ) -> Self {
        Self {
            frames: vec![None; slice_count(&layout)],
            projections: projections(&layout),
            sizes: layout.entry_sizes(),
            regions: Regions::new(&frame_sizes(&layout), arena.bytes()),
            slack_bytes: Regions::slack_bytes(&frame_sizes(&layout)),
            layout,
            lanes,
            arena,
            batch: Vec::new(),
            reads: Vec::new(),
            moves: Vec::new(),
            live_slice_bytes: 0,
            peak_event_bytes: 0,
            budget_bytes,
            ubatch: 0,
            blocked_ns: 0,
            poison,
        }
    }

    pub(super) fn layout(&self) -> &ExpertLayout {
        &self.layout
    }

    pub(super) fn lanes(&self) -> &Arc<Lanes> {
        &self.lanes
    }

    /// Number of tensors of a layer.
    pub(super) fn tensors(&self, layer: usize) -> usize {
        self.layout.layers[layer].tensors.len()
    }

    /// Number under which the slice's frame and state are kept.
    pub(super) fn index(&self, slice: Slice) -> usize {
        self.sizes.key(slice.layer, slice.expert).index() * self.projections + slice.projection
    }

    /// The reads that were finished since the last call, when they are recorded; times count from `origin`.
    pub(super) fn take_reads(&self, origin: Instant) -> Vec<ReadRecord> {
        let completed = self.lanes.queue().take_completed();
        completed.iter().map(|done| self.record(done, origin)).collect()
    }

    fn record(&self, done: &CompletedRead, origin: Instant) -> ReadRecord {
        let index = done.read.slice as usize;
        let key = Key((index / self.projections) as u32);
        ReadRecord {
            ubatch: done.read.ubatch,
            layer: self.layout.layers[self.sizes.layer(key)].layer,
            expert: self.sizes.expert(key),
            projection: (index % self.projections) as u8,
            lane: done.lane,
            purpose: done.read.purpose,
            wanted_bytes: done.read.bytes,
            read_bytes: done.device_bytes,
            queued_ns: done.queued.saturating_duration_since(origin).as_nanos() as u64,
            wait_ns: done.wait.as_nanos() as u64,
            service_ns: done.service.as_nanos() as u64,
        }
    }

    /// Bytes of memory that are not taken.
    pub(super) fn free_bytes(&self) -> u64 {
        self.regions.capacity() - self.regions.live_bytes()
    }

    /// Changes the memory that frames may take, at most what the arena was made with, and the budget; gives back
    /// what is then behind them. Waits for all reads, since frames move.
    pub(super) fn resize(&mut self, budget_bytes: u64, total_bytes: u64) {
        self.wait_idle();
        self.budget_bytes = budget_bytes;
        let before = self.regions.capacity();
        self.regions.set_capacity(total_bytes.min(self.arena.bytes()), &mut self.moves);
        for moved in self.moves.drain(..) {
            self.arena.apply(moved);
        }
        if self.regions.capacity() < before {
            self.arena.release(self.regions.capacity());
        }
    }

    /// Whether an expert of the layer can have frames, whatever sizes the others have.
    pub(super) fn has_room_for(&self, layer: usize) -> bool {
        let frame_bytes = self.layout.layers[layer].frame_bytes();
        self.regions.live_bytes() + frame_bytes + self.slack_bytes <= self.regions.capacity()
    }

    /// Takes a frame for a slice and puts its read into the batch; false when there is no room.
    pub(super) fn reserve(&mut self, slice: Slice, purpose: ReadPurpose) -> bool {
        let tensor = &self.layout.layers[slice.layer].tensors[slice.projection];
        let (frame_bytes, slice_bytes) = (tensor.frame_bytes(), tensor.slice_bytes);
        let frame = self.regions.allocate(frame_bytes, &mut self.moves);
        if !self.moves.is_empty() {
            // Nothing may be moved while a lane writes into it. What is in the batch is not read yet:
            // its addresses are looked up when the batch is submitted.
            self.wait_idle();
            for moved in self.moves.drain(..) {
                self.arena.apply(moved);
            }
        }
        let Some(frame) = frame else { return false };
        let index = self.index(slice);
        self.frames[index] = Some(frame);
        self.live_slice_bytes += slice_bytes;
        let over = self.live_slice_bytes.saturating_sub(self.budget_bytes);
        self.peak_event_bytes = self.peak_event_bytes.max(over);
        self.batch.push((slice, purpose));
        true
    }

    /// Gives up the reservations that were made since the last [`Self::submit`].
    pub(super) fn give_up_batch(&mut self) {
        while let Some((slice, _)) = self.batch.pop() {
            self.free(slice);
        }
    }

    /// Gives a slice's frame back, if it has one.
    pub(super) fn free(&mut self, slice: Slice) {
        let index = self.index(slice);
        if self.frames[index].is_none() {
            return;
        }
        let queue = self.lanes.queue();
        if queue.state(index as u32) == SliceState::Pending {
            let start = Instant::now();
            queue.withdraw(index as u32);
            self.blocked_ns += start.elapsed().as_nanos() as u64;
        }
        queue.forget(index as u32);
        let frame = self.frames[index].take().expect("looked at above");
        let tensor = &self.layout.layers[slice.layer].tensors[slice.projection];
        if self.poison {
            self.arena.poison(self.regions.offset(frame), tensor.frame_bytes());
        }
        self.live_slice_bytes -= tensor.slice_bytes;
        self.regions.free(frame);
    }

    /// Hands the batch to the lanes; returns the bytes of its slices.
    pub(super) fn submit(&mut self) -> u64 {
        self.reads.clear();
        let mut bytes = 0;
        for &(slice, purpose) in &self.batch {
            let index = self.index(slice);
            let tensor = &self.layout.layers[slice.layer].tensors[slice.projection];
            let frame = self.frames[index].expect("a reserved slice has a frame");
            bytes += tensor.slice_bytes;
            self.reads.push(SliceRead {
                file: tensor.file,
                offset: tensor.slice(slice.expert).start,
                bytes: tensor.slice_bytes,
                frame: self.arena.at(self.regions.offset(frame)),
                slice: index as u32,
                purpose,
                ubatch: self.ubatch,
            });
        }
        self.batch.clear();
        // SAFETY: each read has a frame of its own, long enough for any window of its tensor and
        // aligned like the arena (all offsets are multiples of 4096, `Regions::new`). Nobody computes
        // with a slice before its state is `Ready`; a frame is neither moved (`reserve`) nor given to
        // another slice (`free`) while its read is pending.
        unsafe { self.lanes.submit(&self.reads) };
        bytes
    }

    /// Blocks until slices that were submitted are in memory, reading on this thread too.
    pub(super) fn complete(
        &mut self,
        slices: impl Iterator<Item = Slice>,
    ) -> Result<(), ReadError> {
        let start = Instant::now();
        self.lanes.help_with_demand();
        let queue = self.lanes.queue();
        let mut whole = true;
        for slice in slices {
            whole &= queue.wait_for(self.index(slice) as u32);
        }
        self.blocked_ns += start.elapsed().as_nanos() as u64;
        if whole { Ok(()) } else { queue.take_error().map_or(Ok(()), Err) }
    }

    /// Blocks until no read is waiting or running, reading on this thread too.
    pub(super) fn wait_idle(&mut self) {
        let start = Instant::now();
        self.lanes.drain();
        self.blocked_ns += start.elapsed().as_nanos() as u64;
    }

    /// Where a slice's bytes are or will be.
    ///
    /// # Panics
    /// If the slice has no frame.
    pub(super) fn address(&self, slice: Slice) -> *const u8 {
        let frame = self.frames[self.index(slice)].expect("the slice has a frame");
        let tensor = &self.layout.layers[slice.layer].tensors[slice.projection];
        let lead = tensor.slice(slice.expert).start % WINDOW_ALIGN;
        self.arena.at(self.regions.offset(frame) + lead)
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // Lanes may outlive the arena (others hold them too), but not with reads into it.
        self.lanes.drain();
    }
}
