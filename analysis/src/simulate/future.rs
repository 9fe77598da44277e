//! What comes next: when each access's entry is used again, and the set that knows its farthest member.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::accesses::Accesses;

/// Never used again.
pub(super) const NEVER: u32 = u32::MAX;

/// When every entry is used next.
///
/// The *position* of an access is its number among the distinct accesses of all events, an entry counting once
/// an event, in order of first use: the order in which a cache inserts and hits.
#[derive(Debug, Clone)]
pub struct Future {
    /// The position of the next use, per position; [`NEVER`] = none.
    next: Vec<u32>,
    /// The key of every position.
    keys: Vec<u32>,
    entries: usize,
}

impl Future {
    /// Of all accesses, with keys `layer * n_expert + expert`.
    #[must_use]
    pub fn of_all(accesses: &Accesses) -> Self {
        let n_expert = accesses.n_expert();
        let entries = accesses.layers().len() * n_expert as usize;
        let events = accesses.events().map(|e| (e.layer as u32 * n_expert, e.experts));
        Self::new(entries, events, accesses.rows())
    }

    /// Of each layer alone, with keys `expert`.
    #[must_use]
    pub fn of_each_layer(accesses: &Accesses) -> Vec<Self> {
        let entries = accesses.n_expert() as usize;
        let layers = 0..accesses.layers().len();
        layers
            .map(|layer| {
                let events = accesses.events().filter(|e| e.layer == layer);
                Self::new(entries, events.map(|e| (0, e.experts)), 0)
            })
            .collect()
    }

    fn new<'a>(
        entries: usize,
        events: impl Iterator<Item = (u32, &'a [u16])>,
        accesses: usize,
    ) -> Self {
        let mut future = Self {
            next: Vec::with_capacity(accesses),
            keys: Vec::with_capacity(accesses),
            entries,
        };
        // Position of the last use of every entry, and the first position of the running event.
        let mut last = vec![NEVER; entries];
        for (first_key, experts) in events {
            let event_start = future.next.len();
            for &expert in experts {
                let key = first_key + u32::from(expert);
                let before = last[key as usize];
                if before != NEVER {
                    if before as usize >= event_start {
                        continue;
                    }
                    future.next[before as usize] = future.next.len() as u32;
                }
                last[key as usize] = future.next.len() as u32;
                future.next.push(NEVER);
                future.keys.push(key);
            }
        }
        // `Simulator::check` refuses longer traces.
        debug_assert!(future.next.len() < NEVER as usize);
        future
    }

    /// Keys are below this.
    pub(super) const fn entries(&self) -> usize {
        self.entries
    }
}

/// The residents of a cache that knows the future, in the order in which they are used next.
#[derive(Debug, Clone)]
pub(super) struct Residents<'a> {
    future: &'a Future,
    /// Position of the access that comes next.
    at: usize,
    /// Next positions of the residents that are used again.
    waiting: Horizon,
    /// Residents that are not: the one inserted first goes first.
    spent: BinaryHeap<Reverse<(u64, u32)>>,
    /// When each entry came in.
    inserted: Vec<u64>,
    tick: u64,
}

impl<'a> Residents<'a> {
    pub(super) fn new(future: &'a Future) -> Self {
        Self {
            future,
            at: 0,
            waiting: Horizon::new(future.next.len()),
            spent: BinaryHeap::new(),
            inserted: vec![0; future.entries],
            tick: 0,
        }
    }

    /// The next access is to this entry, which comes in.
    #[inline]
    pub(super) fn insert(&mut self, key: u32) {
        self.tick += 1;
        self.inserted[key as usize] = self.tick;
        self.place(key);
    }

    /// The next access is to this entry, which is in.
    #[inline]
    pub(super) fn hit(&mut self, key: u32) {
        self.waiting.remove(self.at);
        self.place(key);
    }

    #[inline]
    fn place(&mut self, key: u32) {
        debug_assert_eq!(self.future.keys.get(self.at), Some(&key), "another trace than foreseen");
        match self.future.next[self.at] {
            NEVER => self.spent.push(Reverse((self.inserted[key as usize], key))),
            next => self.waiting.insert(next as usize),
        }
        self.at += 1;
    }

    /// The resident whose next use is farthest: one that is never used again, if there is any.
    #[inline]
    pub(super) fn farthest(&self) -> Option<u32> {
        match self.spent.peek() {
            Some(Reverse((_, key))) => Some(*key),
            None => self.waiting.farthest().map(|position| self.future.keys[position]),
        }
    }

    /// Takes away the one that [`Self::farthest`] names.
    #[inline]
    pub(super) fn remove_farthest(&mut self) -> Option<u32> {
        if let Some(Reverse((_, key))) = self.spent.pop() {
            return Some(key);
        }
        let position = self.waiting.farthest()?;
        self.waiting.remove(position);
        Some(self.future.keys[position])
    }
}

/// A set of positions that finds its highest in a few steps: a bit for each, and above each word of 64 bits
/// another bit that says whether it has any.
#[derive(Debug, Clone)]
struct Horizon {
    /// From the positions upwards; the last level has one word.
    levels: Vec<Vec<u64>>,
}

impl Horizon {
    fn new(positions: usize) -> Self {
        let mut levels = Vec::new();
        let mut bits = positions;
        loop {
            let words = bits.div_ceil(64).max(1);
            levels.push(vec![0; words]);
            if words == 1 {
                return Self { levels };
            }
            bits = words;
        }
    }

    #[inline]
    fn insert(&mut self, mut position: usize) {
        for level in &mut self.levels {
            let word = &mut level[position / 64];
            let was = *word;
            *word |= 1 << (position % 64);
            if was != 0 {
                return;
            }
            position /= 64;
        }
    }

    #[inline]
    fn remove(&mut self, mut position: usize) {
        for level in &mut self.levels {
            let word = &mut level[position / 64];
            *word &= !(1 << (position % 64));
            if *word != 0 {
                return;
            }
            position /= 64;
        }
    }

    #[inline]
    fn farthest(&self) -> Option<usize> {
        self.levels.iter().rev().try_fold(0, |at, level| {
            let highest = level[at].checked_ilog2()?;
            Some(at * 64 + highest as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_horizon_is_a_set_with_a_highest_member() {
        let mut horizon = Horizon::new(300_000);
        let mut model = BTreeSet::new();
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let position = (state >> 33) as usize % 300_000;
            if state & 1 << 20 == 0 {
                horizon.insert(position);
                model.insert(position);
            } else if let Some(highest) = model.pop_last() {
                assert_eq!(horizon.farthest(), Some(highest));
                horizon.remove(highest);
            }
        }
        assert_eq!(horizon.farthest(), model.last().copied());
        assert_eq!(Horizon::new(0).farthest(), None);
    }

    #[test]
    fn the_next_use_is_of_another_event() {
        // Entry 1 stands twice in the first event and comes back in the third.
        let events = [(0, [1, 2, 1].as_slice()), (4, [0].as_slice()), (0, [3, 1].as_slice())];
        let future = Future::new(8, events.into_iter(), 0);
        assert_eq!(future.keys, [1, 2, 4, 3, 1]);
        assert_eq!(future.next, [4, NEVER, NEVER, NEVER, NEVER]);
    }
}
