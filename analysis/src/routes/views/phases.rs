//! Prompt against generated text, and drift over the text.

use serde::Serialize;

use super::Asked;
use crate::routes::tokens::{Phases, TokenRoute, TokenRoutes, uses};
use crate::stats::mean;
use crate::tabular::{Column, Table, Value};

/// How the routes of the parts of a run differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Drift {
    /// The layers.
    pub layers: Vec<LayerPhases>,
}

/// One layer. Divergences are Jensen-Shannon's, of the experts' shares of the uses, in bits: 0 = alike, 1 = no
/// expert in common.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct LayerPhases {
    /// The model's number of it; `None` = mean of the layers.
    pub layer: Option<u32>,
    /// Prompt against generated tokens.
    pub prompt_decode_bits: Option<f64>,
    /// Share of the generated tokens' uses that go to experts which the prompt used.
    pub known_from_prompt: Option<f64>,
    /// Neighbouring quarters of the generated tokens.
    pub quarters_bits: [Option<f64>; 3],
    /// The first quarter against the last one.
    pub first_last_bits: Option<f64>,
    /// The mean of the quarters with every fourth token each, which differ by chance and not by drift: what samples
    /// of this size make of no difference.
    pub chance_bits: Option<f64>,
}

/// Jensen-Shannon divergence of two counts, bits; `None` when one is empty.
fn divergence(a: &[u64], b: &[u64]) -> Option<f64> {
    let sum = |counts: &[u64]| counts.iter().sum::<u64>() as f64;
    let (of_a, of_b) = (sum(a), sum(b));
    let half = |p: f64, m: f64| if p > 0.0 { 0.5 * p * (p / m).log2() } else { 0.0 };
    let term = |(a, b): (&u64, &u64)| {
        let (p, q) = (*a as f64 / of_a, *b as f64 / of_b);
        let m = f64::midpoint(p, q);
        half(p, m) + half(q, m)
    };
    (of_a > 0.0 && of_b > 0.0).then(|| a.iter().zip(b).map(term).sum::<f64>().clamp(0.0, 1.0))
}

impl Drift {
    pub(super) fn of(asked: &Asked<'_>) -> Self {
        let tokens = TokenRoutes::new(asked.trace);
        let n_expert = asked.trace.n_expert;
        let layer = |layer: &usize| {
            let decode: Vec<_> = tokens.of(*layer, Phases::Decode).copied().collect();
            let prompt = uses(tokens.of(*layer, Phases::Prefill), n_expert);
            let whole = uses(decode.iter(), n_expert);
            let known: u64 =
                whole.iter().zip(&prompt).filter(|(_, p)| **p > 0).map(|(uses, _)| uses).sum();
            let all: u64 = whole.iter().sum();
            let has_prompt = prompt.iter().any(|n| *n > 0);
            let count = |part: &[TokenRoute<'_>]| uses(part.iter(), n_expert);
            let quarters = quarters(&decode).map(count);
            let mut interleaved: [Vec<TokenRoute<'_>>; 4] = Default::default();
            for (i, token) in decode.iter().enumerate() {
                interleaved[i % 4].push(*token);
            }
            let interleaved = interleaved.map(|part| count(&part));
            let chance: Vec<f64> =
                interleaved.windows(2).filter_map(|w| divergence(&w[0], &w[1])).collect();
            LayerPhases {
                layer: Some(asked.index(*layer)),
                prompt_decode_bits: divergence(&prompt, &whole),
                known_from_prompt: (has_prompt && all > 0).then(|| known as f64 / all as f64),
                quarters_bits: [0, 1, 2].map(|i| divergence(&quarters[i], &quarters[i + 1])),
                first_last_bits: divergence(&quarters[0], &quarters[3]),
                chance_bits: mean(&chance),
            }
        };
        let mut layers: Vec<_> = asked.layers.iter().map(layer).collect();
        if layers.len() > 1 {
            let over = |of: &dyn Fn(&LayerPhases) -> Option<f64>| {
                mean(&layers.iter().filter_map(of).collect::<Vec<_>>())
            };
            let average = LayerPhases {
                layer: None,
                prompt_decode_bits: over(&|l| l.prompt_decode_bits),
                known_from_prompt: over(&|l| l.known_from_prompt),
                quarters_bits: [0, 1, 2].map(|i| over(&|l| l.quarters_bits[i])),
                first_last_bits: over(&|l| l.first_last_bits),
                chance_bits: over(&|l| l.chance_bits),
            };
            layers.insert(0, average);
        }
        Self { layers }
    }

    pub(super) fn table(&self) -> Table {
        let row = |l: &LayerPhases| {
            let bits = |b: Option<f64>| Value::maybe(b, 3);
            vec![
                l.layer.map_or_else(|| "mean".into(), Value::from),
                bits(l.prompt_decode_bits),
                Value::percent(l.known_from_prompt),
                bits(l.quarters_bits[0]),
                bits(l.quarters_bits[1]),
                bits(l.quarters_bits[2]),
                bits(l.first_last_bits),
                bits(l.chance_bits),
            ]
        };
        Table {
            title: "phases: Jensen-Shannon divergence of the experts' uses, bits (0 = alike, 1 = disjoint)"
                .to_owned(),
            columns: vec![
                Column::number("layer", "layer"),
                Column::number("prompt_decode_bits", "prompt/decode"),
                Column::number("known_from_prompt_pct", "known from prompt, %"),
                Column::number("quarter1_quarter2_bits", "1st/2nd quarter"),
                Column::number("quarter2_quarter3_bits", "2nd/3rd"),
                Column::number("quarter3_quarter4_bits", "3rd/4th"),
                Column::number("quarter1_quarter4_bits", "1st/4th"),
                Column::number("chance_bits", "by chance"),
            ],
            rows: self.layers.iter().map(row).collect(),
            notes: vec![
                "quarters of the generated tokens; \"by chance\" is what four samples of that size differ by \
                 that take every fourth token, without drift: the mean of the three neighbouring pairs"
                    .to_owned(),
            ],
        }
    }
}

fn quarters<'a, 'b>(decode: &'b [TokenRoute<'a>]) -> [&'b [TokenRoute<'a>]; 4] {
    let cut = |i: usize| decode.len() * i / 4;
    [0, 1, 2, 3].map(|i| &decode[cut(i)..cut(i + 1)])
}

#[cfg(test)]
mod tests {
    use super::divergence;

    #[test]
    fn divergence_is_nought_for_alike_and_one_for_disjoint() {
        assert_eq!(divergence(&[2, 4, 0], &[1, 2, 0]), Some(0.0));
        assert_eq!(divergence(&[2, 0], &[0, 9]), Some(1.0));
        // p = (1, 0), q = (1/2, 1/2): half of log2(4/3), and half of 1/2 log2(2/3) + 1/2 log2 2.
        let want = 0.5 * (4.0_f64 / 3.0).log2() + 0.25 * (2.0_f64 / 3.0).log2() + 0.25;
        assert!((divergence(&[5, 0], &[1, 1]).unwrap() - want).abs() < 1e-12);
        assert_eq!(divergence(&[0, 0], &[1, 1]), None);
    }
}
