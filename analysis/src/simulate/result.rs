//! What a simulation says.

use super::budgets::Budget;
use super::kind::SimPolicy;
use super::replay::Outcome;
use crate::device_model::DeviceModel;

const MIB: f64 = 1024.0 * 1024.0;

/// Totals of one phase. One look-up per distinct expert per event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Look-ups that found their expert.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Bytes of the misses; 0 when sizes are not known.
    pub read_bytes: u64,
    /// Entries that left, and those of an event that were not kept.
    pub evictions: u64,
}

impl Counted {
    #[inline]
    pub(super) fn add(&mut self, outcome: Outcome, read_bytes: u64) {
        self.hits += outcome.hits;
        self.misses += outcome.misses;
        self.evictions += outcome.evictions;
        self.read_bytes += read_bytes;
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            read_bytes: self.read_bytes + other.read_bytes,
            evictions: self.evictions + other.evictions,
        }
    }

    /// Hits over look-ups in percent; `None` without a look-up.
    #[must_use]
    pub fn hit_pct(self) -> Option<f64> {
        let lookups = self.hits + self.misses;
        (lookups > 0).then(|| 100.0 * self.hits as f64 / lookups as f64)
    }
}

/// A trace replayed through one policy with one budget.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    /// The policy.
    pub policy: SimPolicy,
    /// The budget.
    pub budget: Budget,
    /// The prompt.
    pub prefill: Counted,
    /// Generated tokens.
    pub decode: Counted,
    /// How many tokens were generated.
    pub decode_tokens: usize,
    /// Bytes read by each decode step; `None` when sizes are not known.
    pub step_bytes: Option<Vec<u64>>,
}

impl Simulation {
    /// Prompt and generated tokens.
    #[must_use]
    pub const fn total(&self) -> Counted {
        self.prefill.plus(self.decode)
    }

    /// MiB read, prompt included; `None` when sizes are not known.
    #[must_use]
    pub fn read_mib(&self) -> Option<f64> {
        self.step_bytes.as_ref().map(|_| self.total().read_bytes as f64 / MIB)
    }

    /// MiB read per generated token, prompt excluded; `None` without a token or when sizes are not known.
    #[must_use]
    pub fn mib_per_token(&self) -> Option<f64> {
        self.step_bytes.as_ref().filter(|_| self.decode_tokens > 0)?;
        Some(self.decode.read_bytes as f64 / MIB / self.decode_tokens as f64)
    }

    /// Generated tokens per second on a device; `None` without a token or when sizes are not known.
    #[must_use]
    pub fn tok_s(&self, device: &DeviceModel) -> Option<f64> {
        device.tok_s(self.decode_tokens, self.step_bytes.as_deref()?)
    }
}
