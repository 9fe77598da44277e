//! What `iobench` found, for people and for programs.

use std::fmt::Write as _;

use bmoe_trace::config::IoEngine;
use bmoe_trace::record::DirectIo;
use serde::Serialize;

use super::{BenchOptions, SourceOptions};
use crate::flash::read_loop::Stretch;

/// One combination of size, lanes and engine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Bytes of a piece.
    pub piece_bytes: u64,
    /// Reads in flight at once.
    pub lanes: u32,
    /// What handed them to the kernel.
    pub engine: IoEngine,
    /// Rate of each repeat: bytes transferred over the time in which reads were outstanding.
    pub mib_s: Vec<f64>,
    /// Their median.
    pub median_mib_s: f64,
    /// Their 5th percentile.
    pub p5_mib_s: f64,
    /// Their 95th percentile.
    pub p95_mib_s: f64,
    /// Median time of a read, from a lane's taking it to its end.
    pub p50_ms: f64,
    /// 99th percentile of that.
    pub p99_ms: f64,
    /// Reads of all repeats.
    pub reads: usize,
}

/// A whole measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Version of this layout.
    pub version: u32,
    /// Version of the engine.
    pub engine_version: &'static str,
    /// What was read.
    pub source: String,
    /// Whether reads bypassed the page cache, or why not.
    pub o_direct: String,
    /// Why there are no rows of io_uring though they were asked for.
    pub uring_unavailable: Option<String>,
    /// Seconds for each row.
    pub seconds: f64,
    /// Repeats in them.
    pub repeats: u32,
    /// One for each combination.
    pub rows: Vec<Row>,
}

impl Row {
    pub(super) fn new(
        piece_bytes: u64,
        lanes: u32,
        engine: IoEngine,
        stretches: &[Stretch],
    ) -> Self {
        let mib_s: Vec<f64> = stretches.iter().map(mib_s).collect();
        let rates = sorted(mib_s.iter().copied());
        let times =
            sorted(stretches.iter().flat_map(|s| &s.service).map(|t| 1e3 * t.as_secs_f64()));
        Self {
            piece_bytes,
            lanes,
            engine,
            median_mib_s: quantile(&rates, 0.5),
            p5_mib_s: quantile(&rates, 0.05),
            p95_mib_s: quantile(&rates, 0.95),
            p50_ms: quantile(&times, 0.5),
            p99_ms: quantile(&times, 0.99),
            reads: times.len(),
            mib_s,
        }
    }
}

impl Report {
    pub(super) fn new(
        source: &SourceOptions,
        direct_io: DirectIo,
        uring_unavailable: Option<String>,
        options: &BenchOptions,
        rows: Vec<Row>,
    ) -> Self {
        let source = match source {
            SourceOptions::Model(path) => format!("expert slices of {}", path.display()),
            SourceOptions::File { path, .. } => format!("pieces of {}", path.display()),
            SourceOptions::Scratch { folder, file_bytes, .. } => {
                format!("pieces of a new file of {} MiB in {}", file_bytes >> 20, folder.display())
            }
        };
        let o_direct = match direct_io {
            DirectIo::Used => "used".into(),
            DirectIo::Unavailable { reason } => format!("not available: {reason}"),
            DirectIo::Off | DirectIo::NotApplicable => "off, as asked for".into(),
        };
        Self {
            version: 1,
            engine_version: env!("CARGO_PKG_VERSION"),
            source,
            o_direct,
            uring_unavailable,
            seconds: options.time.as_secs_f64(),
            repeats: options.repeats,
            rows,
        }
    }

