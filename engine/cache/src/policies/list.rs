//! Doubly linked lists threaded through one table of all entries: every operation costs a handful of
//! writes and no allocation.

use crate::Key;

/// No neighbour.
const NONE: u32 = u32::MAX;

/// The neighbours of every entry. An entry is in one list of a table at most.
#[derive(Debug, Clone)]
pub(crate) struct Links {
    /// (towards the oldest, towards the newest).
    table: Vec<(u32, u32)>,
}

impl Links {
    /// For keys `0..entries`.
    pub(crate) fn new(entries: usize) -> Self {
        Self { table: vec![(NONE, NONE); entries] }
    }

    /// The next newer entry of the list that `key` is in.
    #[inline]
    pub(crate) fn newer(&self, key: Key) -> Option<Key> {
        some(self.table[key.index()].1)
    }
}

/// One list, from the oldest to the newest entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    oldest: u32,
    newest: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { oldest: NONE, newest: NONE };

    #[inline]
    pub(crate) fn oldest(&self) -> Option<Key> {
        some(self.oldest)
    }

    #[inline]
    pub(crate) fn push_newest(&mut self, links: &mut Links, key: Key) {
        links.table[key.index()] = (self.newest, NONE);
        match self.newest {
            NONE => self.oldest = key.0,
            newest => links.table[newest as usize].1 = key.0,
        }
        self.newest = key.0;
    }

    /// Takes an entry of this list out of it.
    #[inline]
    pub(crate) fn unlink(&mut self, links: &mut Links, key: Key) {
        let (older, newer) = links.table[key.index()];
        match older {
            NONE => self.oldest = newer,
            _ => links.table[older as usize].1 = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => links.table[newer as usize].0 = older,
        }
    }

    /// Makes an entry of this list its newest one.
    #[inline]
    pub(crate) fn move_to_newest(&mut self, links: &mut Links, key: Key) {
        if self.newest != key.0 {
            self.unlink(links, key);
            self.push_newest(links, key);
        }
    }

    /// The oldest entry that is not protected.
    #[inline]
    pub(crate) fn oldest_unprotected(
        &self,
        links: &Links,
        protected: impl Fn(Key) -> bool,
    ) -> Option<Key> {
        let mut at = self.oldest;
        while at != NONE && protected(Key(at)) {
            at = links.table[at as usize].1;
        }
        some(at)
    }
}

#[inline]
fn some(key: u32) -> Option<Key> {
    (key != NONE).then_some(Key(key))
}
