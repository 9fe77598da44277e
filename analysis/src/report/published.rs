//! Measured beside published.
//!
//! Rates are the device's: they are given with their ratio and never judged. Hit rate and bytes per token are
//! properties of the routing, the budget and the policy, so they must agree closely wherever the model is the same,
//! and the order of the configurations in them must hold anywhere.

use std::fmt::Write as _;

use super::ModelPart;
use crate::cells::Figures;
use crate::markdown::{Markdown, escape};
use crate::result_set::{PublishedCell, PublishedFigures, PublishedSet};

/// Hit rates agree within so many points: published runs of one model and budget differ by up to 2.2 points
/// (74.9, 76.5 and 77.1 % at 4000 MiB), by their texts.
const HIT_POINTS: f64 = 3.0;
/// Bytes per token agree within this share: a token's misses are a small remainder, which a point of hit rate
/// changes by several per cent (217.6 and 224.65 MiB are published of one configuration).
const BYTES_SHARE: f64 = 0.15;
/// Configurations whose published figures differ by less are not put in an order.
const SAME_SHARE: f64 = 0.03;

/// One figure: its name, its decimals, what was published, what was measured.
struct Figure {
    name: &'static str,
    decimals: usize,
    published: fn(&PublishedFigures) -> Option<f64>,
    measured: fn(&Figures) -> Option<f64>,
    agrees: Option<fn(f64, f64) -> bool>,
}

const HIT: Figure = Figure {
    name: "hit %",
    decimals: 1,
    published: |p| p.hit_pct,
    measured: |f| f.hit_rate.map(|rate| 100.0 * rate),
    agrees: Some(|measured, published| (measured - published).abs() <= HIT_POINTS),
};

const BYTES: Figure = Figure {
    name: "MiB/token",
    decimals: 1,
    published: |p| p.mib_token,
    measured: |f| f.per_token?.read_mib,
    agrees: Some(|measured, published| (measured / published - 1.0).abs() <= BYTES_SHARE),
};

const FIGURES: [Figure; 11] = [
    HIT,
    BYTES,
    rate("tok/s mean", |p| p.tok_s, |f| f.rates.map(|r| r.mean)),
    rate("min", |p| p.min_tok_s, |f| f.rates.map(|r| r.min)),
    rate("max", |p| p.max_tok_s, |f| f.rates.map(|r| r.max)),
    rate("median", |p| p.median_tok_s, |f| f.rates.map(|r| r.median)),
    rate("p5", |p| p.p5_tok_s, |f| f.rates.map(|r| r.p5)),
    rate("p95", |p| p.p95_tok_s, |f| f.rates.map(|r| r.p95)),
    seconds("compute s/token", |p| p.compute_s, |f| f.per_token.map(|t| t.compute_s)),
    seconds("I/O or stall s/token", |p| p.io_s, |f| f.per_token?.io_wait_s),
    seconds("lanes busy s/token", |p| p.lanes_busy_s, |f| f.per_token?.lane_busy_s),
];

const fn rate(
    name: &'static str,
    published: fn(&PublishedFigures) -> Option<f64>,
    measured: fn(&Figures) -> Option<f64>,
) -> Figure {
    Figure { name, decimals: 2, published, measured, agrees: None }
}

const fn seconds(
    name: &'static str,
    published: fn(&PublishedFigures) -> Option<f64>,
    measured: fn(&Figures) -> Option<f64>,
) -> Figure {
    Figure { name, decimals: 3, published, measured, agrees: None }
}

