use crate::{Key, Policy};

/// Draws before the residents are counted instead.
const DRAWS: usize = 64;

/// Evicts any entry, each with the same probability. The same seed and calls give the same victims.
#[derive(Debug, Clone)]
pub struct Random {
    residents: Vec<u32>,
    /// State of the generator (`SplitMix64`: Steele, Lea, Flood, OOPSLA 2014).
    state: u64,
}

impl Random {
    /// For keys `0..entries`.
    #[must_use]
    pub fn new(entries: usize, seed: u64) -> Self {
        Self { residents: Vec::with_capacity(entries), state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0. The bias is below n / 2^64.
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

impl Policy for Random {
    #[inline]
    fn insert(&mut self, key: Key) {
        self.residents.push(key.0);
    }

    #[inline]
    fn hit(&mut self, _key: Key) {}

    #[inline]
    fn evict(&mut self, _layer: usize, protected: impl Fn(Key) -> bool) -> Option<Key> {
        if self.residents.is_empty() {
            return None;
        }
        // Drawing again when the entry is protected keeps the others equally probable.
        for _ in 0..DRAWS {
            let at = self.below(self.residents.len());
            if !protected(Key(self.residents[at])) {
                return Some(Key(self.residents.swap_remove(at)));
            }
        }
        let open = |at: &usize| !protected(Key(self.residents[*at]));
        let n = (0..self.residents.len()).filter(open).count();
        if n == 0 {
            return None;
        }
        let nth = self.below(n);
        let open = |at: &usize| !protected(Key(self.residents[*at]));
        let at = (0..self.residents.len()).filter(open).nth(nth)?;
        Some(Key(self.residents.swap_remove(at)))
    }
}
