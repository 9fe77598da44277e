use super::list::{Links, List};
use crate::{Key, Policy};

/// SIEVE (Zhang et al., "SIEVE is simpler than LRU", NSDI 2024).
///
/// Entries stay in the order they came in. A hand goes from the oldest to the newest and around again: it
/// takes the mark of an entry that was used since it last came by, and evicts the first without one.
///
/// A protected entry that has no mark is passed over and stays where it is.
#[derive(Debug, Clone)]
pub struct Sieve {
    links: Links,
    queue: List,
    /// Used since the hand came by.
    visited: Vec<bool>,
    /// The entry to look at next; `None` = the oldest.
    hand: Option<Key>,
    len: usize,
}

impl Sieve {
    /// For keys `0..entries`.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        Self {
            links: Links::new(entries),
            queue: List::EMPTY,
            visited: vec![false; entries],
            hand: None,
            len: 0,
        }
    }
}

impl Policy for Sieve {
    #[inline]
    fn insert(&mut self, key: Key) {
        self.visited[key.index()] = false;
        self.queue.push_newest(&mut self.links, key);
        self.len += 1;
    }

    #[inline]
    fn hit(&mut self, key: Key) {
        self.visited[key.index()] = true;
    }

    #[inline]
    fn evict(&mut self, _layer: usize, protected: impl Fn(Key) -> bool) -> Option<Key> {
        // Once around takes all marks, so twice around finds whatever is not protected.
        for _ in 0..2 * self.len {
            let at = self.hand.or_else(|| self.queue.oldest())?;
            self.hand = self.links.newer(at);
            if !std::mem::take(&mut self.visited[at.index()]) && !protected(at) {
                self.queue.unlink(&mut self.links, at);
                self.len -= 1;
                return Some(at);
            }
        }
        None
    }
}
