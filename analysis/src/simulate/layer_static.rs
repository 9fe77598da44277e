//! `layer-static`

use bmoe_cache::EntrySizes;

use super::heat::Heat;
use super::replay::{Outcome, Replay};

/// A fixed set: each layer owns `floor(budget / layers)` bytes and keeps the experts that the whole run uses most in
/// that layer, as many as fit, for good.
///
/// A pinned expert is read once, at its first use; every other one is read whenever it is used and never kept.
/// So this is the best that a profile of the very same run could do without moving anything: an upper bound for
/// static placement, not something that could be known beforehand.
#[derive(Debug, Clone)]
pub struct LayerStatic {
    n_expert: usize,
    states: Vec<State>,
    /// Number of the event that last used an expert of its layer.
    seen: Vec<u64>,
    now: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unpinned,
    /// Pinned and not used yet.
    Awaited,
    Present,
}

impl LayerStatic {
    /// Pins the hottest experts of each layer.
    #[must_use]
    pub fn new(sizes: &EntrySizes, budget_bytes: u64, heat: &Heat) -> Self {
        let n_expert = sizes.n_expert() as usize;
        let share = budget_bytes / (sizes.layers() as u64).max(1);
        let mut states = vec![State::Unpinned; sizes.entries()];
        for layer in 0..sizes.layers() {
            let fit = share.checked_div(sizes.layer_bytes(layer)).unwrap_or(0);
            for expert in heat.hottest_of(layer).into_iter().take(fit as usize) {
                states[layer * n_expert + usize::from(expert)] = State::Awaited;
            }
        }
        Self { n_expert, states, seen: vec![0; n_expert], now: 0 }
    }
}

impl Replay for LayerStatic {
    fn event(&mut self, layer: usize, experts: &[u16]) -> Outcome {
        self.now += 1;
        let mut outcome = Outcome::default();
        for &expert in experts {
            let expert = usize::from(expert);
            if std::mem::replace(&mut self.seen[expert], self.now) == self.now {
                continue;
            }
            let state = &mut self.states[layer * self.n_expert + expert];
            match state {
                State::Present => outcome.hits += 1,
                State::Awaited => {
                    *state = State::Present;
                    outcome.misses += 1;
                }
                State::Unpinned => {
                    outcome.misses += 1;
                    outcome.evictions += 1;
                }
            }
        }
        outcome
    }
}
