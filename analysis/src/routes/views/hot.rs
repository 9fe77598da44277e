//! How few experts do most of the work.

use serde::Serialize;

use super::{Asked, Selection, ViewError, tokens_word};
use crate::routes::RouteTrace;
use crate::routes::tokens::{Phases, TokenRoutes, hottest, uses};
use crate::stats::mean;
use crate::tabular::{Column, Table, Value};

/// Concentration of the routes, layer by layer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hot {
    /// The part of the run.
    pub phases: Phases,
    /// Experts per layer.
    pub n_expert: u32,
    /// Experts per token.
    pub top_k: usize,
    /// Tokens of the layer that has most.
    pub tokens: usize,
    /// The layers.
    pub layers: Vec<HotLayer>,
}

/// One layer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HotLayer {
    /// The model's number of it.
    pub layer: u32,
    /// Its tokens.
    pub tokens: usize,
    /// Tokens that used each expert, by expert.
    pub uses: Vec<u64>,
    /// Experts used at all.
    pub touched: usize,
    /// Share of the uses that fall to the hottest tenth of all experts (rounded up), 0 to 1.
    pub hottest_tenth_share: Option<f64>,
    /// Gini coefficient of the uses over all experts: 0 = even, near 1 = one expert does everything.
    pub gini: Option<f64>,
    /// Inverse Simpson index, 1 / sum of squared shares of the uses: as many experts, evenly used, would be as
    /// concentrated.
    pub effective_experts: Option<f64>,
}

impl HotLayer {
    fn new(layer: u32, tokens: usize, uses: Vec<u64>) -> Self {
        let total: u64 = uses.iter().sum();
        let touched = uses.iter().filter(|n| **n > 0).count();
        let known = total > 0;
        let tenth = hottest(&uses, uses.len().div_ceil(10));
        let of_tenth: u64 = tenth.iter().map(|e| uses[usize::from(*e)]).sum();
        let squares: f64 = uses.iter().map(|n| (*n as f64 / total as f64).powi(2)).sum();
        Self {
            layer,
            tokens,
            touched,
            hottest_tenth_share: known.then(|| of_tenth as f64 / total as f64),
            gini: known.then(|| gini(&uses)),
            effective_experts: known.then(|| 1.0 / squares),
            uses,
        }
    }

    /// A number of uses as a share of the layer's tokens.
    #[must_use]
    pub fn share(&self, uses: u64) -> f64 {
        if self.tokens == 0 { 0.0 } else { uses as f64 / self.tokens as f64 }
    }
}

/// Mean absolute difference of two shares over twice the mean share.
fn gini(uses: &[u64]) -> f64 {
    let mut sorted = uses.to_vec();
    sorted.sort_unstable();
    let (n, total) = (sorted.len() as f64, sorted.iter().sum::<u64>() as f64);
    let ranked: f64 = sorted.iter().enumerate().map(|(i, u)| (i + 1) as f64 * *u as f64).sum();
    2.0 * ranked / (n * total) - (n + 1.0) / n
}

impl Hot {
    /// Asks a trace.
    ///
    /// # Errors
    /// It has no such layer, or no tokens of that part.
    pub fn new(trace: &RouteTrace, selection: &Selection) -> Result<Self, ViewError> {
        Ok(Self::of(&Asked::new(trace, selection)?))
    }

    pub(super) fn of(asked: &Asked<'_>) -> Self {
        let tokens = TokenRoutes::new(asked.trace);
        let n_expert = asked.trace.n_expert;
        let layers: Vec<_> = asked
            .layers
            .iter()
            .map(|layer| {
                let of = || tokens.of(*layer, asked.phases);
                HotLayer::new(asked.index(*layer), of().count(), uses(of(), n_expert))
            })
            .collect();
        let routed = asked.layers.iter().flat_map(|layer| tokens.of(*layer, asked.phases));
        Self {
            phases: asked.phases,
            n_expert,
            top_k: routed.map(|token| token.experts.len()).max().unwrap_or(0),
            tokens: layers.iter().map(|l| l.tokens).max().unwrap_or(0),
            layers,
        }
    }

    /// Highest share of a layer's tokens that one expert has, 0 to 1.
    #[must_use]
    pub fn highest_share(&self) -> f64 {
        let highest = |l: &HotLayer| l.share(l.uses.iter().copied().max().unwrap_or(0));
        self.layers.iter().map(highest).fold(0.0, f64::max)
    }

    pub(super) fn table(&self) -> Table {
        let rows = self.layers.iter().map(|layer| {
            let first = hottest(&layer.uses, 5);
            let named = first.iter().map(|expert| {
                let share = layer.share(layer.uses[usize::from(*expert)]);
                format!("{expert} ({:.0} %)", share * 100.0)
            });
            vec![
                layer.layer.into(),
                layer.tokens.into(),
                layer.touched.into(),
                Value::percent(layer.hottest_tenth_share),
                Value::maybe(layer.gini, 3),
                Value::maybe(layer.effective_experts, 1),
                named.collect::<Vec<_>>().join(" ").into(),
            ]
        });
        let rows: Vec<_> = rows.collect();
        let average = |of: &dyn Fn(&HotLayer) -> Option<f64>| {
            mean(&self.layers.iter().filter_map(of).collect::<Vec<_>>()).unwrap_or(f64::NAN)
        };
        let touched = |l: &HotLayer| l.touched;
        let note = format!(
            "mean of the layers: {:.1} of {} experts used ({} to {}), {:.1} % of the uses on the hottest \
             tenth, Gini {:.3}, effective experts {:.1}",
            average(&|l| Some(l.touched as f64)),
            self.n_expert,
            self.layers.iter().map(touched).min().unwrap_or(0),
            self.layers.iter().map(touched).max().unwrap_or(0),
            average(&|l| l.hottest_tenth_share.map(|s| s * 100.0)),
            average(&|l| l.gini),
            average(&|l| l.effective_experts),
        );
        Table {
            title: format!(
                "hot: concentration of {} {} over {} experts, top-{}",
                self.tokens,
                tokens_word(self.phases),
                self.n_expert,
                self.top_k
            ),
            columns: vec![
                Column::number("layer", "layer"),
                Column::number("tokens", "tokens"),
                Column::number("touched_experts", "touched"),
                Column::number("hottest_tenth_pct", "hottest 10 %, %"),
                Column::number("gini", "Gini"),
                Column::number("effective_experts", "effective"),
                Column::text("hottest_experts", "hottest (share of tokens)"),
            ],
            rows,
            notes: vec![note],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concentration_of_extremes() {
        let even = HotLayer::new(0, 10, vec![5; 10]);
        assert_eq!((even.gini, even.hottest_tenth_share), (Some(0.0), Some(0.1)));
        assert!((even.effective_experts.unwrap() - 10.0).abs() < 1e-9);
        let mut uses = vec![0; 10];
        uses[3] = 7;
        let one = HotLayer::new(0, 7, uses);
        assert!((one.gini.unwrap() - 0.9).abs() < 1e-12);
        assert_eq!((one.effective_experts, one.touched), (Some(1.0), 1));
        assert_eq!(HotLayer::new(0, 0, vec![0; 4]).gini, None);
    }
}
