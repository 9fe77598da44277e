//! Tables of intervals, and of the steady state.

use super::{NONE, Row, column, mib, name, number, percent, table, words};
use crate::stats::{Interval, Intervals};

/// 95 % intervals of the rates; cells with tokens only.
#[must_use]
pub fn intervals(rows: &[Row<'_>]) -> String {
    let interval =
        |of: fn(&Intervals) -> Interval| move |row: &Row<'_>| text(row.intervals.as_ref().map(of));
    let columns = [
        words("configuration", name),
        column("mean", interval(|i| i.mean)),
        column("median", interval(|i| i.median)),
        column("p5", interval(|i| i.p5)),
        column("p95", interval(|i| i.p95)),
        column("means of the runs", |row| {
            let range = row.figures.as_ref().and_then(|f| f.run_range());
            text(range.map(|(low, high)| Interval { low, high }))
        }),
        column("runs", |row| {
            row.intervals.map_or(NONE.to_owned(), |i| match i.runs {
                1 => "1 †".to_owned(),
                runs => runs.to_string(),
            })
        }),
        column("tokens per block", |row| {
            row.intervals.map_or(NONE.to_owned(), |i| i.block_tokens.to_string())
        }),
    ];
    table(&columns, rows.iter().filter(|r| r.intervals.is_some()))
}

/// Figures without the tokens that count as warm-up, beside those of all; empty when nothing is to be left
/// out.
#[must_use]
pub fn steady(rows: &[Row<'_>]) -> String {
    let rates = |row: &Row<'_>| row.steady.as_ref().and_then(|s| s.figures.rates);
    let columns = [
        words("configuration", name),
        column("tokens", move |row| rates(row).map_or(NONE.to_owned(), |r| r.tokens.to_string())),
        column("steady tok/s", move |row| number(rates(row).map(|r| r.mean), 2)),
        column("95 % interval", |row| {
            text(row.steady.as_ref().and_then(|s| s.intervals).map(|i| i.mean))
        }),
        column("of all tokens", |row| number(row.rates().map(|r| r.mean), 2)),
        column("median", move |row| number(rates(row).map(|r| r.median), 2)),
        column("p5", move |row| number(rates(row).map(|r| r.p5), 2)),
        column("p95", move |row| number(rates(row).map(|r| r.p95), 2)),
        column("decode hit %", |row| {
            percent(row.steady.as_ref().and_then(|s| s.figures.decode_hit_rate))
        }),
        column("MiB/token", |row| {
            mib(row.steady.as_ref().and_then(|s| s.figures.per_token?.read_mib))
        }),
    ];
    table(&columns, rows.iter().filter(|r| r.steady.is_some()))
}

fn text(interval: Option<Interval>) -> String {
    interval.map_or(NONE.to_owned(), |i| format!("{:.2}–{:.2}", i.low, i.high))
}
