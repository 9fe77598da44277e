//! Markdown tables of a model's cells.

mod against;
mod pressure;
mod spread;

use crate::cells::{Cell, Figures, PerToken, Shortfall};
use crate::compare::Comparison;
use crate::markdown::Markdown;
use crate::pressure::Pressure;
use crate::stats::{Intervals, Rates};

pub use against::{against, group};
pub use pressure::{not_valid, pressure};
pub use spread::{intervals, steady};

/// What stands where nothing was measured.
const NONE: &str = "–";

/// A cell with what its valid runs measured; `None` when none did.
#[derive(Debug, Clone, PartialEq)]
pub struct Row<'a> {
    /// The cell.
    pub cell: Cell<'a>,
    /// Its figures.
    pub figures: Option<Figures>,
    /// What the data lack of its valid attempts, by repetition.
    pub shortfalls: Vec<(u32, Shortfall)>,
    /// Intervals of its rates; `None` when no token was decoded.
    pub intervals: Option<Intervals>,
    /// Its figures without warm-up; `None` when nothing is to be left out.
    pub steady: Option<Steady>,
    /// It against its baseline; `None` for a baseline, and where there is none.
    pub against: Option<Against>,
    /// All its attempts and the target.
    pub pressure: Pressure,
}

/// Figures of the tokens behind the warm-up.
#[derive(Debug, Clone, PartialEq)]
pub struct Steady {
    /// The figures.
    pub figures: Figures,
    /// Intervals of their rates.
    pub intervals: Option<Intervals>,
}

/// A cell against its baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct Against {
    /// Mean rates.
    pub tok_s: Comparison,
    /// MiB per token.
    pub mib_token: Comparison,
}

impl Row<'_> {
    fn rates(&self) -> Option<Rates> {
        self.figures.as_ref()?.rates
    }

    fn token(&self) -> Option<PerToken> {
        self.figures.as_ref()?.per_token
    }
}

/// A column: its heading, and what stands in it for a row.
struct Column<'a> {
    heading: &'static str,
    left: bool,
    text: Box<dyn Fn(&Row<'_>) -> String + 'a>,
}

/// A column of numbers.
fn column<'a>(heading: &'static str, text: impl Fn(&Row<'_>) -> String + 'a) -> Column<'a> {
    Column { heading, left: false, text: Box::new(text) }
}

/// A column of words.
fn words<'a>(heading: &'static str, text: impl Fn(&Row<'_>) -> String + 'a) -> Column<'a> {
    Column { left: true, ..column(heading, text) }
}

/// The table of some rows; empty without any.
fn table<'r, 'a: 'r>(columns: &[Column<'_>], rows: impl Iterator<Item = &'r Row<'a>>) -> String {
    let headings: Vec<&str> = columns.iter().map(|c| c.heading).collect();
    let mut table = Markdown::new(&headings);
    for (index, _) in columns.iter().enumerate().filter(|(_, c)| c.left) {
        table.left_aligned(index);
    }
    for row in rows {
        table.row(&columns.iter().map(|c| (c.text)(row)).collect::<Vec<_>>());
    }
    table.finish()
}

