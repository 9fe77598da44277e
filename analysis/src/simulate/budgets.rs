//! Budgets, and which are worth a look.

use std::fmt;

use super::accesses::Accesses;

const MIB: u64 = 1 << 20;

/// How much stays in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Budget {
    /// Bytes for all layers.
    Bytes(u64),
    /// So many experts of each layer, whatever their size.
    SlotsPerLayer(u32),
}

impl Budget {
    /// So many MiB.
    #[must_use]
    pub const fn mib(mib: u64) -> Self {
        Self::Bytes(mib * MIB)
    }
}

/// The number alone, in MiB or slots.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Bytes(bytes) if bytes.is_multiple_of(MIB) => (bytes / MIB).to_string(),
            Self::Bytes(bytes) => {
                let mib = format!("{:.6}", *bytes as f64 / MIB as f64);
                mib.trim_end_matches('0').trim_end_matches('.').to_owned()
            }
            Self::SlotsPerLayer(slots) => slots.to_string(),
        };
        f.pad(&text)
    }
}

/// Byte budgets of whole MiB from one token's experts to all that the trace uses: the former, then an eighth, a
/// quarter, three eighths, a half, three quarters and all of the latter.
#[must_use]
pub fn auto_budgets(accesses: &Accesses) -> Vec<Budget> {
    let (token, touched) = (accesses.token_bytes(), accesses.touched_bytes());
    let mut mib: Vec<u64> = [1, 2, 3, 4, 6, 8]
        .into_iter()
        .map(|eighths| touched / 8 * eighths + touched % 8 * eighths / 8)
        .filter(|bytes| *bytes > token)
        .chain([token, touched])
        .map(|bytes| bytes.div_ceil(MIB).max(1))
        .collect();
    mib.sort_unstable();
    mib.dedup();
    mib.into_iter().map(Budget::mib).collect()
}

/// Slots per layer: the experts of one token, doubled until a layer is whole.
#[must_use]
pub fn auto_slots(accesses: &Accesses) -> Vec<Budget> {
    let first = accesses.decode_event_experts().max(1) as u32;
    let doubled = std::iter::successors(Some(first), |slots| slots.checked_mul(2));
    let mut slots: Vec<u32> = doubled.take_while(|slots| *slots < accesses.n_expert()).collect();
    slots.push(accesses.n_expert().max(1));
    slots.into_iter().map(Budget::SlotsPerLayer).collect()
}
