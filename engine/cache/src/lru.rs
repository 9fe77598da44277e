use crate::{Key, Policy};

/// No neighbour.
const NONE: u32 = u32::MAX;

/// Least recently used: a doubly linked list threaded through one table of all entries, so that a
/// touch and an eviction cost a handful of writes and no allocation.
#[derive(Debug, Clone)]
pub struct Lru {
    /// (towards the older, towards the newer) of each entry.
    links: Vec<(u32, u32)>,
    oldest: u32,
    newest: u32,
}

impl Lru {
    /// For keys `0..entries`.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        Self { links: vec![(NONE, NONE); entries], oldest: NONE, newest: NONE }
    }

    fn unlink(&mut self, key: u32) {
        let (older, newer) = self.links[key as usize];
        match older {
            NONE => self.oldest = newer,
            _ => self.links[older as usize].1 = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => self.links[newer as usize].0 = older,
        }
    }

    fn push_newest(&mut self, key: u32) {
        self.links[key as usize] = (self.newest, NONE);
        match self.newest {
            NONE => self.oldest = key,
            _ => self.links[self.newest as usize].1 = key,
        }
        self.newest = key;
    }
}

impl Policy for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }

    fn touch(&mut self, key: Key, resident: bool) {
        if resident {
            self.unlink(key.0);
        }
        self.push_newest(key.0);
    }

    fn evict(&mut self, _protected: &dyn Fn(Key) -> bool) -> Option<Key> {
        // The entries of the event that just ran are the newest, so the oldest entry is one of them
        // only when nothing else is left: what the trait asks for.
        let key = self.oldest;
        (key != NONE).then(|| {
            self.unlink(key);
            Key(key)
        })
    }
}
