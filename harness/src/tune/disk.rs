//! What the storage does: `bmoe-engine iobench` on the model's own expert slices.

use std::collections::BTreeMap;

use bmoe_trace::config::IoEngine;
use serde::Deserialize;

/// Lane counts that are measured.
pub const LANES: [u32; 4] = [1, 2, 4, 8];

/// The part of `iobench`'s JSON that is used.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Bench {
    /// Whether reads bypassed the page cache, or why not.
    pub o_direct: String,
    /// One for each size, number of lanes and engine.
    pub rows: Vec<Row>,
}

/// One combination.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Row {
    /// Bytes of a read.
    pub piece_bytes: u64,
    /// Reads at once.
    pub lanes: u32,
    /// What hands them to the kernel.
    pub engine: IoEngine,
    /// Rate.
    pub median_mib_s: f64,
}

/// Rates by lanes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Disk {
    /// MiB/s with so many lanes.
    pub pread: BTreeMap<u32, f64>,
}

impl Disk {
    /// Of a measurement: the slices of an expert have several sizes, and one of each is read, so that the rate is
    /// bytes over the time of one of each.
    #[must_use]
    pub fn of(bench: &Bench) -> Self {
        let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for row in bench.rows.iter().filter(|r| r.engine == IoEngine::Pread && r.median_mib_s > 0.0)
        {
            let mib = row.piece_bytes as f64 / f64::from(1 << 20);
            let (bytes, seconds) = sums.entry(row.lanes).or_default();
            *bytes += mib;
            *seconds += mib / row.median_mib_s;
        }
        let pread =
            sums.into_iter().map(|(lanes, (mib, seconds))| (lanes, mib / seconds)).collect();
        Self { pread }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_several_sizes_are_bytes_over_time() {
        let row = |piece_mib: u64, lanes, median_mib_s| Row {
            piece_bytes: piece_mib << 20,
            lanes,
            engine: IoEngine::Pread,
            median_mib_s,
        };
        let rows = vec![row(1, 1, 500.0), row(2, 1, 1000.0), row(1, 4, 1900.0), row(1, 8, 1950.0)];
        let disk = Disk::of(&Bench { o_direct: "used".into(), rows });
        // 3 MiB in 2 ms + 2 ms.
        assert!((disk.pread[&1] - 750.0).abs() < 1e-9);
        assert_eq!(disk.pread.keys().copied().collect::<Vec<_>>(), [1, 4, 8]);
    }
}
