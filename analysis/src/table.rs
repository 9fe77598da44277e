//! Markdown tables of a model's cells.

use std::fmt::Write as _;

use crate::cells::{Cell, Figures, Shortfall};
use crate::stats::Rates;

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
}

/// The benchmark table: one row per cell, cells without a valid run with their reason.
#[must_use]
pub fn benchmark(rows: &[Row<'_>]) -> String {
    let baseline = rows
        .iter()
        .find(|r| r.cell.baseline)
        .and_then(|r| r.figures.as_ref()?.rates)
        .map(|rates| rates.mean);
    let mut table = Markdown::new(&[
        "configuration",
        "tok/s mean",
        "× baseline",
        "min",
        "max",
        "median",
        "p5",
        "p95",
        "hit %",
        "MiB/token",
        "compute + I/O s/token",
        "first token s",
        "peak RSS MiB",
        "verdict",
    ]);
    table.left_aligned(13);
    for Row { cell, figures, shortfalls } in rows {
        let figures = figures.as_ref();
        let rates = figures.and_then(|f| f.rates);
        let token = figures.and_then(|f| f.per_token);
        let rate = |of: fn(&Rates) -> f64| number(rates.as_ref().map(of), 2);
        let speed_up = rates.zip(baseline).map(|(rates, base)| rates.mean / base);
        table.row(&[
            name(cell),
            figures.map_or(NONE.to_owned(), mean_rate),
            if cell.baseline && speed_up.is_some() { "1".to_owned() } else { number(speed_up, 2) },
            rate(|r| r.min),
            rate(|r| r.max),
            rate(|r| r.median),
            rate(|r| r.p5),
            rate(|r| r.p95),
            percent(figures.and_then(|f| f.hit_rate)),
            mib(token.and_then(|t| t.read_mib)),
            token.map_or(NONE.to_owned(), |t| {
                format!("{:.3} + {}", t.compute_s, number(t.io_wait_s, 3))
            }),
            number(figures.and_then(|f| f.first_token_s), 2),
            mib(figures.and_then(|f| f.peak_rss_mib)),
            cell.verdict(shortfalls),
        ]);
    }
    table.finish()
}

/// Where the time of an average decode token goes, and what its reads were; cells with tokens only.
#[must_use]
pub fn per_token(rows: &[Row<'_>]) -> String {
    let mut table = Markdown::new(&[
        "configuration",
        "wall ms",
        "compute ms",
        "I/O wait ms",
        "cache management ms",
        "other ms",
        "lanes busy ms",
        "CPU ms",
        "reads",
        "MiB transferred",
        "decode hit %",
        "major faults",
    ]);
    for Row { cell, figures, .. } in rows {
        let Some((figures, token)) = figures.as_ref().and_then(|f| Some((f, f.per_token?))) else {
            continue;
        };
        let ms = |seconds: Option<f64>| number(seconds.map(|s| s * 1e3), 2);
        table.row(&[
            name(cell),
            ms(Some(token.wall_s)),
            ms(Some(token.compute_s)),
            ms(token.io_wait_s),
            ms(token.mgmt_s),
            ms(Some(token.other_s)),
            ms(token.lane_busy_s),
            ms(Some(token.cpu_s)),
            number(token.reads, 1),
            mib(token.device_read_mib),
            percent(figures.decode_hit_rate),
            number(Some(token.major_faults), 1),
        ]);
    }
    table.finish()
}

/// What loading and the prompt cost, and the memory for experts; cells with a valid run only.
#[must_use]
pub fn start_up(rows: &[Row<'_>]) -> String {
    let mut table = Markdown::new(&[
        "configuration",
        "load s",
        "dense MiB read",
        "expert bytes read while loading",
        "prompt tokens",
        "prefill s",
        "prefill tok/s",
        "cache budget MiB",
        "peak cache MiB",
        "event room MiB",
        "direct I/O",
    ]);
    table.left_aligned(10);
    for Row { cell, figures, .. } in rows {
        let Some(figures) = figures else { continue };
        let prefill_rate = figures
            .prompt_tokens
            .zip(figures.prefill_s)
            .filter(|(_, s)| *s > 0.0)
            .map(|(tokens, s)| f64::from(tokens) / s);
        table.row(&[
            name(cell),
            number(figures.load_s, 2),
            mib(figures.dense_read_mib),
            figures.load_expert_read_bytes.map_or(NONE.to_owned(), |b| b.to_string()),
            figures.prompt_tokens.map_or(NONE.to_owned(), |n| n.to_string()),
            number(figures.prefill_s, 2),
            number(prefill_rate, 2),
            mib(figures.cache_budget_mib),
            mib(figures.peak_cache_mib),
            mib(figures.event_room_mib),
            match figures.direct_io.as_deref() {
                None | Some("not_applicable") => NONE.to_owned(),
                Some(how) => how.to_owned(),
            },
        ]);
    }
    table.finish()
}

fn name(cell: &Cell<'_>) -> String {
    if cell.baseline { format!("{} (baseline)", cell.name) } else { cell.name.to_owned() }
}

/// The mean rate, and with repetitions the lowest and highest of their own means.
fn mean_rate(figures: &Figures) -> String {
    let mean = number(figures.rates.map(|r| r.mean), 2);
    let low = figures.run_means.iter().copied().min_by(f64::total_cmp);
    let high = figures.run_means.iter().copied().max_by(f64::total_cmp);
    match low.zip(high) {
        Some((low, high)) if figures.runs > 1 => format!("{mean} ({low:.2}–{high:.2})"),
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

/// A table being written; the first column is left-aligned, numbers stand on the right.
pub(crate) struct Markdown {
    text: String,
    columns: Vec<String>,
    left: Vec<bool>,
    open: bool,
}

impl Markdown {
    pub(crate) fn new(columns: &[&str]) -> Self {
        Self {
            text: String::new(),
            columns: columns.iter().map(|c| (*c).to_owned()).collect(),
            left: (0..columns.len()).map(|column| column == 0).collect(),
            open: false,
        }
    }

    pub(crate) fn left_aligned(&mut self, column: usize) {
        self.left[column] = true;
    }

    pub(crate) fn row(&mut self, cells: &[String]) {
        if !self.open {
            self.open = true;
            let columns = self.columns.clone();
            self.line(&columns);
            self.text.push('|');
            for left in &self.left {
                self.text.push_str(if *left { "---|" } else { "---:|" });
            }
            self.text.push('\n');
        }
        self.line(cells);
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }

    fn line(&mut self, cells: &[String]) {
        self.text.push('|');
        for cell in cells {
            let _ = write!(self.text, " {} |", escape(cell));
        }
        self.text.push('\n');
    }
}

/// Text on one line, without characters that move the cursor or turn the direction of writing.
pub(crate) fn one_line(text: &str) -> String {
    let moves =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let plain: String = text.chars().map(|c| if moves(c) { ' ' } else { c }).collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text as one line of a table cell or of prose: it ends no cell and opens no HTML. A broken bar stands for
/// a bar, since a backslash before one means one thing to Markdown and another on a terminal.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let line = one_line(text).replace('|', "¦");
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '<' && chars.peek().is_some_and(|n| n.is_ascii_alphabetic() || "!/?".contains(*n)) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// The same for the text of a link or of a picture, which a bracket would end.
pub(crate) fn link_text(text: &str) -> String {
    escape(text).replace('[', "(").replace(']', ")")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_cell() {
        let mut table = Markdown::new(&["a", "b"]);
        table.row(&["x\r\n| y\u{1b}[2J\0 \\| z".into(), "1 < 2 <!-- <b>\u{202e}".into()]);
        assert_eq!(
            table.finish(),
            "| a | b |\n|---|---:|\n| x ¦ y [2J \\¦ z | 1 < 2 \\<!-- \\<b> |\n"
        );
        assert_eq!(link_text("a]b [c|"), "a)b (c¦");
    }
}
