//! The table of rates, and that of where the time goes.

use std::fmt::Write as _;

use super::results::{Results, rate, steady_ns, sum};
use super::stats::{median, percentile, range};
use crate::contender::{CONTENDERS, Contender, Part};
use crate::data::Run;

/// What stands where nothing was measured.
pub const NONE: &str = "–";

/// A number, or [`NONE`].
#[must_use]
pub fn number(value: Option<f64>, digits: usize) -> String {
    value.filter(|v| v.is_finite()).map_or_else(|| NONE.to_owned(), |v| format!("{v:.digits$}"))
}

/// A header and its rule; the first column is text.
fn header(columns: &[&str]) -> String {
    format!("| {} |\n|---|{}\n", columns.join(" | "), "---:|".repeat(columns.len() - 1))
}

fn label(results: &Results<'_>, contender: &Contender) -> String {
    contender.label(results.settings(), results.environment.machine.read_ahead_kib)
}

fn timed() -> impl Iterator<Item = &'static Contender> {
    CONTENDERS.iter().filter(|c| c.part == Part::Timed)
}

/// One row for each contender that is timed.
#[must_use]
pub fn rates(results: &Results<'_>) -> String {
    let mut table = header(&[
        "configuration",
        "tok/s (lowest–highest run)",
        "× mmap",
        "× resident",
        "token p5",
        "median",
        "p95",
        "steady tok/s",
        "decode hit %",
        "MiB/token",
        "load s (dense read)",
        "first token s",
        "peak RSS MiB",
        "runs",
    ]);
    for contender in timed() {
        let name = contender.name;
        let runs: Vec<&Run> = results.runs(name).collect();
        let own = results.rate(name);
        let against = |base: &'static str| {
            let base = if contender.own_read_ahead { None } else { results.rate(base) };
            number(own.zip(base).map(|(own, base)| own / base), 2)
        };
        let tokens: Vec<f64> =
            runs.iter().flat_map(|r| &r.steps.wall_ns).map(|ns| 1e9 / *ns as f64).collect();
        let steady: Vec<u64> = runs.iter().flat_map(|r| steady_ns(r)).collect();
        let all: Vec<f64> = runs.iter().map(|r| rate(r)).collect();
        let spread = range(&all).map_or_else(String::new, |(a, b)| format!(" ({a:.2}–{b:.2})"));
        let streams = runs.iter().any(|r| sum(&r.steps.device_read_bytes) > 0.0);
        let hits: f64 = runs.iter().map(|r| sum(&r.steps.hits)).sum();
        let misses: f64 = runs.iter().map(|r| sum(&r.steps.misses)).sum();
        let cached = runs.iter().any(|r| r.cache_budget_bytes > 0);
        let bytes: f64 = runs.iter().map(|r| sum(&r.steps.expert_read_bytes)).sum();
        let load = results.median(name, |r| r.load_ns as f64 / 1e9);
        let dense = results.median(name, |r| r.dense_read_ns as f64 / 1e9);
        let failed = results.of(name).filter(|e| e.failure.is_some()).count();
        let marked = results.of(name).filter(|e| e.noise.others_at_work()).count();
        let mut count = runs.len().to_string();
        if marked > 0 {
            let _ = write!(count, ", {marked} marked");
        }
        if failed > 0 {
            let _ = write!(count, ", {failed} failed");
        }
        let cells = [
            label(results, contender),
            number(own, 2) + &spread,
            against("mmap"),
            against("resident"),
            number(percentile(&tokens, 0.05), 2),
            number(median(&tokens), 2),
            number(percentile(&tokens, 0.95), 2),
            number(Some(steady.len() as f64 / (sum(&steady) / 1e9)), 2),
            number((cached && hits + misses > 0.0).then(|| 100.0 * hits / (hits + misses)), 1),
            number(streams.then(|| bytes / tokens.len() as f64 / f64::from(1 << 20)), 1),
            format!("{} ({})", number(load, 2), number(dense.filter(|d| *d > 0.0), 2)),
            number(results.median(name, |r| r.first_token_ns as f64 / 1e9), 2),
            number(results.median(name, |r| r.peak_rss_bytes as f64 / f64::from(1 << 20)), 0),
            count,
        ];
        let _ = writeln!(table, "| {} |", cells.join(" | "));
    }
    table
}

/// Milliseconds of an average token, for all contenders that record them.
#[must_use]
pub fn times(results: &Results<'_>) -> String {
    let mut table = header(&[
        "configuration",
        "wall",
        "compute",
        "waiting for reads",
        "cache management",
        "reads outstanding",
        "CPU",
        "major faults",
    ]);
    for contender in timed() {
        let mean = |column: fn(&Run) -> &Vec<u64>, scale: f64| {
            let runs = || results.runs(contender.name);
            let (total, count) =
                runs().fold((0.0, 0), |(t, n), r| (t + sum(column(r)), n + column(r).len()));
            (count > 0).then(|| total / count as f64 / scale)
        };
        let streams = contender.mode == bmoe_trace::Mode::Stream;
        let cells = [
            label(results, contender),
            number(mean(|r| &r.steps.wall_ns, 1e6), 1),
            number(mean(|r| &r.steps.compute_ns, 1e6), 1),
            number(mean(|r| &r.steps.io_wait_ns, 1e6).filter(|_| streams), 1),
            number(mean(|r| &r.steps.mgmt_ns, 1e6).filter(|_| streams), 2),
            number(mean(|r| &r.steps.io_active_ns, 1e6).filter(|_| streams), 1),
            number(mean(|r| &r.steps.cpu_ns, 1e6), 1),
            number(mean(|r| &r.steps.major_faults, 1.0), 1),
        ];
        let _ = writeln!(table, "| {} |", cells.join(" | "));
    }
    table
}

/// Milliseconds of an average token by part, from the compute and I/O traces.
#[must_use]
pub fn parts(results: &Results<'_>) -> String {
    let mut table = header(&[
        "configuration, traced",
        "wall",
        "dense",
        "experts",
        "waiting inside experts",
        "fetch",
        "reads of a layer outstanding",
        "bound",
        "wall ÷ bound",
        "dense + experts + reads",
    ]);
    for contender in CONTENDERS.iter().filter(|c| c.part == Part::Layers) {
        let mean = |column: fn(&Run) -> &Vec<u64>| {
            let runs = || results.runs(contender.name);
            let (total, count) =
                runs().fold((0.0, 0), |(t, n), r| (t + sum(column(r)), n + column(r).len()));
            (count > 0).then(|| total / count as f64 / 1e6)
        };
        let bound = results.median(contender.name, over_bound);
        let cells = [
            label(results, contender),
            number(mean(|r| &r.steps.wall_ns), 1),
            number(mean(|r| &r.parts.dense_ns), 1),
            number(mean(|r| &r.parts.experts_ns), 1),
            number(mean(|r| &r.parts.stall_ns), 1),
            number(mean(|r| &r.parts.fetch_ns), 1),
            number(mean(|r| &r.parts.io_ns), 1),
            number(mean(|r| &r.parts.bound_ns), 1),
            number(bound, 3),
            number(mean(|r| &r.parts.serial_ns), 1),
        ];
        let _ = writeln!(table, "| {} |", cells.join(" | "));
    }
    table
}

/// Wall time over the bound, of a whole run.
#[must_use]
pub fn over_bound(run: &Run) -> f64 {
    sum(&run.steps.wall_ns) / sum(&run.parts.bound_ns)
}
