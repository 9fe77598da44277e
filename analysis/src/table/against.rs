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
    let columns = [
        words("configuration", |row| row.cell.name.to_owned()),
        column("Δ tok/s %", move |row| tok_s(row, &|c| signed(c.difference_pct))),
        column("95 % interval", move |row| tok_s(row, &interval)),
        column("Δ MiB/token %", move |row| mib(row, &|c| signed(c.difference_pct))),
        column("95 % interval", move |row| mib(row, &interval)),
        column("runs", move |row| {
            tok_s(row, &|c| format!("{} against {}", c.b.runs.len(), c.a.runs.len()))
        }),
        column("p", move |row| tok_s(row, &|c| p(c.p_corrected))),
        words("says", move |row| tok_s(row, &says)),
    ];
    let of_baseline =
        |row: &&Row<'_>| row.against.as_ref().is_some_and(|a| a.tok_s.a.id == baseline);
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
        Outcome::Undecided => "can't decide".to_owned(),
    }
}
