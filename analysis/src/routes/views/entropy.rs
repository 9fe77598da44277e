//! How evenly a layer routes.

use serde::Serialize;

use super::{Asked, tokens_word};
use crate::routes::tokens::{Phases, TokenRoutes, uses};
use crate::stats::mean;
use crate::tabular::{Column, Table, Value};

/// Entropy of the routes and of the router's weights.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entropy {
    /// The part of the run.
    pub phases: Phases,
    /// Experts per layer.
    pub n_expert: u32,
    /// The layers.
    pub layers: Vec<LayerEntropy>,
}

/// One layer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerEntropy {
    /// The model's number of it.
    pub layer: u32,
    /// Its uses: tokens times top-k.
    pub uses: u64,
    /// Shannon entropy of the experts' shares of the uses, bits.
    pub routing_bits: Option<f64>,
    /// That entropy as a number of experts, 2 to its power.
    pub effective_experts: Option<f64>,
    /// That entropy over its greatest value, the logarithm of the number of experts, 0 to 1.
    pub evenness: Option<f64>,
    /// Mean over the tokens of the entropy of the chosen experts' weights, scaled to sum 1, bits; `None` = weights
    /// are not known.
    pub weight_bits: Option<f64>,
    /// That entropy, token by token as a number of experts, mean.
    pub effective_weighted: Option<f64>,
    /// Mean share of the heaviest expert in a token's weights, 0 to 1.
    pub heaviest_share: Option<f64>,
}

/// Shannon entropy of weights that need not sum to 1, bits; `None` when they don't sum to a positive number.
pub(super) fn bits(weights: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let sum: f64 = weights.clone().sum();
    let term = |w: f64| if w > 0.0 { -(w / sum) * (w / sum).log2() } else { 0.0 };
    (sum > 0.0 && sum.is_finite()).then(|| weights.map(term).sum())
}

impl Entropy {
    pub(super) fn of(asked: &Asked<'_>) -> Self {
        let tokens = TokenRoutes::new(asked.trace);
        let n_expert = asked.trace.n_expert;
        let layer = |layer: &usize| {
            let of = || tokens.of(*layer, asked.phases);
            let uses = uses(of(), n_expert);
            let routing = bits(uses.iter().map(|n| *n as f64));
            let weights = of().map(|token| token.weights).filter(|w| !w.is_empty());
            let each: Vec<(f64, f64)> = weights
                .filter_map(|w| {
                    let w = w.iter().map(|w| f64::from(*w));
                    let heaviest = w.clone().fold(0.0, f64::max) / w.clone().sum::<f64>();
                    Some((bits(w)?, heaviest))
                })
                .collect();
            let over = |of: fn(&(f64, f64)) -> f64| mean(&each.iter().map(of).collect::<Vec<_>>());
            LayerEntropy {
                layer: asked.index(*layer),
                uses: uses.iter().sum(),
                routing_bits: routing,
                effective_experts: routing.map(f64::exp2),
                evenness: routing.filter(|_| n_expert > 1).map(|b| b / f64::from(n_expert).log2()),
                weight_bits: over(|(bits, _)| *bits),
                effective_weighted: over(|(bits, _)| bits.exp2()),
                heaviest_share: over(|(_, heaviest)| *heaviest),
            }
        };
        Self { phases: asked.phases, n_expert, layers: asked.layers.iter().map(layer).collect() }
    }

    pub(super) fn table(&self) -> Table {
        let row = |l: &LayerEntropy| {
            vec![
                l.layer.into(),
                l.uses.into(),
                Value::maybe(l.routing_bits, 2),
                Value::maybe(l.effective_experts, 1),
                Value::percent(l.evenness),
                Value::maybe(l.weight_bits, 2),
                Value::maybe(l.effective_weighted, 1),
                Value::percent(l.heaviest_share),
            ]
        };
        let mut notes = vec![format!(
            "greatest entropy: log2 {} = {:.2} bits; few uses per expert make it come out too low",
            self.n_expert,
            f64::from(self.n_expert.max(1)).log2()
        )];
        if self.layers.iter().all(|l| l.weight_bits.is_none()) {
            notes.push("the router's weights are not in this trace".to_owned());
        }
        Table {
            title: format!("entropy of {}", tokens_word(self.phases)),
            columns: vec![
                Column::number("layer", "layer"),
                Column::number("uses", "uses"),
                Column::number("routing_bits", "routing bits"),
                Column::number("effective_experts", "effective experts"),
                Column::number("evenness_pct", "of the greatest, %"),
                Column::number("weight_bits", "weight bits"),
                Column::number("effective_weighted_experts", "effective by weight"),
                Column::number("heaviest_pct", "heaviest, %"),
            ],
            rows: self.layers.iter().map(row).collect(),
            notes,
        }
    }
}
