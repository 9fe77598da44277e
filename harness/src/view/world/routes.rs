//! The routes of a run, by token.

use std::ops::Range;

use bmoe_analysis::routes::{RouteError, RouteEvent, RouteTrace};
use bmoe_trace::record::Phase;

/// Routes in the order of the run, each token's events found at once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RouteLog {
    trace: RouteTrace,
    /// Events before the first token: those of the prompt.
    prompt: usize,
    /// For each token the number of events up to and with its own.
    ends: Vec<usize>,
    /// Where the token that goes on has been seen: its position, and the last of its layers.
    last: Option<(u32, usize)>,
    events: usize,
}

impl RouteLog {
    /// Of a model's layers, without events.
    #[must_use]
    pub fn new(empty: RouteTrace) -> Self {
        let mut log = Self::default();
        log.take(empty);
        log
    }

    fn take(&mut self, trace: RouteTrace) {
        self.trace = trace;
        let mut spans = Vec::with_capacity(self.trace.events().len());
        for event in self.trace.events() {
            spans.push((event.phase, event.layer, event.positions.first().copied()));
        }
        for (phase, layer, position) in spans {
            self.count(phase, layer, position);
        }
    }

    /// Finds where tokens begin: a decode event of another position, or of a layer that the token had already.
    fn count(&mut self, phase: Phase, layer: usize, position: Option<u32>) {
        self.events += 1;
        if phase == Phase::Prefill {
            // A later turn's prompt belongs to the token before it.
            match self.ends.last_mut() {
                Some(end) => *end = self.events,
                None => self.prompt = self.events,
            }
            self.last = None;
            return;
        }
        let position = position.unwrap_or_default();
        match self.last {
            Some((at, before)) if at == position && layer > before => {
                if let Some(end) = self.ends.last_mut() {
                    *end = self.events;
                }
            }
            _ => self.ends.push(self.events),
        }
        self.last = Some((position, layer));
    }

    /// Adds an event behind the others.
    ///
    /// # Errors
    /// It does not fit the trace.
    pub fn push(&mut self, event: &RouteEvent<'_>) -> Result<(), RouteError> {
        self.trace.push(event)?;
        self.count(event.phase, event.layer, event.positions.first().copied());
        Ok(())
    }

    /// The trace: layers with their experts' sizes, experts a layer.
    #[must_use]
    pub fn trace(&self) -> &RouteTrace {
        &self.trace
    }

    /// Tokens with routes.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.ends.len()
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Events of the prompt.
    pub fn prompt(&self) -> impl ExactSizeIterator<Item = RouteEvent<'_>> {
        self.trace.events_in(0..self.prompt)
    }

    /// Events of a token, from 0; none for a token without routes.
    pub fn token(&self, token: usize) -> impl ExactSizeIterator<Item = RouteEvent<'_>> {
        self.trace.events_in(self.range(token..token.saturating_add(1)))
    }

    /// Events of a range of tokens.
    pub fn tokens_in(&self, tokens: Range<usize>) -> impl ExactSizeIterator<Item = RouteEvent<'_>> {
        self.trace.events_in(self.range(tokens))
    }

    fn range(&self, tokens: Range<usize>) -> Range<usize> {
        let before = |token: usize| match token.min(self.ends.len()) {
            0 => self.prompt,
            token => self.ends[token - 1],
        };
        before(tokens.start)..before(tokens.end.max(tokens.start))
    }
}
