//! The figures of the benchmark table.
//!
//! Definitions (those of the published tables): the mean rate is tokens over total decode seconds, not
//! the mean of rates; minimum, maximum and percentiles are over the rates of single tokens, all of them,
//! none dropped as warm-up. Prefill and loading are not in any of them.

/// Percentile of `sorted` (ascending) at `p` in 0..=1: linear interpolation between the order statistics
/// around (n - 1)p, which is numpy's default. `None` without samples.
#[must_use]
pub fn percentile(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let rank = last as f64 * p.clamp(0.0, 1.0);
    let below = rank.floor() as usize;
    let above = (below + 1).min(last);
    let fraction = rank - below as f64;
    Some(sorted[below] + (sorted[above] - sorted[below]) * fraction)
}

/// Decode rates of a run, or of several runs pooled, tokens per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Tokens.
    pub tokens: usize,
    /// Tokens over total decode seconds.
    pub mean: f64,
    /// Slowest single token.
    pub min: f64,
    /// Fastest single token.
    pub max: f64,
    /// 50th percentile over single tokens.
    pub median: f64,
    /// 5th percentile.
    pub p5: f64,
    /// 95th percentile.
    pub p95: f64,
}

impl Rates {
    /// From the wall time of each decode step, in nanoseconds. `None` without a step that took time.
    #[must_use]
    pub fn from_wall_ns(wall_ns: impl IntoIterator<Item = u64>) -> Option<Self> {
        let (mut total_ns, mut rates) = (0_u128, Vec::new());
        for ns in wall_ns.into_iter().filter(|ns| *ns > 0) {
            total_ns += u128::from(ns);
            rates.push(1e9 / ns as f64);
        }
        rates.sort_by(f64::total_cmp);
        Some(Self {
            tokens: rates.len(),
            mean: rates.len() as f64 / (total_ns as f64 / 1e9),
            min: *rates.first()?,
            max: *rates.last()?,
            median: percentile(&rates, 0.50)?,
            p5: percentile(&rates, 0.05)?,
            p95: percentile(&rates, 0.95)?,
        })
    }
}

/// Mean; `None` without samples.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_interpolate_like_numpy() {
        // numpy.percentile([1, 2, 4, 8], [0, 5, 50, 95, 100])
        let sorted = [1.0, 2.0, 4.0, 8.0];
        let got: Vec<_> =
            [0.0, 0.05, 0.5, 0.95, 1.0].iter().map(|p| percentile(&sorted, *p).unwrap()).collect();
        for (got, want) in got.iter().zip([1.0, 1.15, 3.0, 7.4, 8.0]) {
            assert!((got - want).abs() < 1e-12, "{got} is not {want}");
        }
        assert_eq!(percentile(&[3.0], 0.95), Some(3.0));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn the_mean_rate_is_tokens_over_seconds() {
        let rates = Rates::from_wall_ns([100_000_000, 300_000_000]).unwrap();
        assert!((rates.mean - 5.0).abs() < 1e-12);
        assert!((rates.median - (10.0 + 10.0 / 3.0) / 2.0).abs() < 1e-9);
        assert_eq!(rates.tokens, 2);
        assert_eq!(Rates::from_wall_ns([]), None);
    }
}
