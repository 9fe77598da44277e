//! Comparisons for a terminal.

use std::fmt::Write as _;

use super::{Comparison, Side};
use crate::markdown::one_line;

/// What stands where nothing was measured.
const NONE: &str = "–";

/// Names of both sides of each pair, the figures in lines that fit 100 characters, a sentence each.
#[must_use]
pub fn table(comparisons: &[Comparison]) -> String {
    let Some(first) = comparisons.first() else { return String::new() };
    let mut out = String::new();
    for (number, comparison) in (1..).zip(comparisons) {
        let label = |side: &Side| {
            let folder = side.folder.as_ref().map_or(String::new(), |f| format!(" [{f}]"));
            one_line(&format!("{}: {}{folder}", side.model, side.name))
        };
        let _ = writeln!(out, "{number:>3}  A  {}", label(&comparison.a));
        let _ = writeln!(out, "     B  {}", label(&comparison.b));
    }
    let heading = first.metric.heading();
    let mut rows = vec![
        [
            "",
            &format!("A {heading}"),
            &format!("B {heading}"),
            "Δ %",
            "95 % interval",
            "p",
            "runs",
            "MiB/token",
            "hit %",
        ]
        .map(str::to_owned),
    ];
    for (number, comparison) in (1..).zip(comparisons) {
        let Comparison { a, b, .. } = comparison;
        let interval = comparison.low_pct.zip(comparison.high_pct);
        let both = |of: fn(&Side) -> Option<f64>| match (of(a), of(b)) {
            (None, None) => NONE.to_owned(),
            (a, b) => format!("{} → {}", number_of(a, 1), number_of(b, 1)),
        };
        rows.push([
            number.to_string(),
            number_of(a.value, 2),
            number_of(b.value, 2),
            signed(comparison.difference_pct),
            interval.map_or(NONE.to_owned(), |(low, high)| {
                format!("{} to {}", signed(Some(low)), signed(Some(high)))
            }),
            p(comparison.p_corrected),
            format!("{}, {}", a.runs.len(), b.runs.len()),
            both(|side| side.mib_token),
            both(|side| side.hit_pct),
        ]);
    }
    out.push('\n');
    let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "  {cell:>width$}");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out.push('\n');
    for (number, comparison) in (1..).zip(comparisons) {
        let _ = writeln!(out, "{number:>3}  {}", comparison.sentence);
    }
    out
}

/// A p with three digits behind the point.
pub(crate) fn p(p: Option<f64>) -> String {
    match p {
        None => NONE.to_owned(),
        Some(p) if p < 0.001 => "< 0.001".to_owned(),
        Some(p) => format!("{p:.3}"),
    }
}

/// Per cent with their sign.
pub(crate) fn signed(pct: Option<f64>) -> String {
    match pct {
        None => NONE.to_owned(),
        Some(pct) if pct.abs() < 0.05 => "0.0".to_owned(),
        Some(pct) if pct < 0.0 => format!("−{:.1}", -pct),
        Some(pct) => format!("+{pct:.1}"),
    }
}

fn number_of(value: Option<f64>, decimals: usize) -> String {
    value.map_or(NONE.to_owned(), |v| format!("{v:.decimals$}"))
}
