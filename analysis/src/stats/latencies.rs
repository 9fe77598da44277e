//! A histogram of latencies, for displays.

use hdrhistogram::Histogram;

/// Longest latency that is told apart, an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Latencies with three significant digits, in constant memory. Tables have the exact samples instead.
#[derive(Debug, Clone)]
pub struct Latencies {
    histogram: Option<Histogram<u64>>,
}

impl Latencies {
    /// Of these durations; longer ones than an hour count as an hour.
    #[must_use]
    pub fn from_ns(durations: impl IntoIterator<Item = u64>) -> Self {
        let mut histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3).ok();
        for ns in durations {
            if let Some(histogram) = &mut histogram {
                histogram.saturating_record(ns.clamp(1, LONGEST_NS));
            }
        }
        Self { histogram: histogram.filter(|h| !h.is_empty()) }
    }

    /// The latency that a share (0 to 1) of all don't exceed, ns; `None` without any.
    #[must_use]
    pub fn at(&self, share: f64) -> Option<u64> {
        Some(self.histogram.as_ref()?.value_at_quantile(share))
    }

    /// The shortest and the longest, ns; `None` without any.
    #[must_use]
    pub fn range(&self) -> Option<(u64, u64)> {
        self.histogram.as_ref().map(|h| (h.min(), h.max()))
    }

    /// A line of `width` bars over a logarithmic scale from `low` to `high` ns, each as high as its share of
    /// the fullest one. Empty without samples.
    #[must_use]
    pub fn bars(&self, low: u64, high: u64, width: usize) -> String {
        const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let Some(histogram) = &self.histogram else { return String::new() };
        let (low, high) = (low.max(1) as f64, high.max(low + 1) as f64);
        let scale = width as f64 / (high / low).ln();
        let mut counts = vec![0_u64; width];
        for value in histogram.iter_recorded() {
            let place = (value.value_iterated_to() as f64 / low).ln().max(0.0) * scale;
            if let Some(count) = counts.get_mut((place as usize).min(width.saturating_sub(1))) {
                *count += value.count_at_value();
            }
        }
        let most = counts.iter().copied().max().unwrap_or_default().max(1);
        // Anything at all is seen.
        counts.iter().map(|n| BARS[(n * 8).div_ceil(most) as usize]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_shows_where_latencies_are() {
        let ns = (0..90).map(|_| 10_000_000).chain((0..10).map(|_| 80_000_000));
        let latencies = Latencies::from_ns(ns);
        let about = |ns: u64, wanted: f64| (ns as f64 / wanted - 1.0).abs() < 2e-3;
        assert!(about(latencies.at(0.5).unwrap(), 1e7) && about(latencies.at(0.99).unwrap(), 8e7));
        let (low, high) = latencies.range().unwrap();
        assert!(about(low, 1e7) && about(high, 8e7));
        assert_eq!(latencies.bars(low, high, 8), "█      ▁");
        assert_eq!(latencies.bars(1_000_000, 100_000_000, 4), "  █▁");
    }

    #[test]
    fn nothing_is_shown_of_nothing() {
        let none = Latencies::from_ns([]);
        assert_eq!((none.at(0.5), none.range(), none.bars(1, 10, 4)), (None, None, String::new()));
    }
}
