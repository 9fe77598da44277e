use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::Key;

/// (value, tick): the entry of lowest value goes first, among equals the one least recently used.
pub(crate) type Rank = (u64, u64);

/// The residents, lowest rank first, for ranks that only rise.
///
/// A use changes nothing here: what the heap holds is a lower bound, brought up to date when it comes to
/// the top. So a hit costs nothing and an eviction pays for the entries it looks at, while the victim
/// is exactly the one of lowest rank.
#[derive(Debug, Clone)]
pub(crate) struct LazyHeap {
    heap: BinaryHeap<Reverse<(Rank, u32)>>,
    /// Protected entries met during one eviction.
    aside: Vec<(Rank, u32)>,
}

impl LazyHeap {
    /// For keys `0..entries`.
    pub(crate) fn new(entries: usize) -> Self {
        Self { heap: BinaryHeap::with_capacity(entries), aside: Vec::with_capacity(entries) }
    }

    #[inline]
    pub(crate) fn push(&mut self, key: Key, rank: Rank) {
        self.heap.push(Reverse((rank, key.0)));
    }

    /// Removes the unprotected entry of lowest rank.
    #[inline]
    pub(crate) fn pop(
        &mut self,
        rank_of: impl Fn(Key) -> Rank,
        protected: impl Fn(Key) -> bool,
    ) -> Option<Key> {
        let victim = loop {
            let Some(mut top) = self.heap.peek_mut() else { break None };
            let Reverse((known, key)) = *top;
            let rank = rank_of(Key(key));
            if known != rank {
                *top = Reverse((rank, key));
            } else if protected(Key(key)) {
                PeekMut::pop(top);
                self.aside.push((rank, key));
            } else {
                PeekMut::pop(top);
                break Some(Key(key));
            }
        };
        for entry in self.aside.drain(..) {
            self.heap.push(Reverse(entry));
        }
        victim
    }
}
