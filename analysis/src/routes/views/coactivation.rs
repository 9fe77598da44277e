//! Which experts come together.

use serde::Serialize;

use super::{Asked, tokens_word};
use crate::routes::tokens::{Phases, TokenRoute, TokenRoutes, hottest, uses};
use crate::tabular::{Column, Table, Value};

/// Pairs kept of each layer and each step to the next layer.
const KEPT: usize = 10;
/// Pairs that came together less often say nothing.
const LEAST_TOGETHER: u32 = 3;
/// Experts of a layer that a picture has room for.
const FOCUS: usize = 48;

/// Experts that come together more often than their own frequencies make likely.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Coactivation {
    /// The part of the run.
    pub phases: Phases,
    /// The strongest pairs, by the log-likelihood ratio.
    pub pairs: Vec<Pair>,
    /// One layer's hottest experts, each with each: of the layer asked for, or of the strongest pair.
    pub focus: Option<Focus>,
}

/// Where a pair is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// Both in one layer.
    Within,
    /// One in a layer, the other in the next MoE layer.
    Next,
}

/// Two experts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pair {
    /// Where they are.
    pub link: Link,
    /// The model's number of the first one's layer.
    pub layer: u32,
    /// The first one.
    pub a: u16,
    /// The model's number of the other one's layer.
    pub layer_b: u32,
    /// The other one.
    pub b: u16,
    /// Tokens that both layers know.
    pub tokens: u32,
    /// Tokens that used the first one.
    pub uses_a: u32,
    /// Tokens that used the other one.
    pub uses_b: u32,
    /// Tokens that used both.
    pub together: u32,
    /// `together * tokens / (uses_a * uses_b)`: 1 = as often as chance has it.
    pub lift: f64,
    /// Log-likelihood ratio of dependence against independence (Dunning 1993), natural logarithm, doubled: it
    /// weighs lift by how many tokens it is from; above 10.8 chance is below one in a thousand, for one pair.
    pub g2: f64,
}

/// A layer's hottest experts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Focus {
    /// The model's number of it.
    pub layer: u32,
    /// The experts, the hottest first.
    pub experts: Vec<u16>,
    /// Row by row: tokens that used both; on the diagonal, the uses.
    pub together: Vec<Vec<u32>>,
    /// Tokens.
    pub tokens: u32,
}

impl Focus {
    /// Lift of two of its experts by their places; `None` for one with itself.
    #[must_use]
    pub fn lift(&self, a: usize, b: usize) -> Option<f64> {
        let (of_a, of_b) = (self.together[a][a], self.together[b][b]);
        let expected = f64::from(of_a) * f64::from(of_b) / f64::from(self.tokens);
        (a != b).then(|| f64::from(self.together[a][b]) / expected)
    }
}

/// Counts of the pairs of two layers (or of one with itself).
struct Together {
    n_expert: usize,
    tokens: u32,
    a: Vec<u32>,
    b: Vec<u32>,
    both: Vec<u32>,
}

impl Together {
    /// Of tokens that both know. Both lists are in the order of steps.
    fn count(here: &[&TokenRoute<'_>], there: &[&TokenRoute<'_>], n_expert: usize) -> Self {
        let none = || vec![0; n_expert];
        let mut counts =
            Self { n_expert, tokens: 0, a: none(), b: none(), both: vec![0; n_expert * n_expert] };
        let mut there = there.iter().peekable();
        for token in here {
            while there.next_if(|other| other.step < token.step).is_some() {}
            let Some(other) = there.next_if(|other| other.step == token.step) else { continue };
            counts.tokens += 1;
            other.experts.iter().for_each(|b| counts.b[usize::from(*b)] += 1);
            for a in token.experts {
                counts.a[usize::from(*a)] += 1;
                let row = usize::from(*a) * n_expert;
                other.experts.iter().for_each(|b| counts.both[row + usize::from(*b)] += 1);
            }
        }
        counts
    }

    /// The strongest ones.
    fn pairs(&self, link: Link, layer: u32, layer_b: u32) -> Vec<Pair> {
        let n = self.n_expert;
        let mut pairs = Vec::new();
        for a in 0..n {
            let first = if link == Link::Within { a + 1 } else { 0 };
            for b in first..n {
                let together = self.both[a * n + b];
                let (uses_a, uses_b) = (self.a[a], self.b[b]);
                let expected = f64::from(uses_a) * f64::from(uses_b) / f64::from(self.tokens);
                if together < LEAST_TOGETHER || f64::from(together) <= expected {
                    continue;
                }
                pairs.push(Pair {
                    link,
                    layer,
                    a: a as u16,
                    layer_b,
                    b: b as u16,
                    tokens: self.tokens,
                    uses_a,
                    uses_b,
                    together,
                    lift: f64::from(together) / expected,
                    g2: g2(together, uses_a, uses_b, self.tokens),
                });
            }
        }
        sort(&mut pairs);
        pairs.truncate(KEPT);
        pairs
    }
}

