use super::list::{Links, List};
use crate::{EntrySizes, Key, Policy};

/// Which list an entry is in, by the paper's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Unknown.
    Nowhere,
    /// Resident, used once.
    T1,
    /// Resident, used again.
    T2,
    /// Remembered from `T1`.
    B1,
    /// Remembered from `T2`.
    B2,
    /// Announced while remembered: goes to `T2`.
    Returning,
}

/// Adaptive replacement cache (Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache",
/// FAST 2003).
///
/// Two LRU lists, of entries used once and more often, and for each the memory of what it lost. An entry
/// that returns from a memory shifts the target size `p` of `T1` in its list's favour. Sizes are in
/// bytes, `p` too; with equal entries that is the paper's algorithm.
///
/// Protected entries are passed over and stay where they are; `p` moves for every missing expert of an event
/// before room is made.
#[derive(Debug, Clone)]
pub struct AdaptiveReplacement {
    sizes: EntrySizes,
    links: Links,
    lists: [List; 4],
    /// Bytes of `T1`, `T2`, `B1`, `B2`.
    bytes: [u64; 4],
    at: Vec<At>,
    /// Target bytes of `T1` (`p`).
    target: f64,
    /// The last announced entry was in `B2`.
    from_b2: bool,
    budget_bytes: u64,
}

const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;

impl AdaptiveReplacement {
    /// For all entries of `sizes`.
    #[must_use]
    pub fn new(sizes: &EntrySizes) -> Self {
        Self {
            sizes: sizes.clone(),
            links: Links::new(sizes.entries()),
            lists: [List::EMPTY; 4],
            bytes: [0; 4],
            at: vec![At::Nowhere; sizes.entries()],
            target: 0.0,
            from_b2: false,
            budget_bytes: 0,
        }
    }

    #[inline]
    fn push(&mut self, list: usize, key: Key) {
        self.lists[list].push_newest(&mut self.links, key);
        self.bytes[list] += self.sizes.bytes(key);
        self.at[key.index()] = [At::T1, At::T2, At::B1, At::B2][list];
    }

    #[inline]
    fn take(&mut self, list: usize, key: Key) {
        self.lists[list].unlink(&mut self.links, key);
        self.bytes[list] -= self.sizes.bytes(key);
        self.at[key.index()] = At::Nowhere;
    }

    /// Forgets until `T1` and its memory are within the budget, and all lists within twice of it.
    fn trim(&mut self) {
        while self.bytes[T1] + self.bytes[B1] > self.budget_bytes
            && let Some(oldest) = self.lists[B1].oldest()
        {
            self.take(B1, oldest);
        }
        while self.bytes.iter().sum::<u64>() > 2 * self.budget_bytes
            && let Some(oldest) = self.lists[B2].oldest()
        {
            self.take(B2, oldest);
        }
    }
}

impl Policy for AdaptiveReplacement {
    fn set_budget(&mut self, bytes: u64) {
        self.budget_bytes = bytes;
        self.target = self.target.min(bytes as f64);
    }

    #[inline]
    fn announce(&mut self, key: Key) {
        let (b1, b2) = (self.bytes[B1] as f64, self.bytes[B2] as f64);
        let step = self.sizes.bytes(key) as f64;
        match self.at[key.index()] {
            At::B1 => {
                let step = step * (b2 / b1).max(1.0);
                self.target = (self.target + step).min(self.budget_bytes as f64);
                self.take(B1, key);
                self.at[key.index()] = At::Returning;
                self.from_b2 = false;
            }
            At::B2 => {
                self.target = (self.target - step * (b1 / b2).max(1.0)).max(0.0);
                self.take(B2, key);
                self.at[key.index()] = At::Returning;
                self.from_b2 = true;
            }
            _ => self.from_b2 = false,
        }
    }

    #[inline]
    fn insert(&mut self, key: Key) {
        let list = if self.at[key.index()] == At::Returning { T2 } else { T1 };
        self.push(list, key);
        self.trim();
    }

    #[inline]
    fn hit(&mut self, key: Key) {
        if self.at[key.index()] == At::T1 {
            self.take(T1, key);
            self.push(T2, key);
        } else {
            self.lists[T2].move_to_newest(&mut self.links, key);
        }
    }

    #[inline]
    fn repeat(&mut self, key: Key) {
        let list = if self.at[key.index()] == At::T1 { T1 } else { T2 };
        self.lists[list].move_to_newest(&mut self.links, key);
    }

    #[inline]
    fn evict(&mut self, _layer: usize, protected: impl Fn(Key) -> bool) -> Option<Key> {
        let once = self.bytes[T1] as f64;
        let from_t1 = once > self.target || (self.from_b2 && once == self.target);
        let order = if from_t1 { [T1, T2] } else { [T2, T1] };
        let (list, victim) = order.into_iter().find_map(|list| {
            let oldest = self.lists[list].oldest_unprotected(&self.links, &protected)?;
            Some((list, oldest))
        })?;
        self.take(list, victim);
        self.push(if list == T1 { B1 } else { B2 }, victim);
        Some(victim)
    }
}
