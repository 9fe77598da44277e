//! Configurations, and what the device model says of each.

use std::collections::BTreeMap;

use bmoe_analysis::device_model::DeviceModel;
use bmoe_analysis::routes::RouteTrace;
use bmoe_analysis::simulate::{Accesses, Budget, Rules, SimPolicy, SimulateError, Simulator};
use bmoe_cache::PolicyKind;
use bmoe_trace::{CacheBudget, Mode, RunConfig};

use super::disk::Disk;

const MIB: u64 = 1 << 20;
/// Another policy than LRU is worth a run when it hits so many points more.
const POLICY_POINTS: f64 = 1.0;
/// A candidate is promising within this share of the best prediction.
const PROMISING: f64 = 0.10;

/// A configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Budget of the expert cache; 0 = none.
    pub cache_mib: u64,
    /// Its policy.
    pub policy: PolicyKind,
    /// Read lanes.
    pub lanes: u32,
    /// Compute threads.
    pub threads: u32,
    /// Reads beside computation.
    pub overlap: bool,
}

impl Candidate {
    /// Whether a run has this configuration.
    #[must_use]
    pub fn is_of(&self, config: &RunConfig) -> bool {
        config.mode == Mode::Stream
            && config.cache_mib == CacheBudget::Mib(self.cache_mib)
            && (config.io_threads, config.threads, config.overlap)
                == (self.lanes, self.threads, self.overlap)
            && (self.cache_mib == 0 || config.cache_policy == self.policy.name())
    }
}

/// A candidate with its prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicted {
    /// The configuration.
    pub candidate: Candidate,
    /// Rate of the device model.
    pub tok_s: f64,
    /// Decode hit rate of the simulation, per cent.
    pub hit_pct: f64,
    /// MiB read per generated token.
    pub mib_token: f64,
}

/// What was measured of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceFigures {
    /// What a token takes to compute, by threads.
    pub compute_s: BTreeMap<u32, f64>,
    /// Share of the shorter of computing and reading that overlap hides, 0 to 1.
    pub overlap: f64,
    /// Rates of reads.
    pub disk: Disk,
    /// Memory for the expert cache.
    pub cache_memory_mib: u64,
}

/// Budgets worth a look: all that there is room for, three quarters and half of it, never more than all experts, nor
/// less than one token's.
#[must_use]
pub fn budgets(memory_mib: u64, bank_mib: u64, token_mib: u64) -> Vec<u64> {
    let most = memory_mib.min(bank_mib);
    let mut budgets: Vec<u64> =
        [most, most * 3 / 4, most / 2].into_iter().filter(|mib| *mib > token_mib).collect();
    budgets.push(0);
    budgets.dedup();
    budgets
}

