//! When an engine-chosen cache changes its size.
//!
//! It shrinks as soon as less than half of the reserve can be had, by what is missing to the whole reserve,
//! at least a sixteenth. It grows only after a calm of [`FIRST_CALM`] in which every look found room for the
//! step and two reserves; by an eighth at a time, never beyond where it began. Every shrink behind a growth
//! doubles the calm that the next growth needs, so that two programs that want the same memory don't
//! take it from each other for ever.

use std::time::Duration;

/// How long there must have been enough memory before the cache grows for the first time.
const FIRST_CALM: Duration = Duration::from_secs(30);

/// What a governor keeps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Memory to leave alone.
    pub(super) reserve_bytes: u64,
    /// Mapped weights, which look as if they could be had.
    pub(super) mapped_bytes: u64,
    /// The budget never becomes smaller than this.
    pub(super) lowest_bytes: u64,
    /// Nor larger than this, where it begins.
    pub(super) highest_bytes: u64,
}

/// Decides from what is available over time. Knows no clock and no system.
#[derive(Debug)]
pub(super) struct Governor {
    limits: Limits,
    /// Since when every look found enough to grow.
    calm_since: Option<Duration>,
    calm_needed: Duration,
    grew: bool,
}

impl Governor {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, calm_since: None, calm_needed: FIRST_CALM, grew: false }
    }

    /// The new budget, if it is to change. `budget` is the present one, of which `unused` bytes have never been
    /// filled (they still count as available).
    pub(super) fn decide(
        &mut self,
        now: Duration,
        available: u64,
        budget: u64,
        unused: u64,
    ) -> Option<u64> {
        let Limits { reserve_bytes, mapped_bytes, lowest_bytes, highest_bytes } = self.limits;
        let left = available.saturating_sub(unused + mapped_bytes);
        if left < reserve_bytes / 2 {
            self.calm_since = None;
            // What is not available and yet claimed is missing on top.
            let missing = (reserve_bytes + unused + mapped_bytes).saturating_sub(available);
            let target = budget.saturating_sub(missing.max(budget / 16)) >> 20 << 20;
            let target = target.max(lowest_bytes);
            if target >= budget {
                return None;
            }
            if std::mem::take(&mut self.grew) {
                self.calm_needed *= 2;
            }
            return Some(target);
        }
        let step = (highest_bytes / 8).min(highest_bytes.saturating_sub(budget));
        if step == 0 || left < 2 * reserve_bytes + step {
            self.calm_since = None;
            return None;
        }
        let since = *self.calm_since.get_or_insert(now);
        if now.saturating_sub(since) < self.calm_needed {
            return None;
        }
        self.calm_since = None;
        self.grew = true;
        Some(budget + step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn governor(mapped: u64) -> Governor {
        Governor::new(Limits {
            reserve_bytes: 100 * MIB,
            mapped_bytes: mapped * MIB,
            lowest_bytes: 500 * MIB,
            highest_bytes: 1600 * MIB,
        })
    }

    fn decide(governor: &mut Governor, second: u64, available: u64, budget: u64) -> Option<u64> {
        let now = Duration::from_secs(second);
        governor.decide(now, available * MIB, budget * MIB, 0).map(|b| b / MIB)
    }

    #[test]
    fn it_shrinks_by_what_is_missing_and_stops_at_the_floor() {
        let mut g = governor(0);
        assert_eq!(decide(&mut g, 0, 100, 1600), None);
        assert_eq!(decide(&mut g, 1, 50, 1600), None);
        // 60 are missing, but a sixteenth is 100.
        assert_eq!(decide(&mut g, 2, 40, 1600), Some(1500));
        assert_eq!(decide(&mut g, 3, 0, 1000), Some(900));
        assert_eq!(decide(&mut g, 4, 0, 550), Some(500));
        assert_eq!(decide(&mut g, 5, 0, 500), None);
        // Mapped weights and what the cache has yet to fill are not free for others.
        assert_eq!(decide(&mut governor(200), 0, 240, 1600), Some(1500));
        let now = Duration::ZERO;
        let unused = governor(0).decide(now, 400 * MIB, 1600 * MIB, 700 * MIB);
        assert_eq!(unused, Some(1200 * MIB));
    }

    #[test]
    fn it_grows_after_a_calm_by_steps_to_where_it_began() {
        let mut g = governor(0);
        assert_eq!(decide(&mut g, 0, 3000, 1000), None);
        assert_eq!(decide(&mut g, 29, 3000, 1000), None);
        // One look without enough begins the calm anew.
        assert_eq!(decide(&mut g, 30, 399, 1000), None);
        assert_eq!(decide(&mut g, 31, 3000, 1000), None);
        assert_eq!(decide(&mut g, 60, 3000, 1000), None);
        assert_eq!(decide(&mut g, 61, 3000, 1000), Some(1200));
        assert_eq!(decide(&mut g, 62, 3000, 1550), None);
        assert_eq!(decide(&mut g, 92, 3000, 1550), Some(1600));
        assert_eq!(decide(&mut g, 500, 3000, 1600), None);
        assert_eq!(decide(&mut g, 900, 3000, 1600), None);
    }

    #[test]
    fn a_fight_ends_since_every_round_takes_twice_as_long() {
        let mut g = governor(0);
        let (mut budget, mut growths) = (1000, Vec::new());
        // Another program takes the memory whenever the cache has grown.
        for second in 0..2000 {
            let available = if budget > 1000 { 0 } else { 1000 };
            if let Some(next) = decide(&mut g, second, available, budget) {
                if next > budget {
                    growths.push(second);
                }
                budget = if next > budget { next } else { 1000 };
            }
        }
        assert_eq!(growths.len(), 6, "{growths:?}");
        assert!(growths.windows(3).all(|w| w[2] - w[1] > 2 * (w[1] - w[0]) - 10), "{growths:?}");
    }
}
