//! `belady`

use bmoe_cache::{Key, Policy};

use super::future::{Future, Residents};

/// Belady's MIN (IBM Systems Journal 5(2), 1966) as a policy of the engine's cache: what misses must come in, and
/// the resident whose next use is farthest makes room.
///
/// Among those never used again the one inserted first goes first; of several experts that are used next in the
/// same event the last in the router's order.
#[derive(Debug, Clone)]
pub struct Belady<'a> {
    residents: Residents<'a>,
}

impl<'a> Belady<'a> {
    /// For a replay of exactly the accesses that `future` was made from.
    #[must_use]
    pub fn new(future: &'a Future) -> Self {
        Self { residents: Residents::new(future) }
    }
}

impl Policy for Belady<'_> {
    #[inline]
    fn insert(&mut self, key: Key) {
        self.residents.insert(key.0);
    }

    #[inline]
    fn hit(&mut self, key: Key) {
        self.residents.hit(key.0);
    }

    /// The running event is the nearest use of all, so when the farthest is protected every other one is.
    #[inline]
    fn evict(&mut self, _layer: usize, protected: impl Fn(Key) -> bool) -> Option<Key> {
        let farthest = self.residents.farthest().map(Key)?;
        if protected(farthest) {
            return None;
        }
        self.residents.remove_farthest().map(Key)
    }
}
