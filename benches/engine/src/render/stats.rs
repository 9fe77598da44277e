//! Statistics on plain numbers.

/// Percentile at `p` in 0..=1: linear interpolation between the order statistics around (n - 1)p, which is
/// numpy's default. `None` without samples.
#[must_use]
pub fn percentile(values: &[f64], p: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let rank = last as f64 * p.clamp(0.0, 1.0);
    let below = rank.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (rank - below as f64))
}

/// The 50th percentile.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    percentile(values, 0.5)
}

/// Smallest and largest.
#[must_use]
pub fn range(values: &[f64]) -> Option<(f64, f64)> {
    Some((percentile(values, 0.0)?, percentile(values, 1.0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_interpolate_like_numpy() {
        let values = [8.0, 1.0, 4.0, 2.0];
        assert_eq!(median(&values), Some(3.0));
        assert!((percentile(&values, 0.05).unwrap() - 1.15).abs() < 1e-12);
        assert_eq!(range(&values), Some((1.0, 8.0)));
        assert_eq!(median(&[]), None);
    }
}
