//! Correction of p for many comparisons.

/// The p of each comparison, corrected for there being as many as there are: Holm, "A simple sequentially
/// rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979) 65–70.
///
/// Among comparisons whose corrected p is below 0.05 the chance of any false one is below 5 %, however they
/// depend on each other; cells compared with one baseline do.
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut corrected = vec![1.0; p.len()];
    let mut largest: f64 = 0.0;
    for (before, index) in order.into_iter().enumerate() {
        largest = largest.max(p[index] * (p.len() - before) as f64).min(1.0);
        corrected[index] = largest;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::holm;

    #[test]
    fn corrected_as_in_the_paper() {
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005, 0.9), "holm")
        let got = holm(&[0.01, 0.04, 0.03, 0.005, 0.9]);
        for (got, want) in got.iter().zip([0.04, 0.09, 0.09, 0.025, 0.9]) {
            assert!((got - want).abs() < 1e-12, "{got} is not {want}");
        }
        assert_eq!(holm(&[0.03]), [0.03]);
        assert!(holm(&[]).is_empty());
    }
}
