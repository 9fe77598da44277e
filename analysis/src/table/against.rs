//! Cells against their baseline.

use super::{Row, column, table, words};
use crate::compare::text::{p, signed};
use crate::compare::{Comparison, Outcome};

/// The cells that are compared with one baseline.
#[must_use]
pub fn against(rows: &[Row<'_>], baseline: &str) -> String {
    let tok_s = |row: &Row<'_>, of: &dyn Fn(&Comparison) -> String| {
        row.against.as_ref().map_or(String::new(), |a| of(&a.tok_s))
    };
    let mib = |row: &Row<'_>, of: &dyn Fn(&Comparison) -> String| {
        row.against.as_ref().map_or(String::new(), |a| of(&a.mib_token))
    };
    let of_baseline =
        |row: &&Row<'_>| row.against.as_ref().is_some_and(|a| a.tok_s.a.id == baseline);
    let mut columns = vec![
        words("configuration", |row| row.cell.name.to_owned()),
        column("Δ tok/s %", move |row| tok_s(row, &|c| signed(c.difference_pct))),
        column("95 % interval", move |row| tok_s(row, &interval)),
    ];
    // A memory map's bytes are the kernel's: nothing is compared with them.
    let reads =
        |row: &Row<'_>| row.against.as_ref().is_some_and(|a| a.mib_token.difference_pct.is_some());
    if rows.iter().filter(of_baseline).any(reads) {
        columns.extend([
            column("Δ MiB/token %", move |row| mib(row, &|c| signed(c.difference_pct))),
            column("95 % interval", move |row| mib(row, &interval)),
        ]);
    }
    columns.extend([
        column("runs", move |row| {
            tok_s(row, &|c| format!("{} against {}", c.b.runs.len(), c.a.runs.len()))
        }),
        column("p", move |row| tok_s(row, &|c| p(c.p_corrected))),
        words("says", move |row| tok_s(row, &says)),
    ]);
    table(&columns, rows.iter().filter(of_baseline))
}

fn interval(comparison: &Comparison) -> String {
    match comparison.low_pct.zip(comparison.high_pct) {
        Some((low, high)) => format!("{} to {}", signed(Some(low)), signed(Some(high))),
        None => super::NONE.to_owned(),
    }
}

fn says(comparison: &Comparison) -> String {
    let widest = comparison.low_pct.zip(comparison.high_pct).map(|(l, h)| l.abs().max(h.abs()));
    match comparison.outcome {
        Outcome::Better => "faster".to_owned(),
        Outcome::Worse => "slower".to_owned(),
        Outcome::NoneVisible => {
            format!("no difference above {:.1} % visible", widest.unwrap_or_default())
        }
        Outcome::Undecided if comparison.b.runs.is_empty() => "no valid run".to_owned(),
        Outcome::Undecided => "can't decide".to_owned(),
    }
}
