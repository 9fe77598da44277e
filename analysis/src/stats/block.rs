//! How long the blocks of a block bootstrap have to be.

/// Tokens per block of a circular block bootstrap of the mean of `series`, at least 1.
///
/// The rule is that of Politis & White, "Automatic block-length selection for the dependent bootstrap",
/// Econometric Reviews 23 (2004) 53–70, with the correction by Patton, Politis & White, Econometric Reviews
/// 28 (2009) 372–375, rounded up: a flat-top lag window as wide as twice the lag from which on the
/// autocorrelations are negligible, and at most min(3 √n, n / 3) tokens. A series that doesn't vary, or of
/// fewer than four tokens, has blocks of one.
#[must_use]
pub fn block_length(series: &[f64]) -> usize {
    let n = series.len();
    if n < 4 {
        return 1;
    }
    let count = n as f64;
    let mean = series.iter().sum::<f64>() / count;
    let deviations: Vec<f64> = series.iter().map(|x| x - mean).collect();
    let covariance = |lag: usize| {
        deviations[lag..].iter().zip(&deviations).map(|(a, b)| a * b).sum::<f64>() / count
    };
    let variance = covariance(0);
    if variance <= mean * mean * 1e-20 {
        return 1;
    }
    // The first lag from which on as many in a row (K_N of the paper) are negligible; the authors' own
    // programs begin the row at that lag, the paper behind it.
    let in_a_row = 5.max(count.log10().sqrt().ceil() as usize);
    let longest = (count.sqrt().ceil() as usize + in_a_row).min(n - 1);
    let negligible = 2.0 * (count.log10() / count).sqrt();
    let covariances: Vec<f64> = (0..=longest).map(covariance).collect();
    let small = |covariance: &f64| (covariance / variance).abs() < negligible;
    let first = covariances.windows(in_a_row).position(|row| row.iter().all(small));
    let width = first.map_or(longest, |lag| 2 * lag.max(1)).min(longest);
    let (mut weighted, mut spectrum) = (0.0, variance);
    for (lag, covariance) in covariances.iter().enumerate().take(width + 1).skip(1) {
        let place = lag as f64 / width as f64;
        let window = if place <= 0.5 { 1.0 } else { 2.0 * (1.0 - place) };
        weighted += 2.0 * window * lag as f64 * covariance;
        spectrum += 2.0 * window * covariance;
    }
    // 2 G² / D with D = 4/3 g(0)² for the circular bootstrap.
    let length = (1.5 * (weighted / spectrum).powi(2) * count).cbrt();
    let most = (3.0 * count.sqrt()).min(count / 3.0).ceil();
    // A spectrum of zero asks for blocks without end.
    if length.is_finite() { length.min(most).ceil().max(1.0) as usize } else { most as usize }
}

#[cfg(test)]
mod tests {
    use super::block_length;

    /// x[i] = a x[i-1] + e[i], where e comes from a linear congruence so that Python can make the same.
    pub(in crate::stats) fn autoregressive(a: f64, n: usize) -> Vec<f64> {
        let (mut state, mut x) = (1_u64, 0.0);
        (0..n)
            .map(|_| {
                state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
                x = a * x + state as f64 / 2_147_483_648.0 - 0.5;
                x
            })
            .collect()
    }

    /// `arch.bootstrap.optimal_block_length(series)["circular"]` of arch 8.0.0 gives, with
    /// ```python
    /// def series(a, n):
    ///     s, x, out = 1, 0.0, []
    ///     for _ in range(n):
    ///         s = (s * 1103515245 + 12345) % 2147483648
    ///         x = a * x + s / 2147483648 - 0.5
    ///         out.append(x)
    ///     return numpy.array(out)
    /// for a, n in [(0.0, 256), (0.5, 256), (0.8, 512), (0.9, 128)]:
    ///     print(arch.bootstrap.optimal_block_length(series(a, n)))
    /// ```
    /// 0.22, 9.13, 20.84 and 16.14, here rounded up.
    #[test]
    fn lengths_are_those_of_the_reference() {
        let lengths: Vec<usize> = [(0.0, 256), (0.5, 256), (0.8, 512), (0.9, 128)]
            .iter()
            .map(|(a, n)| block_length(&autoregressive(*a, *n)))
            .collect();
        assert_eq!(lengths, [1, 10, 21, 17]);
    }

    #[test]
    fn constant_and_short_series_have_blocks_of_one() {
        assert_eq!(block_length(&[]), 1);
        assert_eq!(block_length(&[3.0, 1.0, 2.0]), 1);
        assert_eq!(block_length(&[0.1; 64]), 1);
        // A trend has long blocks, at most a third of the series.
        let trend: Vec<f64> = (0..30).map(f64::from).collect();
        assert!((6..=10).contains(&block_length(&trend)));
    }
}
