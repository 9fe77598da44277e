//! Routes in memory: what every offline analysis works on.
//!
//! A [`RouteTrace`] holds the routes of one run as **events**: all experts that one layer used for one
//! micro-batch. Prefill has one event per layer and micro-batch, decode one per layer and token. Events are in the
//! order in which the engine met them, so replaying them in order replays the run.

mod build;
mod load;
pub mod predict;
pub mod tokens;
pub mod views;
pub mod whatif;

use std::ops::Range;

use bmoe_trace::record::{Phase, Residency};

pub use build::LoadOptions;
pub(crate) use load::{from_imported, from_rows};
pub use load::{load, load_all};

/// The routes of one run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RouteTrace {
    /// What a person calls it: a cell's name, a file's name.
    pub name: String,
    /// The model's architecture; empty = not known.
    pub arch: String,
    /// The MoE layers, ascending.
    pub layers: Vec<RouteLayer>,
    /// Experts per layer.
    pub n_expert: u32,
    events: Vec<EventSpan>,
    /// Absolute position of each token, event after event.
    positions: Vec<u32>,
    /// Experts in the router's order, token-major, event after event.
    experts: Vec<u16>,
    /// Beside `experts`, or empty: the router's weights; NaN = not known.
    weights: Vec<f32>,
    /// Beside `experts`, or empty: where the engine had each expert when it was asked for.
    residency: Vec<Residency>,
    /// Beside `experts`, or empty: bytes read because of this row; 0 on rows that caused no read.
    read_bytes: Vec<u64>,
    scored: Vec<u16>,
    scores: Vec<f32>,
}

/// One MoE layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouteLayer {
    /// Its index in the model.
    pub index: u32,
    /// Bytes of one of its experts, all projections; 0 = not known.
    pub expert_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct EventSpan {
    phase: Phase,
    /// Index into `layers`.
    layer: u16,
    positions: Range<usize>,
    experts: Range<usize>,
    scored: Range<usize>,
}

/// All experts of one layer for one micro-batch. The default, with tokens and experts filled in, is an event of
/// which nothing else is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RouteEvent<'a> {
    /// Prefill or decode.
    pub phase: Phase,
    /// Index into [`RouteTrace::layers`].
    pub layer: usize,
    /// Absolute position of each token.
    pub positions: &'a [u32],
    /// Experts, token-major, in the router's order: `top_k` for each position.
    pub experts: &'a [u16],
    /// The router's weights beside `experts`; empty = not known.
    pub weights: &'a [f32],
    /// Residency beside `experts`; empty = not known.
    pub residency: &'a [Residency],
    /// Bytes read beside `experts`; empty = not known.
    pub read_bytes: &'a [u64],
    /// Experts with the highest router scores, token-major, best first; empty = not recorded.
    pub scored: &'a [u16],
    /// Their scores.
    pub scores: &'a [f32],
}

impl Default for RouteEvent<'_> {
    fn default() -> Self {
        Self {
            phase: Phase::Decode,
            layer: 0,
            positions: &[],
            experts: &[],
            weights: &[],
            residency: &[],
            read_bytes: &[],
            scored: &[],
            scores: &[],
        }
    }
}

impl RouteEvent<'_> {
    /// Experts per token.
    #[must_use]
    pub fn top_k(&self) -> usize {
        self.experts.len().checked_div(self.positions.len()).unwrap_or(0)
    }
}

/// An event that does not fit the trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// The experts are no multiple of the tokens.
    #[error("{experts} experts for {tokens} tokens; expected the same number for each")]
    Uneven {
        /// Experts.
        experts: usize,
        /// Tokens.
        tokens: usize,
    },
    /// A vector beside the experts has another length.
    #[error("{found} {what} beside {experts} experts")]
    Beside {
        /// What.
        what: &'static str,
        /// How many.
        found: usize,
        /// Experts.
        experts: usize,
    },
    /// A layer that the header does not have.
    #[error("layer number {layer} of {layers}")]
    Layer {
        /// Index into the layers.
        layer: usize,
        /// How many there are.
        layers: usize,
    },
    /// An expert that the header does not have.
    #[error("expert {expert} of {n_expert}")]
    Expert {
        /// The expert.
        expert: u16,
        /// How many there are.
        n_expert: u32,
    },
}

impl RouteTrace {
    /// A trace without events.
    #[must_use]
    pub fn new(name: String, arch: String, layers: Vec<RouteLayer>, n_expert: u32) -> Self {
        Self { name, arch, layers, n_expert, ..Self::default() }
    }

