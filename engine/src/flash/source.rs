//! Where experts come from: what the graph asks of whoever has them.
//!
//! [`ExpertStore`] is the engine's own; another one (experts from a network, from compressed files, all of
//! them in memory) is given to [`Engine::open_with_source`](crate::run::Engine::open_with_source).
//! `examples/own_source.rs` is the shortest.

use std::marker::PhantomData;
use std::time::Instant;

use bmoe_trace::record::{ReadPurpose, ReadRecord, Residency};

use super::store::{ExpertStore, StoreStats};
use crate::error::EngineError;

/// One expert's part of one weight tensor, as it is in the model's file.
#[derive(Debug, Clone, Copy)]
pub struct Slice<'a> {
    pub(crate) address: *const u8,
    pub(crate) bytes: u64,
    /// Number of the read that brings it, when that is not over.
    pub(crate) pending: Option<u32>,
    source: PhantomData<&'a [u8]>,
}

impl<'a> Slice<'a> {
    /// A slice in memory.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            address: bytes.as_ptr(),
            bytes: bytes.len() as u64,
            pending: None,
            source: PhantomData,
        }
    }

    /// A slice of the store, which may be on its way.
    pub(super) fn of_store(address: *const u8, bytes: u64, pending: Option<u32>) -> Self {
        Self { address, bytes, pending, source: PhantomData }
    }
}

/// Has the experts of a model.
///
/// The graph's thread 0 makes all calls. For each layer of each micro-batch: `begin`, then for every projection
/// of the layer `next_round` until [`finished`](Self::finished), and `slice` for every expert of the round.
/// Compute threads read the slices of a round until the next call that takes `&mut self`.
pub trait ExpertSource {
    /// A layer of micro-batch `ubatch` of the run needs experts: token-major in the router's order, duplicates
    /// included. `layer` counts among the MoE layers.
    ///
    /// # Errors
    /// They can't be had. The run ends.
    fn begin(&mut self, ubatch: u32, layer: usize, experts: &[u16]) -> Result<(), EngineError>;

    /// The next distinct experts that a projection (an index into the layer's tensors) can be computed for; all
    /// of them at once if they fit. Empty when all have been.
    ///
    /// # Errors
    /// They can't be had. The run ends.
    fn next_round(&mut self, projection: usize) -> Result<&[u16], EngineError>;

    /// Whether the round handed out last was the projection's last one.
    fn finished(&self, projection: usize) -> bool;

    /// A slice of an expert that the projection's round holds.
    fn slice(&self, expert: u16, projection: usize) -> Slice<'_>;

    /// The event's distinct experts, how each was found, and the bytes that had to be fetched for it. For route
    /// records; the resident ones come first.
    fn found(&self) -> Vec<(u16, Residency, u64)> {
        Vec::new()
    }

    /// The graph was stopped in the middle of an event; another one is going to begin.
    fn abandon(&mut self) {}

    /// In which order the graph multiplies with a layer's projections.
    fn set_order(&mut self, _layer: usize, _order: &[usize]) {}

    /// An expert may be needed soon. True when something was done about it.
    fn read_early(&mut self, _layer: usize, _expert: u16, _purpose: ReadPurpose) -> bool {
        false
    }

    /// What a token used in a layer, for guesses about the next `layers` ones.
    fn prefetch_after(&mut self, _layer: usize, _experts: &[u16], _layers: u32) {}

    /// What it cost since the last call.
    fn take_stats(&mut self) -> StoreStats {
        StoreStats::default()
    }

    /// Reads that were finished since the last call, if they are recorded; times count from `origin`.
    fn take_reads(&mut self, _origin: Instant) -> Vec<ReadRecord> {
        Vec::new()
    }

    /// The engine's own store, if it is that.
    fn store(&self) -> Option<&ExpertStore> {
        None
    }

    /// As [`Self::store`], to change it between two micro-batches.
    fn store_mut(&mut self) -> Option<&mut ExpertStore> {
        None
    }
}

impl ExpertSource for ExpertStore {
    fn begin(&mut self, ubatch: u32, layer: usize, experts: &[u16]) -> Result<(), EngineError> {
        Ok(Self::begin(self, ubatch, layer, experts)?)
    }

    fn next_round(&mut self, projection: usize) -> Result<&[u16], EngineError> {
        Ok(Self::next_round(self, projection)?)
    }

    fn finished(&self, projection: usize) -> bool {
        Self::finished(self, projection)
    }

    fn slice(&self, expert: u16, projection: usize) -> Slice<'_> {
        let address = Self::slice(self, expert, projection);
        let bytes = self.slice_bytes(projection);
        Slice::of_store(address, bytes, self.pending(expert, projection))
    }

    fn found(&self) -> Vec<(u16, Residency, u64)> {
        let expert_bytes = self.event_expert_bytes();
        let read = |residency| if residency == Residency::Miss { expert_bytes } else { 0 };
        self.event_experts()
            .map(|(expert, residency)| (expert, residency, read(residency)))
            .collect()
    }

    fn abandon(&mut self) {
        Self::abandon(self);
    }

    fn set_order(&mut self, layer: usize, order: &[usize]) {
        Self::set_order(self, layer, order);
    }

    fn read_early(&mut self, layer: usize, expert: u16, purpose: ReadPurpose) -> bool {
        Self::read_early(self, layer, expert, purpose)
    }

    fn prefetch_after(&mut self, layer: usize, experts: &[u16], layers: u32) {
        Self::prefetch_after(self, layer, experts, layers);
    }

    fn take_stats(&mut self) -> StoreStats {
        Self::take_stats(self)
    }

    fn take_reads(&mut self, origin: Instant) -> Vec<ReadRecord> {
        Self::take_reads(self, origin)
    }

    fn store(&self) -> Option<&ExpertStore> {
        Some(self)
    }

    fn store_mut(&mut self) -> Option<&mut ExpertStore> {
        Some(self)
    }
}
