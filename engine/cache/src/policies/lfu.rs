use super::heap::LazyHeap;
use crate::{Key, Policy};

/// Least frequently used: fewest touches ever goes first, among equals the least recently used.
///
/// Counts outlive eviction; every event that uses an entry is one touch, the one that brings it in included.
#[derive(Debug, Clone)]
pub struct Lfu {
    /// (touches, tick of the last one) of every entry.
    uses: Vec<(u64, u64)>,
    tick: u64,
    residents: LazyHeap,
}

impl Lfu {
    /// For keys `0..entries`.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        Self { uses: vec![(0, 0); entries], tick: 0, residents: LazyHeap::new(entries) }
    }
}

impl Policy for Lfu {
    #[inline]
    fn insert(&mut self, key: Key) {
        self.hit(key);
        self.residents.push(key, self.uses[key.index()]);
    }

    #[inline]
    fn hit(&mut self, key: Key) {
        self.tick += 1;
        let uses = &mut self.uses[key.index()];
        *uses = (uses.0 + 1, self.tick);
    }

    #[inline]
    fn repeat(&mut self, key: Key) {
        self.tick += 1;
        self.uses[key.index()].1 = self.tick;
    }

    #[inline]
    fn evict(&mut self, _layer: usize, protected: impl Fn(Key) -> bool) -> Option<Key> {
        self.residents.pop(|key| self.uses[key.index()], protected)
    }
}
