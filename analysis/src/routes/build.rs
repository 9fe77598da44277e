//! From rows in file order to a [`RouteTrace`].

use bmoe_trace::import::{RouteChunk, ScoreChunk};
use bmoe_trace::record::Residency;

use super::{EventSpan, RouteLayer, RouteTrace};

/// What of a trace is wanted besides its experts; all of it takes 15 bytes a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadOptions {
    /// The router's weights (4 bytes a row).
    pub weights: bool,
    /// Residency and bytes read (9 bytes a row).
    pub residency: bool,
    /// The router's best experts with their scores.
    pub scores: bool,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { weights: true, residency: true, scores: true }
    }
}

/// Takes rows chunk by chunk and makes the trace at the end, when all layers are known.
#[derive(Debug, Default)]
pub(super) struct Builder {
    options: Option<LoadOptions>,
    trace: RouteTrace,
    /// The event that the last row belongs to.
    last_event: Option<u32>,
    last_token: Option<u32>,
    /// An event has its layer's place here for the time being.
    layers: Layers,
    weights_known: bool,
    residency_unknown: bool,
    /// Rows of scores by event: filled in at the end.
    scores: Vec<(u32, u16, f32)>,
}

impl Builder {
    pub(super) fn new(options: LoadOptions) -> Self {
        Self { options: Some(options), ..Self::default() }
    }

    /// Adds rows behind the others; the columns have been checked by the reader. The error says what does not fit.
    pub(super) fn push(&mut self, chunk: &RouteChunk) -> Result<(), String> {
        let options = self.options.unwrap_or_default();
        self.scores(&chunk.scores);
        let trace = &mut self.trace;
        trace.experts.reserve(chunk.len());
        for row in 0..chunk.len() {
            let event = chunk.event[row];
            if self.last_event != Some(event) {
                let layer = self.layers.place_of(chunk.layer[row])?;
                let (positions, experts) = (trace.positions.len(), trace.experts.len());
                trace.events.push(EventSpan {
                    phase: chunk.phase[row],
                    layer,
                    positions: positions..positions,
                    experts: experts..experts,
                    scored: 0..0,
                });
                self.last_event = Some(event);
                self.last_token = None;
            }
            let Some(span) = trace.events.last_mut() else { continue };
            let position = chunk.position[row];
            if self.last_token != Some(position) {
                trace.positions.push(position);
                span.positions.end += 1;
                self.last_token = Some(position);
            }
            let expert = chunk.expert[row];
            trace.experts.push(
                u16::try_from(expert).map_err(|_| format!("expert {expert} is beyond 65535"))?,
            );
            span.experts.end += 1;
        }
        if options.weights {
            self.weights_known |= chunk.weight.iter().any(|w| !w.is_nan());
            trace.weights.extend_from_slice(&chunk.weight);
        }
        if options.residency && !self.residency_unknown {
            self.residency_unknown = chunk.residency.iter().any(Option::is_none);
            let known = chunk.residency.iter().map(|r| r.unwrap_or(Residency::Miss));
            trace.residency.extend(known);
            trace.read_bytes.extend_from_slice(&chunk.read_bytes);
        }
        Ok(())
    }

    /// Adds scores; those of one event stand together, in the order of the events.
    pub(super) fn scores(&mut self, chunk: &ScoreChunk) {
        if self.options.is_some_and(|o| o.scores) {
            let rows = chunk.event.iter().zip(&chunk.expert).zip(&chunk.score);
            let row = |((event, expert), score): ((&u32, &u32), &f32)| {
                (*event, u16::try_from(*expert).unwrap_or(u16::MAX), *score)
            };
            self.scores.extend(rows.map(row));
        }
    }

