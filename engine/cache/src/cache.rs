use crate::{Admission, AnyPolicy, Counts, EntrySizes, Event, Key, Policy};

/// Whether an entry is in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Absent,
    Resident,
    /// Resident by a prefetch and not used yet.
    Speculative,
}

/// What is left of an event that alone is larger than the budget (or its layer's share).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overshoot {
    /// Nothing beyond the budget: the event's own entries go too, last and in the policy's order. What
    /// a real memory can do.
    #[default]
    Never,
    /// All of it, until the next event (of the layer, with shares) has made room: the semantics of the
    /// published replays. It matters when a share is smaller than one token's experts of a layer.
    KeepUntilNextEvent,
}

/// Bytes that are accounted together: the whole cache, or one layer with a share of its own.
#[derive(Debug, Clone, Copy, Default)]
struct Pool {
    budget: u64,
    resident: u64,
    /// Of the resident bytes, those prefetched and not used yet.
    speculative: u64,
}

/// A byte-budgeted, event-atomic cache of (layer, expert) entries.
///
/// Behind every call `resident_bytes() <= budget_bytes()`, and each layer is within its share if the
/// policy has shares; see [`Overshoot`] for the exception that can be asked for.
///
/// Its state is a function of the calls made so far: a simulator that makes the calls of
/// [`event`](Self::event), [`prefetch`](Self::prefetch), [`warm`](Self::warm) and
/// [`set_budget`](Self::set_budget) that an engine made, in the same order (refused prefetches may be left
/// out, they change nothing but their count), gets the same outcomes and the same totals.
#[derive(Debug, Clone)]
pub struct Cache<P = AnyPolicy> {
    sizes: EntrySizes,
    policy: P,
    overshoot: Overshoot,
    budget_bytes: u64,
    resident_bytes: u64,
    /// One, or one per layer.
    pools: Vec<Pool>,
    presence: Vec<Presence>,
    /// Time of the last event that looked the entry up, plus 1 when the policy knows of the use.
    last_use: Vec<u64>,
    /// Time of the running event: even, and 2 more from event to event.
    now: u64,
    /// Layer of the last event.
    event_layer: Option<usize>,
    event: Event,
    /// Entries evicted by the last prefetch or change of the budget.
    made_room: Vec<Key>,
    counts: Counts,
}

impl<P: Policy> Cache<P> {
    /// An empty cache.
    #[must_use]
    pub fn new(sizes: EntrySizes, budget_bytes: u64, policy: P) -> Self {
        let entries = sizes.entries();
        let pools = if policy.per_layer() { sizes.layers() } else { 1 };
        let mut cache = Self {
            sizes,
            policy,
            overshoot: Overshoot::default(),
            budget_bytes: 0,
            resident_bytes: 0,
            pools: vec![Pool::default(); pools],
            presence: vec![Presence::Absent; entries],
            last_use: vec![0; entries],
            // No entry is of the event before the first one.
            now: 2,
            event_layer: None,
            event: Event::default(),
            made_room: Vec::new(),
            counts: Counts::default(),
        };
        cache.set_budget(budget_bytes);
        cache
    }

    /// The same cache with another rule for events larger than the budget.
    #[must_use]
    pub const fn with_overshoot(mut self, overshoot: Overshoot) -> Self {
        self.overshoot = overshoot;
        self
    }

