//! `unbounded`

use bmoe_cache::EntrySizes;

use super::replay::{Outcome, Replay};

/// Room for everything: an entry misses at its first use and never again. What no policy can do better than.
#[derive(Debug, Clone)]
pub struct Unbounded {
    n_expert: usize,
    /// Number of the event that last used each entry; 0 = none yet.
    last_use: Vec<u64>,
    now: u64,
}

impl Unbounded {
    /// For all entries of `sizes`.
    #[must_use]
    pub fn new(sizes: &EntrySizes) -> Self {
        Self { n_expert: sizes.n_expert() as usize, last_use: vec![0; sizes.entries()], now: 0 }
    }
}

impl Replay for Unbounded {
    fn event(&mut self, layer: usize, experts: &[u16]) -> Outcome {
        self.now += 1;
        let mut outcome = Outcome::default();
        for &expert in experts {
            let last_use = &mut self.last_use[layer * self.n_expert + usize::from(expert)];
            match std::mem::replace(last_use, self.now) {
                0 => outcome.misses += 1,
                before if before < self.now => outcome.hits += 1,
                _ => {}
            }
        }
        outcome
    }
}
