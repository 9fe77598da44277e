//! Changes of a token's choice in one layer.

use serde::Serialize;

/// A change of what the router chose.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Change {
    /// As recorded.
    None,
    /// Only the first so many in the router's order.
    Fewer {
        /// How many.
        experts: usize,
    },
    /// Experts that are not in the cache and weigh less than this are not computed; the heaviest always is.
    DropCold {
        /// The bound, as a part of an even share 1/k of the token's weight.
        share_of_even: f64,
    },
    /// Max-rank (arXiv 2412.00099): among the best `candidates` those in the cache come first, but for the best
    /// `guaranteed`, which are always computed.
    MaxRank {
        /// How many are taken as they are (J).
        guaranteed: usize,
        /// How many may be promoted (M).
        candidates: usize,
    },
}

/// One token in one layer, as recorded.
pub(super) struct Choice<'a> {
    /// In the router's order.
    pub(super) experts: &'a [u16],
    /// Beside them; empty = not known.
    pub(super) weights: &'a [f32],
    /// The best experts, best first; empty = not recorded.
    pub(super) scored: &'a [u16],
    /// Their scores.
    pub(super) scores: &'a [f32],
}

impl Change {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "as recorded",
            Self::Fewer { .. } => "fewer experts",
            Self::DropCold { .. } => "drop cold misses",
            Self::MaxRank { .. } => "cache-aware",
        }
    }

    /// Its figures, for tables.
    #[must_use]
    pub fn setting(self, top_k: usize) -> String {
        match self {
            Self::None => format!("top-{top_k}"),
            Self::Fewer { experts } => format!("top-{experts}"),
            Self::DropCold { share_of_even } => {
                format!("weight below {share_of_even}/{top_k}")
            }
            Self::MaxRank { guaranteed, candidates } => {
                format!("max-rank J={guaranteed} M={candidates}")
            }
        }
    }

    /// What is computed instead goes to `instead`; returns the share of the weight that is lost, 0 to 1, when that is
    /// known.
    pub(super) fn choose(
        self,
        choice: &Choice<'_>,
        resident: impl Fn(u16) -> bool,
        instead: &mut Vec<u16>,
    ) -> Option<f64> {
        instead.clear();
        match self {
            Self::None => instead.extend_from_slice(choice.experts),
            Self::Fewer { experts } => {
                let first = &choice.experts[..experts.min(choice.experts.len())];
                instead.extend_from_slice(first);
            }
            Self::DropCold { share_of_even } => {
                let bound = share_of_even / choice.experts.len() as f64;
                // A weight that is not known drops nothing.
                let share = |i: usize| choice.share(i).unwrap_or(f64::INFINITY);
                let heaviest = (0..choice.experts.len())
                    .max_by(|a, b| share(*a).total_cmp(&share(*b)).then(b.cmp(a)));
                let kept = choice.experts.iter().enumerate().filter(|(i, expert)| {
                    let light = share(*i) < bound;
                    !light || Some(*i) == heaviest || resident(**expert)
                });
                instead.extend(kept.map(|(_, expert)| *expert));
            }
            Self::MaxRank { guaranteed, candidates } => {
                // The router's own order first, since a bias may have made its choice; then by score.
                let more = choice.scored.iter().filter(|e| !choice.experts.contains(e));
                let ranked: Vec<u16> =
                    choice.experts.iter().chain(more).copied().take(candidates).collect();
                let (first, rest) = ranked.split_at(guaranteed.min(ranked.len()));
                let (inside, outside): (Vec<u16>, Vec<u16>) =
                    rest.iter().partition(|e| resident(**e));
                let order = first.iter().chain(&inside).chain(&outside);
                instead.extend(order.take(choice.experts.len()));
                return choice.lost_score(instead);
            }
        }
        choice.lost_weight(instead)
    }
}

impl Choice<'_> {
    /// An expert's share of the token's weight.
    fn share(&self, i: usize) -> Option<f64> {
        let sum: f64 = self.weights.iter().map(|w| f64::from(*w)).sum();
        let weight = f64::from(*self.weights.get(i)?);
        (sum > 0.0 && sum.is_finite()).then(|| weight / sum)
    }

    fn lost_weight(&self, instead: &[u16]) -> Option<f64> {
        let mut kept = 0.0;
        for (i, expert) in self.experts.iter().enumerate() {
            let share = self.share(i)?;
            kept += if instead.contains(expert) { share } else { 0.0 };
        }
        Some((1.0 - kept).max(0.0))
    }

    /// By scores, since others than the chosen ones have no weights. Below 0 would be a gain: a bias made the choice.
    fn lost_score(&self, instead: &[u16]) -> Option<f64> {
        let score = |expert: &u16| {
            let place = self.scored.iter().position(|e| e == expert)?;
            Some(f64::from(self.scores[place]))
        };
        let sum = |experts: &[u16]| experts.iter().filter_map(score).sum::<f64>();
        let chosen = sum(self.experts);
        (chosen > 0.0).then(|| (1.0 - sum(instead) / chosen).max(0.0))
    }
}

/// J of 1, 2 and k/2 with M of 2k and of all that are recorded.
pub(super) fn max_rank_settings(top_k: usize, scored: usize) -> Vec<Change> {
    let mut guaranteed = vec![1, 2, top_k / 2];
    guaranteed.retain(|j| (1..top_k.max(2)).contains(j));
    guaranteed.sort_unstable();
    guaranteed.dedup();
    let mut candidates = vec![(2 * top_k).min(scored), scored];
    candidates.dedup();
    let settings = candidates.into_iter().flat_map(|candidates| {
        guaranteed.iter().map(move |j| Change::MaxRank { guaranteed: *j, candidates })
    });
    settings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHOICE: Choice<'_> = Choice {
        experts: &[5, 3, 9],
        weights: &[0.5, 0.4, 0.1],
        scored: &[5, 3, 9, 7, 2, 8],
        scores: &[0.4, 0.32, 0.08, 0.07, 0.05, 0.02],
    };

    fn choose(change: Change, resident: &[u16]) -> (Vec<u16>, f64) {
        let mut instead = Vec::new();
        let lost = change.choose(&CHOICE, |e| resident.contains(&e), &mut instead);
        (instead, lost.unwrap())
    }

    #[test]
    fn changes_by_hand() {
        let near = |(experts, lost): (Vec<u16>, f64), want: &[u16], loss: f64| {
            assert_eq!(experts, want);
            assert!((lost - loss).abs() < 1e-6, "{lost} is not {loss}");
        };
        near(choose(Change::None, &[]), &[5, 3, 9], 0.0);
        near(choose(Change::Fewer { experts: 2 }, &[]), &[5, 3], 0.1);
        // 0.1 is below half of a third; it stays when it is in the cache.
        let drop = Change::DropCold { share_of_even: 0.5 };
        near(choose(drop, &[]), &[5, 3], 0.1);
        near(choose(drop, &[9]), &[5, 3, 9], 0.0);
        // Everything is light, and the heaviest stays.
        near(choose(Change::DropCold { share_of_even: 9.0 }, &[]), &[5], 0.5);
        // 7 and 2 are in the cache and among the best six, 3 and 9 are not.
        let rank = Change::MaxRank { guaranteed: 1, candidates: 6 };
        near(choose(rank, &[7, 2]), &[5, 7, 2], 1.0 - 0.52 / 0.8);
        let narrow = Change::MaxRank { guaranteed: 2, candidates: 4 };
        near(choose(narrow, &[7, 2]), &[5, 3, 7], 1.0 - 0.79 / 0.8);
        near(choose(rank, &[]), &[5, 3, 9], 0.0);
    }
}