fn sort(pairs: &mut [Pair]) {
    pairs.sort_by(|x, y| y.g2.total_cmp(&x.g2).then((x.layer, x.a, x.b).cmp(&(y.layer, y.a, y.b))));
}

/// Of the table: both, a alone, b alone, neither.
fn g2(both: u32, a: u32, b: u32, tokens: u32) -> f64 {
    let n = f64::from(tokens);
    let (a, b, both) = (f64::from(a), f64::from(b), f64::from(both));
    let term = |seen: f64, rows: f64, columns: f64| {
        if seen > 0.0 { seen * (seen * n / (rows * columns)).ln() } else { 0.0 }
    };
    2.0 * (term(both, a, b)
        + term(a - both, a, n - b)
        + term(b - both, n - a, b)
        + term(n - a - b + both, n - a, n - b))
}

impl Coactivation {
    pub(super) fn of(asked: &Asked<'_>) -> Self {
        let tokens = TokenRoutes::new(asked.trace);
        let n_expert = asked.trace.n_expert as usize;
        let of = |layer: usize| tokens.of(layer, asked.phases).collect::<Vec<_>>();
        let mut pairs = Vec::new();
        for layer in &asked.layers {
            let here = of(*layer);
            let index = asked.index(*layer);
            let within = Together::count(&here, &here, n_expert);
            pairs.extend(within.pairs(Link::Within, index, index));
            if layer + 1 < asked.trace.layers.len() {
                let next = Together::count(&here, &of(layer + 1), n_expert);
                pairs.extend(next.pairs(Link::Next, index, asked.index(layer + 1)));
            }
        }
        sort(&mut pairs);
        let strongest = || pairs.iter().find(|p| p.link == Link::Within).map(|p| p.layer);
        let chosen = asked.selection.layer.or_else(strongest);
        let place = chosen.and_then(|n| asked.trace.layers.iter().position(|l| l.index == n));
        let focus = place.map(|layer| {
            let here = of(layer);
            let uses = uses(here.iter().copied(), asked.trace.n_expert);
            let counts = Together::count(&here, &here, n_expert);
            let experts = hottest(&uses, FOCUS);
            let row = |a: &u16| {
                let at = |b: &u16| counts.both[usize::from(*a) * n_expert + usize::from(*b)];
                experts.iter().map(at).collect()
            };
            let together = experts.iter().map(row).collect();
            Focus { layer: asked.index(layer), together, tokens: counts.tokens, experts }
        });
        Self { phases: asked.phases, pairs, focus }
    }

    pub(super) fn table(&self) -> Table {
        let row = |p: &Pair| {
            vec![
                match p.link {
                    Link::Within => "within".into(),
                    Link::Next => "next".into(),
                },
                p.layer.into(),
                Value::Count(u64::from(p.a)),
                p.layer_b.into(),
                Value::Count(u64::from(p.b)),
                p.together.into(),
                p.uses_a.into(),
                p.uses_b.into(),
                p.tokens.into(),
                Value::Number(p.lift, 2),
                Value::Number(p.g2, 1),
            ]
        };
        Table {
            title: format!(
                "coactivation: experts that come together, in a layer and to the next one, {}",
                tokens_word(self.phases)
            ),
            columns: vec![
                Column::text("link", "link"),
                Column::number("layer_a", "layer"),
                Column::number("expert_a", "expert"),
                Column::number("layer_b", "layer"),
                Column::number("expert_b", "expert"),
                Column::number("together_tokens", "together"),
                Column::number("a_tokens", "first"),
                Column::number("b_tokens", "second"),
                Column::number("tokens", "of tokens"),
                Column::number("lift", "lift"),
                Column::number("g2", "G²"),
            ],
            rows: self.pairs.iter().map(row).collect(),
            notes: vec![format!(
                "the {KEPT} strongest pairs of each layer and link, at least {LEAST_TOGETHER} tokens together; lift 1 \
                 = by chance; of many pairs some are strong by chance"
            )],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::g2;

    #[test]
    fn independence_has_no_evidence_and_dependence_much() {
        assert!(g2(25, 50, 50, 100).abs() < 1e-9);
        // Always together in half of 100 tokens: 2 * 100 * ln 2.
        assert!((g2(50, 50, 50, 100) - 200.0 * 2.0_f64.ln()).abs() < 1e-9);
    }
}
