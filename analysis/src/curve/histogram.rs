//! Hits by the smallest budget that has them.

use std::collections::HashMap;

use super::Step;
use crate::simulate::Counted;

/// Bins in a table; the rare trace whose sizes share no large divisor has the others in a map.
const TABLE_BINS: usize = 1 << 21;

/// Look-ups by bytes down to their entry. All sizes are multiples of their greatest common divisor, and so are all
/// sums of them: the bins are exact.
#[derive(Debug)]
pub(super) struct Histogram {
    unit: u64,
    table: Vec<Bin>,
    beyond: HashMap<u64, Bin>,
    first_uses: Bin,
}

/// Look-ups and their bytes, of prefill and decode.
#[derive(Debug, Clone, Copy, Default)]
struct Bin {
    lookups: [u64; 2],
    bytes: [u64; 2],
}

impl Bin {
    #[inline]
    fn add(&mut self, decode: bool, bytes: u64) {
        self.lookups[usize::from(decode)] += 1;
        self.bytes[usize::from(decode)] += bytes;
    }
}

impl Histogram {
    pub(super) fn new(sizes: &[u64]) -> Self {
        let unit = sizes.iter().copied().fold(0, greatest_common_divisor).max(1);
        Self { unit, table: Vec::new(), beyond: HashMap::new(), first_uses: Bin::default() }
    }

    /// A look-up that hits from a budget of `budget_bytes` on.
    #[inline]
    pub(super) fn add(&mut self, budget_bytes: u64, decode: bool, bytes: u64) {
        let bin = budget_bytes / self.unit;
        let at = bin as usize;
        if at >= TABLE_BINS {
            self.beyond.entry(bin).or_default().add(decode, bytes);
            return;
        }
        if at >= self.table.len() {
            let bins = (at + 1).next_power_of_two().min(TABLE_BINS);
            self.table.resize(bins, Bin::default());
        }
        self.table[at].add(decode, bytes);
    }

    /// A look-up that misses at any budget.
    pub(super) fn add_first_use(&mut self, decode: bool, bytes: u64) {
        self.first_uses.add(decode, bytes);
    }

    pub(super) fn into_steps(self) -> Vec<Step> {
        let mut bins: Vec<(u64, Bin)> = (0..).zip(self.table).collect();
        bins.extend(self.beyond);
        bins.retain(|(_, bin)| bin.lookups != [0, 0]);
        bins.sort_unstable_by_key(|(at, _)| *at);
        let all = bins.iter().map(|(_, bin)| bin).chain([&self.first_uses]);
        // At no budget everything misses.
        let mut counted = [Counted::default(); 2];
        for bin in all {
            for (phase, counted) in counted.iter_mut().enumerate() {
                counted.misses += bin.lookups[phase];
                counted.read_bytes += bin.bytes[phase];
            }
        }
        let step =
            |budget_bytes, [prefill, decode]: [Counted; 2]| Step { budget_bytes, prefill, decode };
        let mut steps = vec![step(0, counted)];
        for (at, bin) in bins {
            for (phase, counted) in counted.iter_mut().enumerate() {
                counted.hits += bin.lookups[phase];
                counted.misses -= bin.lookups[phase];
                counted.read_bytes -= bin.bytes[phase];
            }
            steps.push(step(at * self.unit, counted));
        }
        steps
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