    /// The table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "{}; O_DIRECT {}; {} repeats in {} s each row\n",
            self.source, self.o_direct, self.repeats, self.seconds
        );
        if let Some(reason) = &self.uring_unavailable {
            let _ = writeln!(text, "io_uring not available: {reason}");
        }
        text += "     KiB  lanes  engine  MiB/s median        p5       p95    ms p50    ms p99    reads\n";
        for row in &self.rows {
            let _ = writeln!(
                text,
                "{:8.1}  {:5}  {:6}  {:12.0}  {:8.0}  {:8.0}  {:8.2}  {:8.2}  {:7}",
                kib(row.piece_bytes),
                row.lanes,
                row.engine,
                row.median_mib_s,
                row.p5_mib_s,
                row.p95_mib_s,
                row.p50_ms,
                row.p99_ms,
                row.reads,
            );
        }
        for best in self.best() {
            let _ = writeln!(
                text,
                "best of {:.1} KiB: --io-ceiling {:.0} ({} lanes, {})",
                kib(best.piece_bytes),
                best.median_mib_s,
                best.lanes,
                best.engine
            );
        }
        text
    }

    /// The row with the highest median of each size.
    fn best(&self) -> Vec<&Row> {
        let mut best: Vec<&Row> = Vec::new();
        for row in &self.rows {
            match best.iter_mut().find(|b| b.piece_bytes == row.piece_bytes) {
                None => best.push(row),
                Some(b) if row.median_mib_s > b.median_mib_s => *b = row,
                Some(_) => {}
            }
        }
        best
    }
}

pub(super) fn kib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

pub(super) fn mib_s(stretch: &Stretch) -> f64 {
    let seconds = stretch.active_ns.max(1) as f64 / 1e9;
    stretch.device_bytes as f64 / f64::from(1 << 20) / seconds
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// By linear interpolation between order statistics at (n-1)p; 0 of none.
fn quantile(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = last as f64 * p;
    let low = at.floor() as usize;
    let high = (low + 1).min(last);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn stretch(mib: u64, ms: &[u64]) -> Stretch {
        Stretch {
            device_bytes: mib << 20,
            active_ns: 500_000_000,
            service: ms.iter().copied().map(Duration::from_millis).collect(),
        }
    }

    #[test]
    fn the_table() {
        let options = BenchOptions {
            source: SourceOptions::Model("models/m.gguf".into()),
            lanes: vec![1, 4],
            engines: vec![IoEngine::Pread, IoEngine::Uring],
            odirect: true,
            time: Duration::from_secs(2),
            repeats: 3,
        };
        let slow = [stretch(400, &[2, 2]), stretch(410, &[2]), stretch(300, &[3])];
        let fast = [stretch(900, &[1, 4]), stretch(800, &[5]), stretch(700, &[6])];
        let rows = vec![
            Row::new(884_736, 1, IoEngine::Pread, &slow),
            Row::new(884_736, 4, IoEngine::Pread, &fast),
            Row::new(1_081_344, 4, IoEngine::Pread, &fast[..1]),
        ];
        let reason = "io_uring_setup: Operation not permitted".to_owned();
        let report = Report::new(&options.source, DirectIo::Used, Some(reason), &options, rows);
        insta::assert_snapshot!(report.table(), @r"
        expert slices of models/m.gguf; O_DIRECT used; 3 repeats in 2 s each row
        io_uring not available: io_uring_setup: Operation not permitted
             KiB  lanes  engine  MiB/s median        p5       p95    ms p50    ms p99    reads
           864.0      1  pread            800       620       818      2.00      2.97        4
           864.0      4  pread           1600      1420      1780      4.50      5.97        4
          1056.0      4  pread           1800      1800      1800      2.50      3.97        2
        best of 864.0 KiB: --io-ceiling 1600 (4 lanes, pread)
        best of 1056.0 KiB: --io-ceiling 1800 (4 lanes, pread)
        ");
    }

    #[test]
    fn quantiles_lie_between_order_statistics() {
        assert_eq!(quantile(&[], 0.5), 0.0);
        assert_eq!(quantile(&[3.0], 0.95), 3.0);
        assert_eq!(quantile(&[1.0, 2.0, 4.0], 0.5), 2.0);
        assert!((quantile(&[0.0, 10.0], 0.05) - 0.5).abs() < 1e-12);
    }
}