/// All candidates, the fastest prediction first.
///
/// # Errors
/// The routes can't be replayed.
pub fn predict(
    trace: &RouteTrace,
    device: &DeviceFigures,
) -> Result<Vec<Predicted>, SimulateError> {
    let accesses = Accesses::new(trace, Rules::ENGINE);
    let simulator = Simulator::new(&accesses);
    let bank_mib = trace.bank_bytes().div_ceil(MIB);
    let token_mib = accesses.token_bytes().div_ceil(MIB);
    let mut all = Vec::new();
    for cache_mib in budgets(device.cache_memory_mib, bank_mib, token_mib) {
        let run = |kind| simulator.run(SimPolicy::Online(kind), Budget::Bytes(cache_mib * MIB));
        let mut runs = vec![(PolicyKind::Lru, run(PolicyKind::Lru)?)];
        if cache_mib > 0 && cache_mib < bank_mib {
            let hits = |s: &bmoe_analysis::simulate::Simulation| s.decode.hit_pct().unwrap_or(0.0);
            let mut others = Vec::new();
            for kind in PolicyKind::ALL {
                others.push((kind, run(kind)?));
            }
            let best = others.into_iter().max_by(|a, b| hits(&a.1).total_cmp(&hits(&b.1)));
            runs.extend(best.filter(|(_, s)| hits(s) >= hits(&runs[0].1) + POLICY_POINTS));
        }
        for (policy, simulated) in &runs {
            for (&lanes, &read_mib_s) in &device.disk.pread {
                for (&threads, &compute_s) in &device.compute_s {
                    for overlap in [true, false] {
                        let model = DeviceModel::new(
                            compute_s,
                            read_mib_s,
                            if overlap { device.overlap } else { 0.0 },
                        );
                        let Some(tok_s) = model.and_then(|model| simulated.tok_s(&model)) else {
                            continue;
                        };
                        all.push(Predicted {
                            candidate: Candidate {
                                cache_mib,
                                policy: *policy,
                                lanes,
                                threads,
                                overlap,
                            },
                            tok_s,
                            hit_pct: simulated.decode.hit_pct().unwrap_or(0.0),
                            mib_token: simulated.mib_per_token().unwrap_or(0.0),
                        });
                    }
                }
            }
        }
    }
    // Of equals the one that takes less: smaller cache, fewer lanes and threads.
    let key = |p: &Predicted| {
        (p.candidate.cache_mib, p.candidate.lanes, p.candidate.threads, !p.candidate.overlap)
    };
    all.sort_by(|a, b| b.tok_s.total_cmp(&a.tok_s).then_with(|| key(a).cmp(&key(b))));
    Ok(all)
}

/// The candidates worth measuring, at most so many: the best prediction, what differs from it in one setting and is
/// predicted to come near it, and it without overlap, whose effect no model knows.
#[must_use]
pub fn promising(predicted: &[Predicted], most: usize) -> Vec<Predicted> {
    let Some(best) = predicted.first() else { return Vec::new() };
    let differs = |other: &Candidate| {
        let c = &best.candidate;
        usize::from((c.cache_mib, c.policy) != (other.cache_mib, other.policy))
            + usize::from(c.lanes != other.lanes)
            + usize::from(c.threads != other.threads)
            + usize::from(c.overlap != other.overlap)
    };
    let near = |p: &&Predicted| p.tok_s >= best.tok_s * (1.0 - PROMISING);
    let mut chosen = vec![best.clone()];
    let without = predicted
        .iter()
        .find(|p| differs(&p.candidate) == 1 && p.candidate.overlap != best.candidate.overlap);
    chosen.extend(without.cloned());
    for one in predicted.iter().filter(near).filter(|p| differs(&p.candidate) == 1) {
        if chosen.len() < most && !chosen.contains(one) {
            chosen.push(one.clone());
        }
    }
    chosen.truncate(most.max(1));
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_lie_between_a_token_and_the_bank() {
        assert_eq!(budgets(4000, 16_000, 785), [4000, 3000, 2000, 0]);
        assert_eq!(budgets(40_000, 16_000, 785), [16_000, 12_000, 8000, 0]);
        assert_eq!(budgets(700, 16_000, 785), [0]);
    }

    #[test]
    fn the_promising_ones_differ_in_one_setting() {
        let one = |cache_mib, lanes, overlap, tok_s| Predicted {
            candidate: Candidate { cache_mib, policy: PolicyKind::Lru, lanes, threads: 2, overlap },
            tok_s,
            hit_pct: 0.0,
            mib_token: 0.0,
        };
        let all = [
            one(4000, 4, true, 10.0),
            one(4000, 8, true, 9.9),
            one(3000, 8, true, 9.8),
            one(3000, 4, true, 9.5),
            one(4000, 4, false, 7.0),
            one(0, 4, true, 3.0),
        ];
        let of = |most| promising(&all, most).iter().map(|p| p.tok_s).collect::<Vec<_>>();
        assert_eq!(of(8), [10.0, 7.0, 9.9, 9.5]);
        assert_eq!(of(2), [10.0, 7.0]);
        assert!(promising(&[], 3).is_empty());
    }
}