/// Whether some cell's figures have a property, so that a column of it says something.
fn any(rows: &[Row<'_>], has: impl Fn(&Figures) -> bool) -> bool {
    rows.iter().filter_map(|r| r.figures.as_ref()).any(has)
}

/// The benchmark table: one row per cell, cells without a valid run with their reason.
#[must_use]
pub fn benchmark(rows: &[Row<'_>]) -> String {
    let baseline = rows.iter().find(|r| r.cell.baseline).and_then(Row::rates).map(|r| r.mean);
    let speed_up = move |row: &Row<'_>| {
        let speed_up = row.rates().zip(baseline).map(|(rates, base)| rates.mean / base);
        match speed_up {
            Some(_) if row.cell.baseline => "1".to_owned(),
            speed_up => number(speed_up, 2),
        }
    };
    let rate = |of: fn(&Rates) -> f64| move |row: &Row<'_>| number(row.rates().as_ref().map(of), 2);
    let columns = [
        words("configuration", name),
        column("tok/s mean", mean_rate),
        column("× baseline", speed_up),
        column("min", rate(|r| r.min)),
        column("max", rate(|r| r.max)),
        column("median", rate(|r| r.median)),
        column("p5", rate(|r| r.p5)),
        column("p95", rate(|r| r.p95)),
        column("hit %", figure(|f| percent(f.hit_rate))),
        column("MiB/token", |r| mib(r.token().and_then(|t| t.read_mib))),
        column("compute + I/O s/token", |r| {
            let stalls = r.figures.as_ref().is_some_and(|f| f.overlaps);
            r.token().map_or(NONE.to_owned(), |t| {
                let waits = number(t.io_wait_s, 3);
                format!("{:.3} + {waits}{}", t.compute_s, if stalls { " (stall)" } else { "" })
            })
        }),
        column("first token s", figure(|f| number(f.first_token_s, 2))),
        column("peak RSS MiB", figure(|f| mib(f.peak_rss_mib))),
        words("verdict", |r| r.cell.verdict(&r.shortfalls)),
    ];
    table(&columns, rows.iter())
}

/// Where the time of an average decode token goes, and what its reads were; cells with tokens only.
#[must_use]
pub fn per_token(rows: &[Row<'_>]) -> String {
    let token = |of: fn(&PerToken) -> Option<f64>, unit: f64, decimals: usize| {
        move |row: &Row<'_>| number(row.token().as_ref().and_then(of).map(|v| v * unit), decimals)
    };
    let ms = |of| token(of, 1e3, 2);
    let overlaps = |row: &Row<'_>| row.figures.as_ref().is_some_and(|f| f.overlaps);
    let wait = move |stalls: bool| {
        move |row: &Row<'_>| {
            let wait = row.token().and_then(|t| t.io_wait_s).filter(|_| overlaps(row) == stalls);
            number(wait.map(|s| s * 1e3), 2)
        }
    };
    let mut columns = vec![
        words("configuration", name),
        column("wall ms", ms(|t| Some(t.wall_s))),
        column("compute ms", ms(|t| Some(t.compute_s))),
        column("I/O wait ms", wait(false)),
    ];
    if any(rows, |f| f.overlaps) {
        columns.push(column("stall ms", wait(true)));
    }
    columns.extend([
        column("cache management ms", ms(|t| t.mgmt_s)),
        column("other ms", ms(|t| Some(t.other_s))),
        column("lanes busy ms", ms(|t| t.lane_busy_s)),
        column("CPU ms", ms(|t| Some(t.cpu_s))),
        column("reads", token(|t| t.reads, 1.0, 1)),
        column("MiB transferred", |r| mib(r.token().and_then(|t| t.device_read_mib))),
    ]);
    if any(rows, |f| f.read_rate_mib_s.is_some()) {
        columns.push(column("MiB/s while reading", figure(|f| number(f.read_rate_mib_s, 0))));
    }
    columns.push(column("decode hit %", figure(|f| percent(f.decode_hit_rate))));
    if any(rows, |f| f.speculates) {
        columns.extend([
            column("experts read ahead", token(|t| t.speculated, 1.0, 1)),
            column("MiB ahead", |r| mib(r.token().and_then(|t| t.speculated_mib))),
            column("of them used", token(|t| t.speculated_hits, 1.0, 1)),
            column("left unused", token(|t| t.speculated_wasted, 1.0, 1)),
        ]);
    }
    columns.push(column("major faults", token(|t| Some(t.major_faults), 1.0, 1)));
    table(&columns, rows.iter().filter(|r| r.token().is_some()))
}

/// What loading and the prompt cost, and the memory for experts; cells with a valid run only.
#[must_use]
pub fn start_up(rows: &[Row<'_>]) -> String {
    let mut columns = vec![
        words("configuration", name),
        column("load s", figure(|f| number(f.load_s, 2))),
        column("dense MiB read", figure(|f| mib(f.dense_read_mib))),
        column("expert bytes read while loading", figure(|f| text(f.load_expert_read_bytes))),
        column("prompt tokens", figure(|f| text(f.prompt_tokens))),
        column("prefill s", figure(|f| number(f.prefill_s, 2))),
        column(
            "prefill tok/s",
            figure(|f| {
                let timed = f.prompt_tokens.zip(f.prefill_s).filter(|(_, s)| *s > 0.0);
                number(timed.map(|(tokens, s)| f64::from(tokens) / s), 2)
            }),
        ),
        column("cache budget MiB", figure(|f| mib(f.cache_budget_mib))),
    ];
    if any(rows, |f| f.cache_resizes.is_some_and(|n| n > 0)) {
        columns.push(column("at the end", figure(|f| mib(f.last_budget_mib))));
    }
    let policies = rows.iter().filter_map(|r| r.figures.as_ref()?.cache_policy.as_deref());
    if policies.collect::<std::collections::BTreeSet<_>>().len() > 1 {
        columns.push(words("policy", figure(|f| text(f.cache_policy.as_deref()))));
    }
    columns.extend([
        column("peak cache MiB", figure(|f| mib(f.peak_cache_mib))),
        column("event room MiB", figure(|f| mib(f.event_room_mib))),
        words("direct I/O", figure(|f| text(used(f.direct_io.as_deref())))),
    ]);
    if any(rows, |f| f.io_engine.as_deref().is_some_and(|e| e != "pread" && e != "not_applicable"))
    {
        columns.push(words("I/O engine", figure(|f| text(used(f.io_engine.as_deref())))));
    }
    let load = |row: &Row<'_>| row.cell.load_average();
    if rows.iter().any(|r| load(r).is_some()) {
        columns.push(column("load average", move |r| {
            load(r).map_or(NONE.to_owned(), |(before, after)| format!("{before:.1} → {after:.1}"))
        }));
    }
    table(&columns, rows.iter().filter(|r| r.figures.is_some()))
}

fn used(how: Option<&str>) -> Option<&str> {
    how.filter(|how| *how != "not_applicable")
}

fn figure(of: impl Fn(&Figures) -> String) -> impl Fn(&Row<'_>) -> String {
    move |row| row.figures.as_ref().map_or(NONE.to_owned(), &of)
}

fn text(value: Option<impl std::fmt::Display>) -> String {
    value.map_or(NONE.to_owned(), |v| v.to_string())
}

fn name(row: &Row<'_>) -> String {
    let cell = &row.cell;
    let marks = [(cell.baseline, "baseline"), (cell.config.replay_routes.is_some(), "replayed")];
    let marks: Vec<&str> = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
    if marks.is_empty() {
        cell.name.to_owned()
    } else {
        format!("{} ({})", cell.name, marks.join(", "))
    }
}

/// The mean rate, and with repetitions its interval.
fn mean_rate(row: &Row<'_>) -> String {
    let mean = number(row.rates().map(|r| r.mean), 2);
    match row.intervals {
        Some(Intervals { mean: interval, runs, .. }) if runs > 1 => {
            format!("{mean} ({:.2}–{:.2})", interval.low, interval.high)
        }
        _ => mean,
    }
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or(NONE.to_owned(), |v| format!("{v:.decimals$}"))
}

fn percent(share: Option<f64>) -> String {
    number(share.map(|s| s * 100.0), 1)
}

/// Whole MiB from 100 on, one decimal below.
pub(crate) fn mib(value: Option<f64>) -> String {
    number(value, if value.is_some_and(|v| v >= 99.95) { 0 } else { 1 })
}
