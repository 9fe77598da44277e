use super::heap::LazyHeap;
use crate::{Key, Policy};

/// LFU with dynamic ageing (LFU-DA: Arlitt et al., "Evaluating content management techniques for Web
/// proxy caches", SIGMETRICS PER 27(4), 2000).
///
/// An entry's value is its touches since it came in plus the cache's age `L` at its last touch; the
/// lowest value goes, among equals the least recently used, and `L` becomes the victim's value. So
/// what was hot long ago is overtaken by what is used now.
#[derive(Debug, Clone)]
pub struct LfuAged {
    /// Touches since the entry came in.
    touches: Vec<u64>,
    /// (value, tick of the last touch) of every entry.
    values: Vec<(u64, u64)>,
    tick: u64,
    /// `L`. A protected entry can be passed over, so a later victim may have a lower value; the age
    /// never falls.
    age: u64,
    residents: LazyHeap,
}

impl LfuAged {
    /// For keys `0..entries`.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        Self {
            touches: vec![0; entries],
            values: vec![(0, 0); entries],
            tick: 0,
            age: 0,
            residents: LazyHeap::new(entries),
        }
    }
}

impl Policy for LfuAged {
    #[inline]
    fn insert(&mut self, key: Key) {
        self.touches[key.index()] = 0;
        self.hit(key);
        self.residents.push(key, self.values[key.index()]);
    }

    #[inline]
    fn hit(&mut self, key: Key) {
        self.tick += 1;
        let touches = &mut self.touches[key.index()];
        *touches += 1;
        self.values[key.index()] = (*touches + self.age, self.tick);
    }

    #[inline]
    fn repeat(&mut self, key: Key) {
        self.tick += 1;
        self.values[key.index()].1 = self.tick;
    }

    #[inline]
    fn evict(&mut self, _layer: usize, protected: impl Fn(Key) -> bool) -> Option<Key> {
        let victim = self.residents.pop(|key| self.values[key.index()], protected)?;
        self.age = self.age.max(self.values[victim.index()].0);
        Some(victim)
    }
}
