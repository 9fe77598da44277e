//! `pinned-lru`

use bmoe_cache::{EntrySizes, Key, Lru, Policy};

use super::heat::Heat;

/// A pinned hot set, and LRU for the rest: the entries that the whole run uses most, as many as fit into half of the
/// budget, stay once they are there; the others share what is left, least recently used first out.
///
/// Pinned entries come in at their first use like all others, and until then their room is LRU's. They are given up
/// only when an event needs more than all the rest of the budget.
#[derive(Debug, Clone)]
pub struct PinnedLru {
    pinned: Vec<bool>,
    hot: Lru,
    others: Lru,
}

impl PinnedLru {
    /// Pins the hottest entries of `keys` (most used first): each that still fits into half of the budget.
    #[must_use]
    pub fn new(sizes: &EntrySizes, budget_bytes: u64, keys: &[u32]) -> Self {
        let mut room = budget_bytes / 2;
        let mut pinned = vec![false; sizes.entries()];
        for &key in keys {
            if let Some(left) = room.checked_sub(sizes.bytes(Key(key))) {
                room = left;
                pinned[key as usize] = true;
            }
        }
        Self { pinned, hot: Lru::new(sizes.entries()), others: Lru::new(sizes.entries()) }
    }

    /// The hottest entries of all layers.
    #[must_use]
    pub fn of_run(sizes: &EntrySizes, budget_bytes: u64, heat: &Heat) -> Self {
        Self::new(sizes, budget_bytes, &heat.hottest())
    }

    /// The hottest of one layer, whose keys are its experts.
    #[must_use]
    pub fn of_layer(sizes: &EntrySizes, budget_bytes: u64, heat: &Heat, layer: usize) -> Self {
        let keys: Vec<u32> = heat.hottest_of(layer).into_iter().map(u32::from).collect();
        Self::new(sizes, budget_bytes, &keys)
    }

    fn list(&mut self, key: Key) -> &mut Lru {
        if self.pinned[key.index()] { &mut self.hot } else { &mut self.others }
    }
}

impl Policy for PinnedLru {
    fn insert(&mut self, key: Key) {
        self.list(key).insert(key);
    }

    fn hit(&mut self, key: Key) {
        self.list(key).hit(key);
    }

    fn repeat(&mut self, key: Key) {
        self.hit(key);
    }

    fn evict(&mut self, layer: usize, protected: impl Fn(Key) -> bool) -> Option<Key> {
        self.others.evict(layer, &protected).or_else(|| self.hot.evict(layer, &protected))
    }
}
