//! Routes token by token: what each token did in each layer.

use bmoe_trace::record::{Phase, Residency};
use serde::Serialize;

use super::RouteTrace;

/// Which part of a run is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phases {
    /// Generated tokens.
    #[default]
    Decode,
    /// The prompt.
    Prefill,
    /// Both.
    All,
}

impl Phases {
    /// Whether it has this phase.
    #[must_use]
    pub const fn has(self, phase: Phase) -> bool {
        match self {
            Self::Decode => matches!(phase, Phase::Decode),
            Self::Prefill => matches!(phase, Phase::Prefill),
            Self::All => true,
        }
    }

    /// As people write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Prefill => "prefill",
            Self::All => "all",
        }
    }
}

/// What one token did in one layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenRoute<'a> {
    /// Number of the token in the run, from 0; the same in all layers.
    pub step: usize,
    /// Prefill or decode.
    pub phase: Phase,
    /// Absolute position; it can come again in another turn of a session.
    pub position: u32,
    /// Experts in the router's order.
    pub experts: &'a [u16],
    /// The router's weights beside them; empty = not known.
    pub weights: &'a [f32],
    /// Where each was; empty = not known.
    pub residency: &'a [Residency],
    /// Bytes read because of each; empty = not known.
    pub read_bytes: &'a [u64],
    /// Experts with the best scores, best first; empty = not recorded.
    pub scored: &'a [u16],
    /// Their scores.
    pub scores: &'a [f32],
}

/// All tokens of a run, layer by layer.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenRoutes<'a> {
    /// Beside the trace's layers: the layer's tokens, in order.
    pub layers: Vec<Vec<TokenRoute<'a>>>,
    /// How many tokens there are.
    pub steps: usize,
}

impl<'a> TokenRoutes<'a> {
    /// Takes a trace apart. A token goes through the layers in ascending order: an event of a layer that is not
    /// above the last one's begins a new micro-batch. A layer may know fewer of a micro-batch's tokens than the
    /// first one: the last layer computes only those whose output is wanted.
    #[must_use]
    pub fn new(trace: &'a RouteTrace) -> Self {
        let mut layers = vec![Vec::new(); trace.layers.len()];
        let (mut steps, mut base, mut last) = (0, 0, None);
        let mut batch: Vec<u32> = Vec::new();
        for event in trace.events() {
            if last.is_none_or(|last| event.layer <= last) {
                base = steps;
                batch.clear();
            }
            last = Some(event.layer);
            let tokens = event.positions.len();
            for (i, position) in event.positions.iter().enumerate() {
                let known = match batch.get(i) {
                    Some(at) if at == position && batch.len() == tokens => Some(i),
                    _ => batch.iter().rposition(|at| at == position),
                };
                let place = known.unwrap_or_else(|| {
                    batch.push(*position);
                    batch.len() - 1
                });
                layers[event.layer].push(TokenRoute {
                    step: base + place,
                    phase: event.phase,
                    position: *position,
                    experts: part(event.experts, i, tokens),
                    weights: part(event.weights, i, tokens),
                    residency: part(event.residency, i, tokens),
                    read_bytes: part(event.read_bytes, i, tokens),
                    scored: part(event.scored, i, tokens),
                    scores: part(event.scores, i, tokens),
                });
            }
            steps = base + batch.len();
        }
        Self { layers, steps }
    }

    /// The tokens of a part of the run in one layer.
    pub fn of(
        &self,
        layer: usize,
        phases: Phases,
    ) -> impl DoubleEndedIterator<Item = &TokenRoute<'a>> + Clone {
        let all = self.layers.get(layer).map_or(&[][..], Vec::as_slice);
        all.iter().filter(move |token| phases.has(token.phase))
    }
}

/// The part of token `i` of `tokens` tokens that have equally much.
pub(super) fn part<T>(all: &[T], i: usize, tokens: usize) -> &[T] {
    let each = all.len() / tokens;
    &all[i * each..(i + 1) * each]
}

/// How many experts of `a` are in `b`.
#[must_use]
pub fn shared(a: &[u16], b: &[u16]) -> usize {
    a.iter().filter(|expert| b.contains(expert)).count()
}

/// Uses of every expert.
#[must_use]
pub fn uses<'a>(tokens: impl Iterator<Item = &'a TokenRoute<'a>>, n_expert: u32) -> Vec<u64> {
    let mut uses = vec![0; n_expert as usize];
    for expert in tokens.flat_map(|token| token.experts) {
        uses[usize::from(*expert)] += 1;
    }
    uses
}

/// The `n` experts with most uses, the smaller number first when equal; never one without a use.
#[must_use]
pub fn hottest(uses: &[u64], n: usize) -> Vec<u16> {
    let mut order: Vec<u16> =
        (0..uses.len() as u16).filter(|expert| uses[usize::from(*expert)] > 0).collect();
    order.sort_by_key(|expert| (std::cmp::Reverse(uses[usize::from(*expert)]), *expert));
    order.truncate(n);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::{RouteEvent, RouteLayer};

    #[test]
    fn tokens_have_the_same_number_in_all_layers() {
        let layers = [0, 1].map(|index| RouteLayer { index, expert_bytes: 1 });
        let mut trace = RouteTrace::new("t".into(), String::new(), layers.to_vec(), 9);
        let mut push = |phase, layer, positions: &[u32], experts: &[u16]| {
            let event = RouteEvent { phase, layer, positions, experts, ..RouteEvent::default() };
            trace.push(&event).unwrap();
        };
        push(Phase::Prefill, 0, &[0, 1, 2], &[1, 2, 3]);
        push(Phase::Prefill, 1, &[2], &[4]);
        push(Phase::Decode, 0, &[3], &[5]);
        push(Phase::Decode, 1, &[3], &[6]);
        let tokens = TokenRoutes::new(&trace);
        let steps =
            |layer: usize| tokens.of(layer, Phases::All).map(|t| t.step).collect::<Vec<_>>();
        assert_eq!((steps(0), steps(1), tokens.steps), (vec![0, 1, 2, 3], vec![2, 3], 4));
        let last = tokens.of(1, Phases::Decode).next().unwrap();
        assert_eq!((last.experts, last.position), ([6].as_slice(), 3));
        assert_eq!(hottest(&[0, 2, 3, 2], 9), [2, 1, 3]);
    }
}
