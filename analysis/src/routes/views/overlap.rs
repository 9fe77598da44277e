//! How much of a token's choice earlier tokens made, too.

use serde::Serialize;

use super::{Asked, Selection, ViewError, tokens_word};
use crate::routes::RouteTrace;
use crate::routes::tokens::{Phases, TokenRoutes, shared};
use crate::stats::mean;
use crate::tabular::{Column, Table, Value};

/// The longest distance looked at.
pub const MOST_LAG: usize = 16;

/// Agreement with earlier tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Overlap {
    /// The part of the run; agreement is between its tokens only.
    pub phases: Phases,
    /// What two random choices share: top-k over experts.
    pub random: f64,
    /// Mean over the layers at lag 1 to 16; `None` where the run is too short.
    pub mean: Vec<Option<f64>>,
    /// The layers.
    pub layers: Vec<LayerOverlap>,
}

/// One layer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerOverlap {
    /// The model's number of it.
    pub layer: u32,
    /// At lag 1 to 16: the mean share of a token's experts that the token so many steps back used, too.
    pub lags: Vec<Option<f64>>,
}

impl Overlap {
    /// Asks a trace.
    ///
    /// # Errors
    /// It has no such layer, or no tokens of that part.
    pub fn new(trace: &RouteTrace, selection: &Selection) -> Result<Self, ViewError> {
        Ok(Self::of(&Asked::new(trace, selection)?))
    }

    pub(super) fn of(asked: &Asked<'_>) -> Self {
        let tokens = TokenRoutes::new(asked.trace);
        let mut top_k = 0;
        let layers: Vec<_> = asked
            .layers
            .iter()
            .map(|layer| {
                let experts: Vec<&[u16]> =
                    tokens.of(*layer, asked.phases).map(|token| token.experts).collect();
                top_k = experts.iter().map(|e| e.len()).max().unwrap_or(0).max(top_k);
                let lags = (1..=MOST_LAG).map(|lag| at(&experts, lag)).collect();
                LayerOverlap { layer: asked.index(*layer), lags }
            })
            .collect();
        let across =
            |lag: usize| mean(&layers.iter().filter_map(|l| l.lags[lag]).collect::<Vec<_>>());
        Self {
            phases: asked.phases,
            random: top_k as f64 / f64::from(asked.trace.n_expert.max(1)),
            mean: (0..MOST_LAG).map(across).collect(),
            layers,
        }
    }

    /// Mean over the layers with the token so many steps back; `None` when the run is too short.
    #[must_use]
    pub fn mean_at(&self, lag: usize) -> Option<f64> {
        self.mean.get(lag.checked_sub(1)?).copied().flatten()
    }

    pub(super) fn table(&self) -> Table {
        let row = |name: Value, lags: &[Option<f64>]| {
            std::iter::once(name).chain(lags.iter().map(|lag| Value::percent(*lag))).collect()
        };
        let mut rows: Vec<Vec<Value>> =
            self.layers.iter().map(|l| row(l.layer.into(), &l.lags)).collect();
        if self.layers.len() > 1 {
            rows.insert(0, row("mean".into(), &self.mean));
        }
        let lag = NAMES.iter().enumerate().map(|(i, n)| Column::number(n, (i + 1).to_string()));
        Table {
            title: format!(
                "overlap: share of a token's experts that the token N steps back used, %, {}",
                tokens_word(self.phases)
            ),
            columns: std::iter::once(Column::number("layer", "layer")).chain(lag).collect(),
            rows,
            notes: vec![format!("two random choices share {:.1} %", self.random * 100.0)],
        }
    }
}

const NAMES: [&str; MOST_LAG] = [
    "lag1_pct",
    "lag2_pct",
    "lag3_pct",
    "lag4_pct",
    "lag5_pct",
    "lag6_pct",
    "lag7_pct",
    "lag8_pct",
    "lag9_pct",
    "lag10_pct",
    "lag11_pct",
    "lag12_pct",
    "lag13_pct",
    "lag14_pct",
    "lag15_pct",
    "lag16_pct",
];

fn at(experts: &[&[u16]], lag: usize) -> Option<f64> {
    let pairs = experts.iter().zip(experts.get(lag..)?);
    let shares: Vec<f64> =
        pairs.map(|(before, now)| shared(now, before) as f64 / now.len() as f64).collect();
    mean(&shares)
}
