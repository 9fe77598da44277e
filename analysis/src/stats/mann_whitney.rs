//! Whether one of two small samples tends to be larger.

use statrs::distribution::{ContinuousCDF, Normal};

/// Samples of more values have the normal approximation.
const LARGEST_EXACT: usize = 20;

/// How a p was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// From all arrangements of the ranks; no two values were equal.
    Exact,
    /// From the normal approximation, corrected for ties and continuity.
    Normal,
}

/// The outcome of a two-sided test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MannWhitney {
    /// Pairs in which the value of the first sample is the larger one; ties count half.
    pub u: f64,
    /// Probability of a U at least as far from the middle, if both samples were of one population.
    pub p: f64,
    /// How `p` was found.
    pub method: Method,
}

/// The two-sided test of Mann & Whitney, "On a test of whether one of two random variables is stochastically
/// larger than the other", Annals of Mathematical Statistics 18 (1947) 50–60. `None` when a sample is empty.
#[must_use]
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<MannWhitney> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let pairs = (a.len() * b.len()) as f64;
    let won = |x: f64| {
        b.iter()
            .map(move |y| {
                if x > *y {
                    1.0
                } else if x == *y {
                    0.5
                } else {
                    0.0
                }
            })
            .sum::<f64>()
    };
    let u: f64 = a.iter().map(|x| won(*x)).sum();
    let far = u.max(pairs - u);
    let mut all: Vec<f64> = a.iter().chain(b).copied().collect();
    all.sort_by(f64::total_cmp);
    let ties: Vec<f64> = all.chunk_by(|x, y| x == y).map(|tied| tied.len() as f64).collect();
    let tied = ties.iter().any(|t| *t > 1.0);
    let exact = !tied && a.len().max(b.len()) <= LARGEST_EXACT;
    let p = if exact {
        2.0 * at_least(far as usize, a.len(), b.len())
    } else {
        let n = all.len() as f64;
        let correction = ties.iter().map(|t| t.powi(3) - t).sum::<f64>() / (n * (n - 1.0));
        let variance = pairs / 12.0 * (n + 1.0 - correction);
        let z = (far - pairs / 2.0 - 0.5) / variance.sqrt();
        // All values are equal: nothing differs.
        if variance > 0.0 { 2.0 * Normal::standard().sf(z) } else { 1.0 }
    };
    let method = if exact { Method::Exact } else { Method::Normal };
    Some(MannWhitney { u, p: p.min(1.0), method })
}

/// The smallest p that samples of these sizes can have: the one of samples that don't overlap.
#[must_use]
pub fn smallest_p(a: usize, b: usize) -> f64 {
    let arrangements: f64 = (1..=a).map(|i| (b + i) as f64 / i as f64).product();
    (2.0 / arrangements).min(1.0)
}

/// Share of the arrangements of `a` and `b` ranks with a U of at least `u`.
fn at_least(u: usize, a: usize, b: usize) -> f64 {
    // counts[i][u]: arrangements of i values of the first sample and j of the second, j growing by the loop.
    let mut counts = vec![vec![0.0; a * b + 1]; a + 1];
    for of_size in &mut counts {
        of_size[0] = 1.0;
    }
    for j in 1..=b {
        for i in 1..=a {
            // The largest value is of the first sample, and beats all j of the second, or it is of the second.
            for u in (0..=a * b).rev() {
                let of_first = if u >= j { counts[i - 1][u - j] } else { 0.0 };
                counts[i][u] += of_first;
            }
        }
    }
    let of_all = &counts[a];
    of_all[u.min(a * b)..].iter().sum::<f64>() / of_all.iter().sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `scipy.stats.mannwhitneyu(a, b, method=...)` of scipy 1.17.1, `"exact"` without ties and `"asymptotic"`
    /// with them, prints these U and p.
    #[test]
    fn outcomes_are_those_of_the_reference() {
        let long: Vec<f64> = (0..25).map(|i| f64::from(i * i % 29)).collect();
        let other: Vec<f64> = (0..25).map(|i| f64::from(i * i % 31) + 4.5).collect();
        type Case<'a> = (&'a [f64], &'a [f64], f64, f64, Method);
        let cases: [Case<'_>; 6] = [
            (
                &[1.0, 2.0, 3.0, 4.0],
                &[5.0, 6.0, 7.0, 8.0],
                0.0,
                0.028_571_428_571_428_57,
                Method::Exact,
            ),
            (&[1.0, 2.0, 3.0], &[5.0, 6.0, 7.0], 0.0, 0.1, Method::Exact),
            (
                &[10.1, 9.7, 11.2, 10.6, 9.9],
                &[10.4, 11.5, 12.0, 11.1, 10.9, 11.8],
                4.0,
                0.051_948_051_948_051_95,
                Method::Exact,
            ),
            (
                &[3.0, 1.0, 4.0, 1.5, 9.0],
                &[2.0, 6.0, 5.0, 3.5],
                7.0,
                0.555_555_555_555_555_6,
                Method::Exact,
            ),
            (
                &[1.0, 2.0, 2.0, 3.0],
                &[2.0, 3.0, 4.0, 5.0, 5.0],
                2.5,
                0.078_545_850_951_190_67,
                Method::Normal,
            ),
            (&long, &other, 278.0, 0.509_255_081_773_963_1, Method::Normal),
        ];
        for (a, b, u, p, method) in cases {
            let got = mann_whitney(a, b).unwrap();
            assert_eq!(got.method, method);
            assert!((got.u - u).abs() < 1e-12 && (got.p - p).abs() < 1e-9, "{got:?}, not {u} {p}");
            let turned = mann_whitney(b, a).unwrap();
            assert!((turned.p - got.p).abs() < 1e-12, "{turned:?} {got:?}");
        }
    }

    #[test]
    fn samples_that_cannot_differ_have_a_p_of_one() {
        assert_eq!(mann_whitney(&[2.0; 4], &[2.0; 5]).unwrap().p, 1.0);
        assert_eq!(mann_whitney(&[1.0], &[2.0]).unwrap().p, 1.0);
        assert_eq!(mann_whitney(&[], &[2.0]), None);
    }

    #[test]
    fn the_smallest_p_is_that_of_samples_apart() {
        for (a, b) in [(1, 1), (3, 3), (4, 4), (4, 7), (6, 5)] {
            let low: Vec<f64> = (0..a).map(f64::from).collect();
            let high: Vec<f64> = (0..b).map(|i| 100.0 + f64::from(i)).collect();
            let p = mann_whitney(&low, &high).unwrap().p;
            assert!((p - smallest_p(low.len(), high.len())).abs() < 1e-12);
        }
        assert!((smallest_p(4, 4) - 2.0 / 70.0).abs() < 1e-15);
    }
}
