use crate::{EntrySizes, Key, Policy};

/// What one event did. The vectors are reused from event to event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// Distinct experts that were in the cache, in order of first use.
    pub hits: Vec<u16>,
    /// Distinct experts that were not, in order of first use.
    pub misses: Vec<u16>,
    /// Entries of earlier events that made room.
    pub evicted: Vec<Key>,
    /// Experts of this very event that do not stay, because the event alone is larger than the
    /// budget (always all of them when the budget is 0).
    pub transient: Vec<u16>,
}

/// Running totals. One look-up per distinct expert per event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Look-ups that found their entry.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Bytes of the misses.
    pub miss_bytes: u64,
    /// Entries that left the cache, transient ones included.
    pub evictions: u64,
}

impl Counts {
    /// Hits over look-ups; `None` before the first look-up.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        let lookups = self.hits + self.misses;
        (lookups > 0).then(|| self.hits as f64 / lookups as f64)
    }
}

/// A byte-budgeted, event-atomic cache of (layer, expert) entries.
///
/// Behind every event `resident_bytes() <= budget_bytes()`. The published replay lets an event larger
/// than the budget overshoot until the next one; a real memory can't, so here the event's own entries
/// go too, last and in the policy's order.
#[derive(Debug, Clone)]
pub struct Cache<P> {
    sizes: EntrySizes,
    policy: P,
    budget_bytes: u64,
    resident_bytes: u64,
    resident: Vec<bool>,
    /// Number of the last event that used the entry.
    last_event: Vec<u64>,
    event_number: u64,
    event: Event,
    counts: Counts,
}

impl<P: Policy> Cache<P> {
    /// An empty cache.
    #[must_use]
    pub fn new(sizes: EntrySizes, budget_bytes: u64, policy: P) -> Self {
        let entries = sizes.entries();
        Self {
            sizes,
            policy,
            budget_bytes,
            resident_bytes: 0,
            resident: vec![false; entries],
            last_event: vec![0; entries],
            event_number: 0,
            event: Event::default(),
            counts: Counts::default(),
        }
    }

    /// All experts that one layer uses for one micro-batch, token-major, in the router's order,
    /// duplicates included.
    ///
    /// # Panics
    /// If the layer or an expert is out of the range given to [`EntrySizes`].
    pub fn event(&mut self, layer: usize, experts: &[u16]) -> &Event {
        self.event_number += 1;
        let now = self.event_number;
        self.event.hits.clear();
        self.event.misses.clear();
        self.event.evicted.clear();
        self.event.transient.clear();

        let entry_bytes = self.sizes.layer_bytes(layer);
        for &expert in experts {
            let key = self.sizes.key(layer, expert);
            let was_resident = std::mem::replace(&mut self.resident[key.index()], true);
            if std::mem::replace(&mut self.last_event[key.index()], now) != now {
                if was_resident {
                    self.event.hits.push(expert);
                } else {
                    self.event.misses.push(expert);
                    self.resident_bytes += entry_bytes;
                }
            }
            self.policy.touch(key, was_resident);
        }
        self.counts.hits += self.event.hits.len() as u64;
        self.counts.misses += self.event.misses.len() as u64;
        self.counts.miss_bytes += self.event.misses.len() as u64 * entry_bytes;

        while self.resident_bytes > self.budget_bytes {
            let last_event = &self.last_event;
            let Some(key) = self.policy.evict(&|key| last_event[key.index()] == now) else { break };
            self.resident[key.index()] = false;
            self.resident_bytes -= self.sizes.bytes(key);
            self.counts.evictions += 1;
            if self.last_event[key.index()] == now {
                self.event.transient.push(self.sizes.expert(key));
            } else {
                self.event.evicted.push(key);
            }
        }
        &self.event
    }

    /// Whether an entry is in the cache.
    #[must_use]
    pub fn contains(&self, key: Key) -> bool {
        self.resident[key.index()]
    }

    /// Bytes held.
    #[must_use]
    pub const fn resident_bytes(&self) -> u64 {
        self.resident_bytes
    }

    /// The budget.
    #[must_use]
    pub const fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Totals since the start.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The sizes that the cache was made with.
    #[must_use]
    pub const fn sizes(&self) -> &EntrySizes {
        &self.sizes
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &P {
        &self.policy
    }
}
