use super::list::{Links, List};
use crate::{Key, Policy};

/// First in, first out: a use changes nothing.
#[derive(Debug, Clone)]
pub struct Fifo {
    links: Links,
    residents: List,
}

impl Fifo {
    /// For keys `0..entries`.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        Self { links: Links::new(entries), residents: List::EMPTY }
    }
}

impl Policy for Fifo {
    #[inline]
    fn insert(&mut self, key: Key) {
        self.residents.push_newest(&mut self.links, key);
    }

    #[inline]
    fn hit(&mut self, _key: Key) {}

    #[inline]
    fn evict(&mut self, _layer: usize, protected: impl Fn(Key) -> bool) -> Option<Key> {
        let victim = self.residents.oldest_unprotected(&self.links, protected)?;
        self.residents.unlink(&mut self.links, victim);
        Some(victim)
    }
}