/// The section; empty when nothing was published.
pub(super) fn section(published: Option<&PublishedSet>, models: &[ModelPart<'_>]) -> String {
    let Some(published) = published else { return String::new() };
    let measured = |cell: &PublishedCell| -> Option<&Figures> {
        let rows = models.iter().flat_map(|model| &model.rows);
        rows.filter(|row| row.cell.id == cell.id).find_map(|row| row.figures.as_ref())
    };
    let (table, agreed) = beside(published, &measured);
    let (order, held) = in_order(published, &measured);
    let mut text = format!(
        "\n## Measured beside published\n\nPublished: {}; on {}.\n\n{table}",
        escape(&published.source),
        escape(&published.device)
    );
    if !order.is_empty() {
        let _ = write!(text, "\n### Differences that should hold on any device\n\n{order}");
    }
    let counted = |what: &str, counts: Counts| {
        let Counts { yes, of, unmeasured } = counts;
        let rest =
            if unmeasured > 0 { format!(" ({unmeasured} not measured)") } else { String::new() };
        format!("{what} {yes} of {of}{rest}")
    };
    let _ = write!(
        text,
        "\n- {}; {}.\n- Agreement is {HIT_POINTS} points of hit rate and {:.0} % of MiB/token: these are the routing's, \
         and differ by the text. Rates and times are the device's; their ratio is given and not judged.\n",
        counted("Hit rate and MiB/token agree in", agreed),
        counted("differences hold in", held),
        100.0 * BYTES_SHARE
    );
    text
}

/// How many of some statements are true.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    yes: usize,
    of: usize,
    unmeasured: usize,
}

impl Counts {
    /// Counts one in; `None` = it could not be measured.
    fn add(&mut self, holds: Option<bool>) -> &'static str {
        match holds {
            None => {
                self.unmeasured += 1;
                "not measured"
            }
            Some(holds) => {
                self.of += 1;
                self.yes += usize::from(holds);
                if holds { "yes" } else { "no" }
            }
        }
    }
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.decimals$}"))
}

/// Each figure of each cell.
fn beside<'f>(
    published: &PublishedSet,
    measured: &dyn Fn(&PublishedCell) -> Option<&'f Figures>,
) -> (String, Counts) {
    let mut table =
        Markdown::new(&["configuration", "figure", "measured", "published", "ratio", "agrees"]);
    table.left_aligned(1);
    table.left_aligned(5);
    let mut counts = Counts::default();
    for cell in &published.cells {
        for figure in &FIGURES {
            let Some(said) = (figure.published)(&cell.figures) else { continue };
            let found = measured(cell).and_then(figure.measured);
            let agrees = match figure.agrees {
                None => "–",
                Some(agrees) => counts.add(found.map(|found| agrees(found, said))),
            };
            table.row(&[
                cell.name.clone(),
                figure.name.to_owned(),
                number(found, figure.decimals),
                number(Some(said), figure.decimals),
                number(found.map(|found| found / said), 2),
                agrees.to_owned(),
            ]);
        }
    }
    (table.finish(), counts)
}

/// Neighbours in the published order of hit rate and of bytes per token, model by model.
fn in_order<'f>(
    published: &PublishedSet,
    measured: &dyn Fn(&PublishedCell) -> Option<&'f Figures>,
) -> (String, Counts) {
    let mut table = Markdown::new(&["figure", "less", "more", "published", "measured", "holds"]);
    for column in [1, 2, 5] {
        table.left_aligned(column);
    }
    let mut counts = Counts::default();
    let mut models: Vec<&str> = Vec::new();
    for cell in &published.cells {
        if !models.contains(&cell.model.as_str()) {
            models.push(&cell.model);
        }
    }
    for model in models {
        for figure in [&BYTES, &HIT] {
            let of_model = published.cells.iter().filter(|cell| cell.model == model);
            let mut said: Vec<(&PublishedCell, f64)> = of_model
                .filter_map(|cell| Some((cell, (figure.published)(&cell.figures)?)))
                .collect();
            said.sort_by(|a, b| a.1.total_cmp(&b.1));
            for pair in said.windows(2) {
                let [(less, low), (more, high)] = [pair[0], pair[1]];
                if high <= low * (1.0 + SAME_SHARE) {
                    continue;
                }
                let found = measured(less)
                    .and_then(figure.measured)
                    .zip(measured(more).and_then(figure.measured));
                let both = |low: f64, high: f64| format!("{low:.0$} < {high:.0$}", figure.decimals);
                table.row(&[
                    figure.name.to_owned(),
                    less.name.clone(),
                    more.name.clone(),
                    both(low, high),
                    found.map_or_else(
                        || "–".to_owned(),
                        |(less, more)| {
                            if less < more {
                                both(less, more)
                            } else {
                                format!("{less:.0$} ≥ {more:.0$}", figure.decimals)
                            }
                        },
                    ),
                    counts.add(found.map(|(less, more)| less < more)).to_owned(),
                ]);
            }
        }
    }
    (table.finish(), counts)
}