    /// Adds an event behind the others. What is known of one event (weights, residency, bytes) must be
    /// known of all.
    ///
    /// # Errors
    /// It does not fit the trace; the trace is as before.
    pub fn push(&mut self, event: &RouteEvent<'_>) -> Result<(), RouteError> {
        let (tokens, experts) = (event.positions.len(), event.experts.len());
        if event.layer >= self.layers.len() {
            return Err(RouteError::Layer { layer: event.layer, layers: self.layers.len() });
        }
        if tokens == 0 || experts == 0 || !experts.is_multiple_of(tokens) {
            return Err(RouteError::Uneven { experts, tokens });
        }
        if let Some(expert) = event.experts.iter().find(|e| u32::from(**e) >= self.n_expert) {
            return Err(RouteError::Expert { expert: *expert, n_expert: self.n_expert });
        }
        let beside = [
            ("weights", event.weights.len(), self.weights.len()),
            ("residencies", event.residency.len(), self.residency.len()),
            ("numbers of bytes", event.read_bytes.len(), self.read_bytes.len()),
        ];
        for (what, found, before) in beside {
            let known_before = before > 0 || self.events.is_empty();
            let fits = if found == 0 { before == 0 } else { found == experts && known_before };
            if !fits {
                return Err(RouteError::Beside { what, found, experts });
            }
        }
        if event.scored.len() != event.scores.len() || !event.scored.len().is_multiple_of(tokens) {
            let found = event.scores.len();
            return Err(RouteError::Beside { what: "scores", found, experts: event.scored.len() });
        }
        let behind = |before: usize, more: usize| before..before + more;
        self.events.push(EventSpan {
            phase: event.phase,
            layer: event.layer as u16,
            positions: behind(self.positions.len(), tokens),
            experts: behind(self.experts.len(), experts),
            scored: behind(self.scored.len(), event.scored.len()),
        });
        self.positions.extend_from_slice(event.positions);
        self.experts.extend_from_slice(event.experts);
        self.weights.extend_from_slice(event.weights);
        self.residency.extend_from_slice(event.residency);
        self.read_bytes.extend_from_slice(event.read_bytes);
        self.scored.extend_from_slice(event.scored);
        self.scores.extend_from_slice(event.scores);
        Ok(())
    }

    /// The events in their order.
    pub fn events(&self) -> impl ExactSizeIterator<Item = RouteEvent<'_>> {
        self.events_in(0..self.events.len())
    }

    /// Some of the events, by their place from 0; what lies beyond the last one is left out.
    pub fn events_in(&self, range: Range<usize>) -> impl ExactSizeIterator<Item = RouteEvent<'_>> {
        let end = range.end.min(self.events.len());
        self.events[range.start.min(end)..end].iter().map(|span| {
            fn part<'a, T>(all: &'a [T], range: &Range<usize>) -> &'a [T] {
                all.get(range.clone()).unwrap_or(&[])
            }
            RouteEvent {
                phase: span.phase,
                layer: usize::from(span.layer),
                positions: part(&self.positions, &span.positions),
                experts: part(&self.experts, &span.experts),
                weights: part(&self.weights, &span.experts),
                residency: part(&self.residency, &span.experts),
                read_bytes: part(&self.read_bytes, &span.experts),
                scored: part(&self.scored, &span.scored),
                scores: part(&self.scores, &span.scored),
            }
        })
    }

    /// Rows: (token, slot) pairs of all events.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.experts.len()
    }

    /// Whether every layer's expert size is known, as byte budgets need.
    #[must_use]
    pub fn has_sizes(&self) -> bool {
        !self.layers.is_empty() && self.layers.iter().all(|l| l.expert_bytes > 0)
    }

    /// The same with one size for all experts.
    #[must_use]
    pub fn with_expert_bytes(mut self, expert_bytes: u64) -> Self {
        for layer in &mut self.layers {
            layer.expert_bytes = expert_bytes;
        }
        self
    }

    /// Bytes of all experts of all layers.
    #[must_use]
    pub fn bank_bytes(&self) -> u64 {
        self.layers.iter().map(|l| l.expert_bytes * u64::from(self.n_expert)).sum()
    }

    /// Decode tokens: events of the layer that has most of them.
    #[must_use]
    pub fn decode_tokens(&self) -> usize {
        let mut of_layer = vec![0; self.layers.len()];
        for event in self.events().filter(|e| e.phase == Phase::Decode) {
            of_layer[event.layer] += event.positions.len();
        }
        of_layer.into_iter().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event<'a>(layer: usize, positions: &'a [u32], experts: &'a [u16]) -> RouteEvent<'a> {
        RouteEvent { layer, positions, experts, ..RouteEvent::default() }
    }

    #[test]
    fn events_come_back_as_they_went_in_and_bad_ones_are_refused() {
        let layers = [1, 2].map(|index| RouteLayer { index, expert_bytes: 10 });
        let mut trace = RouteTrace::new("t".into(), String::new(), layers.to_vec(), 4);
        trace.push(&event(0, &[7], &[3, 1])).unwrap();
        trace
            .push(&RouteEvent { phase: Phase::Prefill, ..event(1, &[7, 8], &[0, 1, 2, 3]) })
            .unwrap();
        let back: Vec<_> = trace.events().collect();
        assert_eq!(back[0], event(0, &[7], &[3, 1]));
        assert_eq!((back[1].top_k(), back[1].positions), (2, [7, 8].as_slice()));
        assert_eq!((trace.rows(), trace.decode_tokens(), trace.bank_bytes()), (6, 1, 80));
        let whole = trace.clone();
        let weights = [0.5, 0.5];
        for bad in [
            event(2, &[1], &[1, 2]),
            event(0, &[1, 2], &[1, 2, 3]),
            event(0, &[1], &[4, 1]),
            RouteEvent { weights: &weights, ..event(0, &[1], &[2, 1]) },
        ] {
            trace.push(&bad).unwrap_err();
        }
        assert_eq!(trace, whole);
    }
}
