use super::list::{Links, List};
use crate::{EntrySizes, Key, Policy};

/// Uses are counted up to here.
const MAX_FREQUENCY: u8 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    None,
    Small,
    Main,
    Ghost,
}

/// S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023).
///
/// New entries wait in a small queue (a tenth of the bytes). Its oldest goes on to the main queue if it
/// was used more than once, and out otherwise, remembered by a ghost queue as long as the main one;
/// what comes back while remembered goes to the main queue at once. The main queue's oldest goes
/// around again as often as it was used, three times at most.
///
/// Where the paper's small queue moves an entry into a full main queue and then evicts from both, here the
/// one eviction that was asked for is done. Protected entries are passed over and stay where they are.
#[derive(Debug, Clone)]
pub struct S3Fifo {
    sizes: EntrySizes,
    links: Links,
    small: List,
    main: List,
    ghost: List,
    small_bytes: u64,
    main_bytes: u64,
    ghost_bytes: u64,
    /// Where each entry is.
    queue: Vec<Queue>,
    /// Uses since the entry came in or was moved.
    frequency: Vec<u8>,
    budget_bytes: u64,
}

impl S3Fifo {
    /// For all entries of `sizes`.
    #[must_use]
    pub fn new(sizes: &EntrySizes) -> Self {
        let entries = sizes.entries();
        Self {
            sizes: sizes.clone(),
            links: Links::new(entries),
            small: List::EMPTY,
            main: List::EMPTY,
            ghost: List::EMPTY,
            small_bytes: 0,
            main_bytes: 0,
            ghost_bytes: 0,
            queue: vec![Queue::None; entries],
            frequency: vec![0; entries],
            budget_bytes: 0,
        }
    }

    /// The small queue's part of the budget. Never 0, so that an empty queue isn't over its share.
    #[inline]
    fn small_share(&self) -> u64 {
        (self.budget_bytes / 10).max(1)
    }

    /// The rest of the budget, which is also what the ghost queue remembers.
    #[inline]
    fn main_share(&self) -> u64 {
        self.budget_bytes.saturating_sub(self.small_share())
    }

    #[inline]
    fn push(&mut self, queue: Queue, key: Key) {
        let bytes = self.sizes.bytes(key);
        let (list, sum) = match queue {
            Queue::Small => (&mut self.small, &mut self.small_bytes),
            Queue::Main => (&mut self.main, &mut self.main_bytes),
            Queue::Ghost => (&mut self.ghost, &mut self.ghost_bytes),
            Queue::None => return,
        };
        list.push_newest(&mut self.links, key);
        *sum += bytes;
        self.queue[key.index()] = queue;
    }

    #[inline]
    fn take(&mut self, key: Key) {
        let bytes = self.sizes.bytes(key);
        let (list, sum) = match self.queue[key.index()] {
            Queue::Small => (&mut self.small, &mut self.small_bytes),
            Queue::Main => (&mut self.main, &mut self.main_bytes),
            Queue::Ghost => (&mut self.ghost, &mut self.ghost_bytes),
            Queue::None => return,
        };
        list.unlink(&mut self.links, key);
        *sum -= bytes;
        self.queue[key.index()] = Queue::None;
    }

    fn evict_small(&mut self, protected: &impl Fn(Key) -> bool) -> Option<Key> {
        loop {
            let oldest = self.small.oldest_unprotected(&self.links, protected)?;
            self.take(oldest);
            if self.frequency[oldest.index()] <= 1 {
                self.push(Queue::Ghost, oldest);
                self.trim_ghost();
                return Some(oldest);
            }
            self.frequency[oldest.index()] = 0;
            self.push(Queue::Main, oldest);
            if self.main_bytes > self.main_share() {
                return self.evict_main(protected);
            }
        }
    }

    fn evict_main(&mut self, protected: &impl Fn(Key) -> bool) -> Option<Key> {
        loop {
            let oldest = self.main.oldest_unprotected(&self.links, protected)?;
            let frequency = &mut self.frequency[oldest.index()];
            if *frequency == 0 {
                self.take(oldest);
                return Some(oldest);
            }
            *frequency -= 1;
            self.main.move_to_newest(&mut self.links, oldest);
        }
    }

    fn trim_ghost(&mut self) {
        while self.ghost_bytes > self.main_share()
            && let Some(oldest) = self.ghost.oldest()
        {
            self.take(oldest);
        }
    }
}

impl Policy for S3Fifo {
    fn set_budget(&mut self, bytes: u64) {
        self.budget_bytes = bytes;
    }

    #[inline]
    fn insert(&mut self, key: Key) {
        let queue = match self.queue[key.index()] {
            Queue::Ghost => Queue::Main,
            _ => Queue::Small,
        };
        self.take(key);
        self.frequency[key.index()] = 0;
        self.push(queue, key);
    }

    #[inline]
    fn hit(&mut self, key: Key) {
        let frequency = &mut self.frequency[key.index()];
        *frequency = (*frequency + 1).min(MAX_FREQUENCY);
    }

    #[inline]
    fn evict(&mut self, _layer: usize, protected: impl Fn(Key) -> bool) -> Option<Key> {
        let from_small = self.small_bytes >= self.small_share();
        let first = if from_small { None } else { self.evict_main(&protected) };
        // What the small queue moves on without evicting is in the main queue then.
        first.or_else(|| self.evict_small(&protected)).or_else(|| self.evict_main(&protected))
    }
}
