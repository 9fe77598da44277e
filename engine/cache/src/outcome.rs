use crate::Key;

/// What one event did. The vectors are reused from event to event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// Distinct experts that were in the cache, in order of first use.
    pub hits: Vec<u16>,
    /// Those of `hits` that a prefetch brought in and that are used for the first time.
    pub prefetch_hits: Vec<u16>,
    /// Distinct experts that were not in the cache, in order of first use.
    pub misses: Vec<u16>,
    /// Entries of earlier events that made room.
    pub evicted: Vec<Key>,
    /// Experts of this very event that do not stay, because the event alone is larger than the
    /// budget (always all of them when the budget is 0).
    pub transient: Vec<u16>,
}

impl Event {
    pub(crate) fn clear(&mut self) {
        self.hits.clear();
        self.prefetch_hits.clear();
        self.misses.clear();
        self.evicted.clear();
        self.transient.clear();
    }
}

/// What became of a prefetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission<'a> {
    /// The entry was in the cache already; nothing changed.
    Resident,
    /// The entry is in the cache from now on; these made room for it.
    Admitted {
        /// Entries that left.
        evicted: &'a [Key],
    },
    /// There is no room but that of the running event and of prefetched entries that were not used
    /// yet; nothing changed.
    Refused,
}

/// Running totals. One look-up per distinct expert per event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Look-ups that found their entry, prefetched ones included.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Bytes of the misses.
    pub miss_bytes: u64,
    /// Entries that left the cache, transient ones included.
    pub evictions: u64,
    /// Entries that came in by a prefetch. Each is useful, wasted, or in the cache and not used yet.
    pub prefetched: u64,
    /// Bytes of them.
    pub prefetched_bytes: u64,
    /// Prefetched entries that were used.
    pub prefetch_useful: u64,
    /// Bytes of them.
    pub prefetch_useful_bytes: u64,
    /// Prefetched entries that left without having been used.
    pub prefetch_wasted: u64,
    /// Bytes of them.
    pub prefetch_wasted_bytes: u64,
    /// Prefetches that were refused.
    pub prefetch_refused: u64,
    /// Entries that came in by [`Cache::warm`](crate::Cache::warm).
    pub preloaded: u64,
    /// Bytes of them.
    pub preloaded_bytes: u64,
}

impl Counts {
    /// Hits over look-ups; `None` before the first look-up.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        let lookups = self.hits + self.misses;
        (lookups > 0).then(|| self.hits as f64 / lookups as f64)
    }
}