    /// All experts that one layer uses for one micro-batch, token-major, in the router's order,
    /// duplicates included.
    ///
    /// A token (or micro-batch) goes through the layers in ascending order: an event of a layer that is not
    /// above the last event's begins a new one.
    ///
    /// # Panics
    /// If the layer or an expert is out of the range given to [`EntrySizes`].
    pub fn event(&mut self, layer: usize, experts: &[u16]) -> &Event {
        if self.event_layer.is_none_or(|last| layer <= last) {
            self.policy.begin_token();
        }
        self.event_layer = Some(layer);
        self.now += 2;
        self.event.clear();

        let entry_bytes = self.sizes.layer_bytes(layer);
        let pool = self.pool(layer);
        self.look_up(layer, experts);
        let (hits, misses) = (self.event.hits.len() as u64, self.event.misses.len() as u64);
        let useful = self.event.prefetch_hits.len() as u64;
        self.counts.hits += hits;
        self.counts.misses += misses;
        self.counts.miss_bytes += misses * entry_bytes;
        self.counts.prefetch_useful += useful;
        self.counts.prefetch_useful_bytes += useful * entry_bytes;
        self.pools[pool].speculative -= useful * entry_bytes;

        let incoming = misses * entry_bytes;
        let now = self.now;
        while self.pools[pool].resident + incoming > self.pools[pool].budget {
            let last_use = &self.last_use;
            let Some(victim) = self.policy.evict(layer, |key| last_use[key.index()] >= now) else {
                break;
            };
            self.remove(victim);
            self.event.evicted.push(victim);
        }

        self.pools[pool].resident += incoming;
        self.resident_bytes += incoming;
        for &expert in experts {
            let key = self.sizes.key(layer, expert);
            if std::mem::replace(&mut self.last_use[key.index()], now + 1) == now + 1 {
                self.policy.repeat(key);
            } else if self.presence[key.index()] == Presence::Absent {
                self.presence[key.index()] = Presence::Resident;
                self.policy.insert(key);
            } else {
                self.policy.hit(key);
            }
        }

        while self.pools[pool].resident > self.pools[pool].budget
            && self.overshoot == Overshoot::Never
            && let Some(victim) = self.policy.evict(layer, |_| false)
        {
            self.remove(victim);
            self.event.transient.push(self.sizes.expert(victim));
        }
        &self.event
    }

    /// Sorts the distinct experts into hits and misses.
    #[inline]
    fn look_up(&mut self, layer: usize, experts: &[u16]) {
        for &expert in experts {
            assert!(u32::from(expert) < self.sizes.n_expert(), "expert {expert} is out of range");
            let key = self.sizes.key(layer, expert);
            let last_use = &mut self.last_use[key.index()];
            if *last_use == self.now {
                continue;
            }
            *last_use = self.now;
            match self.presence[key.index()] {
                Presence::Absent => {
                    self.event.misses.push(expert);
                    self.policy.announce(key);
                    continue;
                }
                Presence::Resident => {}
                Presence::Speculative => {
                    self.presence[key.index()] = Presence::Resident;
                    self.event.prefetch_hits.push(expert);
                }
            }
            self.event.hits.push(expert);
        }
    }

