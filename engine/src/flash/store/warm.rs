//! Filling the cache before the first event.

use bmoe_trace::record::ReadPurpose;

use super::ExpertStore;
use super::frames::Slice;
use crate::flash::queue::ReadError;

/// Experts whose reads are handed to the lanes at once: enough to keep them busy, few enough to be stopped.
const PART: usize = 64;

impl ExpertStore {
    /// Reads (layer, expert) pairs into the cache, the first ones first, as far as there is room in it, and
    /// waits for them. Returns the bytes of their slices. Neither look-ups nor costs are counted; when
    /// `cancelled` says so it returns early, and the store must not be used any more.
    ///
    /// # Errors
    /// A read failed. The store must not be used any more.
    pub fn warm(
        &mut self,
        experts: &[(usize, u16)],
        cancelled: &dyn Fn() -> bool,
    ) -> Result<u64, ReadError> {
        self.end_event();
        let sizes = self.cache.sizes();
        let keys: Vec<_> =
            experts.iter().map(|&(layer, expert)| sizes.key(layer, expert)).collect();
        let admitted = self.cache.warm(&keys);
        let mut bytes = 0;
        for part in admitted.chunks(PART) {
            if cancelled() {
                return Ok(bytes);
            }
            for &key in part {
                let (layer, expert) =
                    (self.cache.sizes().layer(key), self.cache.sizes().expert(key));
                for projection in 0..self.frames.tensors(layer) {
                    let slice = Slice { layer, expert, projection };
                    let reserved = self.frames.reserve(slice, ReadPurpose::Warm);
                    assert!(reserved, "the memory holds the budget");
                }
            }
            bytes += self.frames.submit();
            self.frames.wait_idle();
            if let Some(error) = self.frames.lanes().queue().take_error() {
                return Err(error);
            }
        }
        self.peak_cache_bytes = self.peak_cache_bytes.max(self.cache.resident_bytes());
        // What this cost belongs to loading, not to the first micro-batch.
        self.frames.blocked_ns = 0;
        let _ = self.take_stats();
        Ok(bytes)
    }
}
