use super::list::{Links, List};
use crate::{Key, Policy};

/// Least recently used.
#[derive(Debug, Clone)]
pub struct Lru {
    links: Links,
    residents: List,
}

impl Lru {
    /// For keys `0..entries`.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        Self { links: Links::new(entries), residents: List::EMPTY }
    }
}

impl Policy for Lru {
    #[inline]
    fn insert(&mut self, key: Key) {
        self.residents.push_newest(&mut self.links, key);
    }

    #[inline]
    fn hit(&mut self, key: Key) {
        self.residents.move_to_newest(&mut self.links, key);
    }

    #[inline]
    fn repeat(&mut self, key: Key) {
        self.hit(key);
    }

    #[inline]
    fn evict(&mut self, _layer: usize, protected: impl Fn(Key) -> bool) -> Option<Key> {
        let victim = self.residents.oldest_unprotected(&self.links, protected)?;
        self.residents.unlink(&mut self.links, victim);
        Some(victim)
    }
}
