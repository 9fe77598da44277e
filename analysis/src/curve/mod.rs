//! LRU's hit rate at every budget, from one pass over a trace.
//!
//! Mattson's stack algorithm (IBM Systems Journal 9(2), 1970) with entries of different sizes and events that are
//! atomic. Behind every event an LRU cache of `B` bytes holds the longest prefix of the recency stack that fits into
//! `B`: an event's entries are on top of the stack behind it, what makes room for them goes from the bottom, and the
//! entry below the prefix is the last one that did not fit. So a look-up is a hit exactly if its entry and all entries
//! above it, in the stack as it was before the event, fit into the budget; and the sum of those bytes is all that has
//! to be known of it. That holds at any budget as the engine treats it ([`Overshoot::Never`]), and at budgets of at
//! least the largest event under either rule.
//!
//! [`Overshoot::Never`]: bmoe_cache::Overshoot::Never

mod histogram;
pub(crate) mod stack;

use bmoe_trace::record::Phase;

use crate::simulate::{Accesses, Counted, SimulateError};
use histogram::Histogram;
use stack::Stack;

/// What LRU does from one budget on, up to the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The smallest budget of which this is true.
    pub budget_bytes: u64,
    /// The prompt. Evictions are not counted.
    pub prefill: Counted,
    /// Generated tokens. Evictions are not counted.
    pub decode: Counted,
}

impl Step {
    /// Prompt and generated tokens.
    #[must_use]
    pub const fn total(&self) -> Counted {
        self.prefill.plus(self.decode)
    }
}

/// Where LRU begins to be of use: below one token's experts it has forgotten an expert when the next token could
/// use it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cliff {
    /// Experts of one token, all layers.
    pub token_bytes: u64,
    /// The smallest budget with any hit in decode; `None` = no budget has one.
    pub first_hit_bytes: Option<u64>,
    /// Decode at a budget of exactly one token's experts.
    pub at_token: Counted,
}

/// LRU's whole curve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LruCurve {
    steps: Vec<Step>,
    token_bytes: u64,
    decode_tokens: usize,
}

impl LruCurve {
    /// Of all budgets at once.
    ///
    /// # Errors
    /// The trace is empty or does not know its sizes.
    pub fn new(accesses: &Accesses) -> Result<Self, SimulateError> {
        if accesses.is_empty() {
            return Err(SimulateError::Empty(""));
        }
        if !accesses.sized() {
            return Err(SimulateError::NoSizes);
        }
        let n_expert = accesses.n_expert() as usize;
        let sizes: Vec<u64> = accesses.layers().iter().map(|layer| layer.expert_bytes).collect();
        let mut stack = Stack::new(sizes.len() * n_expert);
        let mut histogram = Histogram::new(&sizes);
        let mut seen = vec![0_u64; n_expert];
        for (number, event) in (1..).zip(accesses.events()) {
            let entry_bytes = sizes[event.layer];
            let first_key = event.layer * n_expert;
            let decode = event.phase == Phase::Decode;
            for &expert in event.experts {
                let seen = &mut seen[usize::from(expert)];
                if std::mem::replace(seen, number) == number {
                    continue;
                }
                match stack.bytes_down_to(first_key + usize::from(expert)) {
                    Some(bytes) => histogram.add(bytes, decode, entry_bytes),
                    None => histogram.add_first_use(decode, entry_bytes),
                }
            }
            for &expert in event.experts {
                stack.renew(first_key + usize::from(expert), entry_bytes);
            }
        }
        Ok(Self {
            steps: histogram.into_steps(),
            token_bytes: accesses.token_bytes(),
            decode_tokens: accesses.decode_tokens(),
        })
    }

    /// Where it changes, by budget; the first one is at 0 bytes.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Tokens of decode.
    #[must_use]
    pub const fn decode_tokens(&self) -> usize {
        self.decode_tokens
    }

    /// What LRU does with a budget.
    #[must_use]
    pub fn at(&self, budget_bytes: u64) -> Step {
        let above = self.steps.partition_point(|step| step.budget_bytes <= budget_bytes);
        // The first step is at 0.
        self.steps[above.saturating_sub(1)]
    }

    /// The step with the smallest budget at which decode's hit rate is at least so many percent; `None` when no
    /// budget reaches it, since first uses miss in any cache.
    #[must_use]
    pub fn smallest_for(&self, decode_hit_pct: f64) -> Option<Step> {
        let below = |step: &Step| step.decode.hit_pct().is_some_and(|pct| pct < decode_hit_pct);
        self.steps.get(self.steps.partition_point(below)).copied()
    }

    /// The highest hit rate of decode in percent: only first uses miss.
    #[must_use]
    pub fn highest_hit_pct(&self) -> Option<f64> {
        self.steps.last()?.decode.hit_pct()
    }

    /// One token's experts on the curve.
    #[must_use]
    pub fn cliff(&self) -> Cliff {
        let first_hit = self.steps.iter().find(|step| step.decode.hits > 0);
        Cliff {
            token_bytes: self.token_bytes,
            first_hit_bytes: first_hit.map(|step| step.budget_bytes),
            at_token: self.at(self.token_bytes).decode,
        }
    }
}
