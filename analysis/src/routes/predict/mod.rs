//! How well a layer's experts can be guessed before its router has run, and whether reading them early pays.
//!
//! Guesses are for generated tokens, from the second one on. What is fitted is fitted on the first part of them and
//! scored on the rest; the same fitted on everything is beside it, to show what scoring on the fitted part makes of
//! it. `docs/routes.md` has the definitions.

mod fit;
mod guess;
mod pays;
mod score;

use bmoe_cache::PolicyKind;
use serde::Serialize;

pub use guess::Predictor;
pub use pays::{break_even_bytes, saved_s};

use super::RouteTrace;
use super::views::ViewError;
use crate::device_model::DeviceModel;
use crate::tabular::{Column, MIB, Table, Value};

/// How to score.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictOptions {
    /// Experts guessed per layer; empty = k, 2k, 3k and 4k.
    pub experts: Vec<usize>,
    /// The share of the generated tokens, the first ones, that is fitted on.
    pub fit_share: f64,
    /// A cache that experts are in already: only what it lacks is read early. `None` = no cache.
    pub cache: Option<(PolicyKind, u64)>,
    /// What stalls are estimated for.
    pub device: Option<DeviceModel>,
}

impl Default for PredictOptions {
    fn default() -> Self {
        Self { experts: Vec::new(), fit_share: 0.5, cache: None, device: None }
    }
}

/// All predictors on one trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Predict {
    /// Experts per token.
    pub top_k: usize,
    /// Experts per layer.
    pub n_expert: u32,
    /// Generated tokens that are scored: from the second one on.
    pub tokens: usize,
    /// The first so many generated tokens are fitted on.
    pub fitted_tokens: usize,
    /// The others are held out.
    pub held_out_tokens: usize,
    /// The cache that experts may be in already: policy and bytes.
    pub cache: Option<(String, u64)>,
    /// What stalls are estimated for.
    pub device: Option<DeviceModel>,
    /// Sizes are known.
    pub sized: bool,
    /// Bytes that a scored token needs, of all layers, and the cache lacks.
    pub demand_bytes: f64,
    /// Predictors, each with its numbers of experts.
    pub rows: Vec<PredictRow>,
    /// Those that the trace lacks something for, and what.
    pub left_out: Vec<(Predictor, &'static str)>,
    /// Of the experts of generated tokens, those that the recorded run had read ahead and used for the first time, by
    /// whatever it guessed with; `None` = it read nothing ahead, or does not say.
    pub recorded_ahead: Option<f64>,
}

/// One predictor with one number of experts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PredictRow {
    /// The predictor.
    pub predictor: Predictor,
    /// What it knows besides the tokens before.
    pub fitted_on: &'static str,
    /// Experts guessed per layer.
    pub experts: usize,
    /// Share of a layer's experts that are among the guessed ones, over all scored tokens, 0 to 1; `None` for what is
    /// fitted on a part of them.
    pub found: Option<f64>,
    /// The same over the held-out tokens.
    pub found_held_out: Option<f64>,
    /// Share of the guessed experts that are used, over the tokens that the bytes are of.
    pub precision: Option<f64>,
    /// Bytes of the guessed experts that the cache lacks, per token, over all scored tokens (held-out ones for what is
    /// fitted on the others).
    pub read_bytes: f64,
    /// Of them, of experts that are used.
    pub useful_bytes: f64,
    /// Bytes that a token needs and the cache lacks.
    pub demand_bytes: f64,
    /// Stall that a token is spared, seconds; below 0 = it gets slower.
    pub saved_s: Option<f64>,
}

impl PredictRow {
    /// Bytes per token that are read for nothing.
    #[must_use]
    pub fn wasted_bytes(&self) -> f64 {
        self.read_bytes - self.useful_bytes
    }
}

impl Predict {
    /// Scores all predictors.
    ///
    /// # Errors
    /// The trace has fewer than two generated tokens, or a cache or a device is given and it has no sizes.
    pub fn of(trace: &RouteTrace, options: &PredictOptions) -> Result<Self, ViewError> {
        score::score(trace, options)
    }

    /// The row of a predictor with so many experts.
    #[must_use]
    pub fn row(&self, predictor: Predictor, experts: usize) -> Option<&PredictRow> {
        self.rows.iter().find(|row| row.predictor == predictor && row.experts == experts)
    }

    /// As rows.
    #[must_use]
    pub fn table(&self) -> Table {
        let mib = |bytes: f64| Value::mib(self.sized.then_some(bytes));
        let row = |row: &PredictRow| {
            vec![
                row.predictor.name().into(),
                row.fitted_on.into(),
                row.experts.into(),
                Value::percent(row.found),
                Value::percent(row.found_held_out),
                Value::percent(row.precision),
                mib(row.read_bytes),
                mib(row.wasted_bytes()),
                Value::maybe(row.saved_s.map(|s| s * 1e3), 1),
                match row.saved_s {
                    Some(saved) if saved > 0.0 => "yes".into(),
                    Some(_) => "no".into(),
                    None => Value::Missing,
                },
            ]
        };
        Table {
            title: format!(
                "predict: share of a layer's {} experts (of {}) found before its router runs, {} generated tokens",
                self.top_k, self.n_expert, self.tokens
            ),
            columns: vec![
                Column::text("predictor", "predictor"),
                Column::text("fitted_on", "fitted on"),
                Column::number("experts", "experts"),
                Column::number("found_pct", "found, %"),
                Column::number("found_held_out_pct", "held out, %"),
                Column::number("used_pct", "used, %"),
                Column::number("read_mib_token", "MiB/token"),
                Column::number("wasted_mib_token", "wasted"),
                Column::number("saved_ms_token", "saved ms"),
                Column::text("pays", "pays"),
            ],
            rows: self.rows.iter().map(row).collect(),
            notes: self.notes(),
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!(
            "held out: the last {} tokens; fitted predictors saw the first {}. \"itself\" is fitted on what it is \
             scored on, which flatters it",
            self.held_out_tokens, self.fitted_tokens
        )];
        match &self.cache {
            Some((policy, bytes)) => notes.push(format!(
                "MiB/token: guessed experts that a cache of {:.0} MiB ({policy}) lacks; early reads are not put into \
                 it",
                *bytes as f64 / MIB
            )),
            None => notes.push(
                "MiB/token: all guessed experts, as without a cache; --budget-mib leaves out what a cache holds"
                    .to_owned(),
            ),
        }
        match self.device {
            Some(device) => notes.push(format!(
                "break-even: {:.1} MiB wasted per token, what {:.0} MiB/s read beside {:.1} ms of computation ({:.0} % of \
                 the shorter hidden as it is); beyond it reading early costs more than it saves",
                break_even_bytes(&device, self.demand_bytes) / MIB,
                device.read_mib_s,
                device.compute_s * 1e3,
                device.overlap * 100.0
            )),
            None => notes.push(
                "break-even: bytes wasted per token = read rate x computation per token; give --read-mib-s and \
                 --compute-ms, or --fit, for stalls"
                    .to_owned(),
            ),
        }
        notes.extend(self.left_out.iter().map(|(p, why)| format!("left out: {}, {why}", p.name())));
        notes.push(match self.recorded_ahead {
            Some(share) => format!(
                "reading ahead in the recorded run served {:.1} % of the experts of generated tokens",
                share * 100.0
            ),
            None => "the next layer's router needs that layer's input, which no trace holds: `--predict K` runs it in \
                     the engine, and a trace of such a run says here what it served"
                .to_owned(),
        });
        notes
    }
}