    /// The trace. `layers` are those of the header, ascending; one that has none takes those that occurred.
    pub(super) fn finish(
        self,
        name: String,
        arch: String,
        mut layers: Vec<RouteLayer>,
        n_expert: u32,
    ) -> Result<RouteTrace, String> {
        if layers.is_empty() {
            layers = self
                .layers
                .numbers
                .iter()
                .map(|index| RouteLayer { index: *index, expert_bytes: 0 })
                .collect();
            layers.sort_by_key(|l| l.index);
        }
        let places = self
            .layers
            .numbers
            .iter()
            .map(|index| {
                let place = layers.binary_search_by_key(index, |l| l.index).ok();
                let place = place.ok_or_else(|| format!("layer {index} is not in the header"))?;
                u16::try_from(place).map_err(|_| format!("{} layers are too many", layers.len()))
            })
            .collect::<Result<Vec<u16>, String>>()?;
        let mut trace = self.trace;
        let mut scores = self.scores.into_iter().peekable();
        for (event, span) in (0_u32..).zip(&mut trace.events) {
            span.layer = places[usize::from(span.layer)];
            let (experts, tokens) = (span.experts.len(), span.positions.len());
            if !experts.is_multiple_of(tokens) {
                return Err(format!("event {event} has {experts} experts for {tokens} tokens"));
            }
            let from = trace.scored.len();
            while let Some((_, expert, score)) = scores.next_if(|(of, ..)| *of == event) {
                trace.scored.push(expert);
                trace.scores.push(score);
            }
            span.scored = from..trace.scored.len();
        }
        if let Some(expert) = trace.experts.iter().find(|e| u32::from(**e) >= n_expert) {
            return Err(format!("expert {expert} of {n_expert}"));
        }
        if !self.weights_known {
            trace.weights = Vec::new();
        }
        if self.residency_unknown {
            (trace.residency, trace.read_bytes) = (Vec::new(), Vec::new());
        }
        (trace.name, trace.arch, trace.layers, trace.n_expert) = (name, arch, layers, n_expert);
        Ok(trace)
    }
}

/// The layers that came so far.
#[derive(Debug, Default)]
struct Layers {
    /// Their numbers, in the order in which they came.
    numbers: Vec<u32>,
    /// Places in `numbers`, by number.
    places: Vec<Option<u16>>,
}

impl Layers {
    fn place_of(&mut self, layer: u32) -> Result<u16, String> {
        let index = usize::from(
            u16::try_from(layer).map_err(|_| format!("layer {layer} is beyond 65535"))?,
        );
        if let Some(Some(place)) = self.places.get(index) {
            return Ok(*place);
        }
        let place = u16::try_from(self.numbers.len())
            .map_err(|_| "there are more than 65535 layers".to_owned())?;
        self.numbers.push(layer);
        if self.places.len() <= index {
            self.places.resize(index + 1, None);
        }
        self.places[index] = Some(place);
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use bmoe_trace::record::Phase;

    use super::*;

    fn chunk(rows: &[(u32, u32, u32, u32)]) -> RouteChunk {
        let mut chunk = RouteChunk::default();
        for (event, layer, position, expert) in rows {
            chunk.event.push(*event);
            chunk.turn.push(0);
            chunk.ubatch.push(0);
            chunk.phase.push(Phase::Decode);
            chunk.layer.push(*layer);
            chunk.position.push(*position);
            chunk.slot.push(0);
            chunk.expert.push(*expert);
            chunk.weight.push(f32::NAN);
            chunk.residency.push(None);
            chunk.read_bytes.push(0);
        }
        chunk
    }

    #[test]
    fn events_go_on_over_chunks_and_layers_are_put_in_order() {
        let mut builder = Builder::new(LoadOptions::default());
        builder.push(&chunk(&[(0, 9, 5, 1), (0, 9, 5, 0), (0, 9, 6, 2)])).unwrap();
        builder.push(&chunk(&[(0, 9, 6, 3), (1, 2, 7, 1)])).unwrap();
        let trace = builder.finish("t".into(), String::new(), Vec::new(), 4).unwrap();
        let index: Vec<u32> = trace.layers.iter().map(|l| l.index).collect();
        assert_eq!(index, [2, 9]);
        let events: Vec<_> = trace.events().collect();
        assert_eq!(
            (events[0].layer, events[0].positions, events[0].experts),
            (1, &[5, 6][..], &[1, 0, 2, 3][..])
        );
        assert_eq!(
            (events[1].layer, events[1].positions, events[1].experts),
            (0, &[7][..], &[1][..])
        );
        assert!(events[0].weights.is_empty() && events[0].residency.is_empty());
    }

    #[test]
    fn experts_beyond_the_header_are_refused() {
        let mut builder = Builder::new(LoadOptions::default());
        builder.push(&chunk(&[(0, 0, 0, 4)])).unwrap();
        assert_eq!(
            builder.finish(String::new(), String::new(), Vec::new(), 4).unwrap_err(),
            "expert 4 of 4"
        );
    }
}
