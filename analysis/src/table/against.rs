//! Cells against their baseline.

use super::{Against, Row, column, table, words};
use crate::compare::text::{p, signed};
use crate::compare::{Comparison, Outcome};
use crate::markdown::Markdown;

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

/// The pairs of a named group.
#[must_use]
pub fn group(pairs: &[Against]) -> String {
    let reads = pairs.iter().any(|pair| pair.mib_token.difference_pct.is_some());
    let mut headings = vec!["configuration", "against", "Δ tok/s %", "95 % interval"];
    if reads {
        headings.extend(["Δ MiB/token %", "95 % interval"]);
    }
    headings.extend(["runs", "p", "says"]);
    let mut table = Markdown::new(&headings);
    table.left_aligned(1);
    table.left_aligned(headings.len() - 1);
    for Against { tok_s, mib_token } in pairs {
        let mut row = vec![tok_s.b.name.clone(), tok_s.a.name.clone()];
        row.extend([signed(tok_s.difference_pct), interval(tok_s)]);
        if reads {
            row.extend([signed(mib_token.difference_pct), interval(mib_token)]);
        }
        let runs = format!("{} against {}", tok_s.b.runs.len(), tok_s.a.runs.len());
        row.extend([runs, p(tok_s.p_corrected), says(tok_s)]);
        table.row(&row);
    }
    table.finish()
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