    /// Brings an entry in before anything asked for it. That is no look-up; to the policy it is an
    /// insertion like any other, and the entry's first use is a hit (of [`Event::prefetch_hits`]).
    ///
    /// It never takes the place of an entry of the running event (the last one), nor of a prefetched entry that
    /// was not used yet; it is refused when there is no other place.
    ///
    /// # Panics
    /// If the layer or the expert is out of range.
    pub fn prefetch(&mut self, layer: usize, expert: u16) -> Admission<'_> {
        assert!(u32::from(expert) < self.sizes.n_expert(), "expert {expert} is out of range");
        let key = self.sizes.key(layer, expert);
        let entry_bytes = self.sizes.layer_bytes(layer);
        if self.presence[key.index()] != Presence::Absent {
            return Admission::Resident;
        }
        self.made_room.clear();
        let pool = self.pool(layer);
        let Pool { budget, resident, .. } = self.pools[pool];
        if resident + entry_bytes > budget && self.protected_bytes(pool) + entry_bytes > budget {
            self.counts.prefetch_refused += 1;
            return Admission::Refused;
        }
        self.policy.announce(key);
        let now = self.now;
        while self.pools[pool].resident + entry_bytes > budget {
            let (last_use, presence) = (&self.last_use, &self.presence);
            let victim = self.policy.evict(layer, |key| {
                presence[key.index()] == Presence::Speculative || last_use[key.index()] >= now
            });
            let Some(victim) = victim else { break };
            self.remove(victim);
            self.made_room.push(victim);
        }
        self.add(key, Presence::Speculative);
        self.policy.insert(key);
        self.pools[pool].speculative += entry_bytes;
        self.counts.prefetched += 1;
        self.counts.prefetched_bytes += entry_bytes;
        Admission::Admitted { evicted: &self.made_room }
    }

    /// Brings in what is expected to be used, the most valuable entry first, as far as there is room: nothing
    /// is evicted for it. Returns what came in.
    ///
    /// That is no look-up, and an entry's first use is a plain hit. To the policy the entries are insertions in
    /// reverse, so that the most valuable one is the most recent.
    ///
    /// # Panics
    /// If a key is out of range.
    pub fn warm(&mut self, keys: &[Key]) -> Vec<Key> {
        let mut admitted = Vec::new();
        for &key in keys {
            let pool = self.pools[self.pool(self.sizes.layer(key))];
            if self.presence[key.index()] == Presence::Absent
                && pool.resident + self.sizes.bytes(key) <= pool.budget
            {
                self.add(key, Presence::Resident);
                self.counts.preloaded += 1;
                self.counts.preloaded_bytes += self.sizes.bytes(key);
                admitted.push(key);
            }
        }
        for &key in admitted.iter().rev() {
            self.policy.announce(key);
            self.policy.insert(key);
        }
        admitted
    }

    /// Changes the budget. When it shrinks, entries go in the policy's order until it holds, those of the last
    /// event only when nothing else is left; they are returned. Growing evicts nothing.
    pub fn set_budget(&mut self, bytes: u64) -> &[Key] {
        self.budget_bytes = bytes;
        let share = bytes / (self.pools.len() as u64).max(1);
        self.policy.set_budget(share);
        self.made_room.clear();
        let now = self.now;
        for pool in 0..self.pools.len() {
            self.pools[pool].budget = share;
            while self.pools[pool].resident > share {
                let last_use = &self.last_use;
                let victim = self
                    .policy
                    .evict(pool, |key| last_use[key.index()] >= now)
                    .or_else(|| self.policy.evict(pool, |_| false));
                let Some(victim) = victim else { break };
                self.remove(victim);
                self.made_room.push(victim);
            }
        }
        &self.made_room
    }

    #[inline]
    fn pool(&self, layer: usize) -> usize {
        if self.pools.len() == 1 { 0 } else { layer }
    }

    /// Bytes of a pool that a prefetch must leave alone.
    fn protected_bytes(&self, pool: usize) -> u64 {
        let speculative = self.pools[pool].speculative;
        let Some(layer) = self.event_layer.filter(|layer| self.pool(*layer) == pool) else {
            return speculative;
        };
        let experts = self.event.hits.iter().chain(&self.event.misses);
        let resident = experts.filter(|expert| {
            self.presence[self.sizes.key(layer, **expert).index()] == Presence::Resident
        });
        speculative + resident.count() as u64 * self.sizes.layer_bytes(layer)
    }

    fn add(&mut self, key: Key, presence: Presence) {
        let (layer, bytes) = (self.sizes.layer(key), self.sizes.bytes(key));
        let pool = self.pool(layer);
        self.presence[key.index()] = presence;
        self.pools[pool].resident += bytes;
        self.resident_bytes += bytes;
    }

    /// Accounts for an entry that the policy gave up.
    #[inline]
    fn remove(&mut self, key: Key) {
        let layer = self.sizes.layer(key);
        let bytes = self.sizes.layer_bytes(layer);
        let pool = self.pool(layer);
        let was = std::mem::replace(&mut self.presence[key.index()], Presence::Absent);
        if was == Presence::Speculative {
            self.pools[pool].speculative -= bytes;
            self.counts.prefetch_wasted += 1;
            self.counts.prefetch_wasted_bytes += bytes;
        }
        self.pools[pool].resident -= bytes;
        self.resident_bytes -= bytes;
        self.counts.evictions += 1;
    }

    /// Whether an entry is in the cache.
    #[inline]
    #[must_use]
    pub fn contains(&self, key: Key) -> bool {
        self.presence[key.index()] != Presence::Absent
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
