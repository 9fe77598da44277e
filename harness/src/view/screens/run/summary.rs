//! Figures of some steps.

use bmoe_analysis::stats::{Latencies, Rates};

use crate::view::world::Step;

/// Tokens that "now" is the mean of: one alone jumps too much to be read.
pub(in crate::view::screens) const NOW_TOKENS: usize = 8;

/// Means of some steps. `None` = not measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Means {
    /// Tokens a second: tokens over their time.
    pub tok_s: Option<f64>,
    /// Nanoseconds a token, as the four below.
    pub compute_ns: Option<f64>,
    /// Blocked on reads, or the stall.
    pub io_wait_ns: Option<f64>,
    /// Cache management.
    pub mgmt_ns: Option<f64>,
    /// Residual.
    pub other_ns: Option<f64>,
    /// The whole step.
    pub wall_ns: Option<f64>,
    /// Bytes of experts a token.
    pub read_bytes: Option<f64>,
    /// Hits over look-ups, 0 to 1.
    pub hit_rate: Option<f64>,
    /// Lanes that were busy, on average over the time.
    pub lanes: Option<f64>,
}

/// What the screen shows of the steps up to the playhead.
#[derive(Debug, Default)]
pub struct Summary {
    /// Of the last `NOW_TOKENS` steps.
    pub now: Means,
    /// Of all.
    pub mean: Means,
    /// The spread of single tokens; `None` without times.
    pub rates: Option<Rates>,
    /// How long tokens took; `None` without times.
    pub latencies: Option<Latencies>,
}

impl Summary {
    /// Of these steps.
    #[must_use]
    pub fn of(steps: &[Step]) -> Self {
        let walls = || steps.iter().filter_map(|step| step.wall_ns);
        let rates = Rates::from_wall_ns(walls());
        let latencies = rates.map(|_| Latencies::from_ns(walls()));
        Self { rates, latencies, ..Self::means(steps) }
    }

    /// The same of some more steps of the same run; the spread stays as it was, since it hardly moves and takes a
    /// sorting of all steps, which a run in progress would pay for.
    pub fn go_on(&mut self, steps: &[Step]) {
        let Self { rates, latencies, .. } = std::mem::take(self);
        *self = Self { rates, latencies, ..Self::means(steps) };
    }

    fn means(steps: &[Step]) -> Self {
        let now = Means::of(&steps[steps.len().saturating_sub(NOW_TOKENS)..]);
        Self { now, mean: Means::of(steps), ..Self::default() }
    }
}

impl Means {
    /// Of these steps.
    #[must_use]
    pub fn of(steps: &[Step]) -> Self {
        if steps.is_empty() {
            return Self::default();
        }
        let count = steps.len() as f64;
        let sum = |of: fn(&Step) -> Option<u64>| {
            let sum: Option<u128> = steps.iter().map(|step| of(step).map(u128::from)).sum();
            sum.map(|sum| sum as f64)
        };
        let mean = |of| sum(of).map(|sum| sum / count);
        let wall = sum(|step| step.wall_ns).filter(|ns| *ns > 0.0);
        let looked = sum(|step| step.hits).zip(sum(|step| step.misses));
        let looked = looked.filter(|(hits, misses)| hits + misses > 0.0);
        let last = steps.last().and_then(|step| step.cumulative_hit_rate);
        Self {
            tok_s: wall.map(|ns| count * 1e9 / ns),
            compute_ns: mean(|step| step.compute_ns),
            io_wait_ns: mean(|step| step.io_wait_ns),
            mgmt_ns: mean(|step| step.mgmt_ns),
            other_ns: mean(|step| step.other_ns),
            wall_ns: wall.map(|ns| ns / count),
            read_bytes: mean(|step| step.read_bytes),
            hit_rate: looked.map(|(hits, misses)| hits / (hits + misses)).or(last),
            lanes: sum(|step| step.lane_busy_ns).zip(wall).map(|(busy, wall)| busy / wall),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_of_one_step_is_not_known_of_all() {
        let step = |compute_ns| Step { wall_ns: Some(10), compute_ns, ..Step::default() };
        let means = Means::of(&[step(Some(4)), step(Some(8))]);
        assert_eq!((means.compute_ns, means.tok_s), (Some(6.0), Some(1e8)));
        assert_eq!(Means::of(&[step(Some(4)), step(None)]).compute_ns, None);
        assert_eq!(Means::of(&[]), Means::default());
        assert!(Summary::of(&[]).rates.is_none());
    }

    #[test]
    fn what_goes_on_has_new_means_and_the_old_spread() {
        let step = |wall_ns| Step { wall_ns: Some(wall_ns), ..Step::default() };
        let mut steps = vec![step(1_000_000); 100];
        let mut summary = Summary::of(&steps);
        steps.push(step(101_000_000));
        summary.go_on(&steps);
        assert_eq!(summary.mean.wall_ns, Some(201_000_000.0 / 101.0));
        assert_eq!(summary.rates.unwrap().min, 1000.0);
        assert!(Summary::of(&steps).rates.unwrap().min < 10.0);
    }

    #[test]
    fn now_is_the_last_tokens_only() {
        let step = |wall_ns| Step { wall_ns: Some(wall_ns), ..Step::default() };
        let mut steps = vec![step(1_000_000); 100];
        steps.extend(vec![step(2_000_000); NOW_TOKENS]);
        let summary = Summary::of(&steps);
        assert_eq!(summary.now.tok_s, Some(500.0));
        assert_eq!(summary.rates.unwrap().median, 1000.0);
    }
}
