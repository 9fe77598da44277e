//! A conversation over several requests.

use std::ops::ControlFlow;

use super::engine::Engine;
use super::request::{GeneratedToken, Request, TurnReport};
use super::sinks::Event;
use super::turn::TurnInput;
use crate::chat::{Message, Role};
use crate::error::EngineError;

/// A conversation: each request goes on where the one before ended, with the state of the text so far
/// kept in the context and the experts in their cache.
pub struct Session<'e, 's> {
    engine: &'e mut Engine<'s>,
    history: Vec<Message>,
    /// Nothing of what the context holds belongs to this conversation.
    fresh: bool,
}

impl<'e, 's> Session<'e, 's> {
    pub(super) fn new(engine: &'e mut Engine<'s>) -> Self {
        Self { engine, history: Vec::new(), fresh: true }
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Engine<'s> {
        self.engine
    }

    /// The conversation so far (with a chat template).
    #[must_use]
    pub fn history(&self) -> &[Message] {
        &self.history
    }

    /// Tells the sinks that a request can't be done.
    ///
    /// # Errors
    /// A sink can't take it.
    pub fn reject(&mut self, id: &str, message: &str) -> Result<(), EngineError> {
        self.engine.recorder.event(&Event::Rejected { id, message })
    }

    /// Answers a request. A cancelled one leaves the conversation as it was before it (empty, when the
    /// request began a new one).
    ///
    /// # Errors
    /// [`EngineError::Request`] when it can't be done: the session is as before. Any other error is the
    /// end of it.
    pub fn ask(
        &mut self,
        request: &Request,
        on_token: &mut dyn FnMut(&GeneratedToken<'_>) -> ControlFlow<()>,
    ) -> Result<TurnReport, EngineError> {
        let fresh = request.clear || self.fresh;
        let mut messages = if fresh { Vec::new() } else { self.history.clone() };
        messages.push(Message::user(&request.prompt));
        let (prompt, splitter) = self.engine.write_prompt(&messages, request)?;
        let input = TurnInput {
            id: &request.id,
            prompt,
            fresh,
            n_predict: request.n_predict,
            splitter,
            session: true,
        };
        let report = self.engine.turn(input, on_token)?;
        self.fresh = false;
        if report.cancelled() {
            if fresh {
                self.history.clear();
            }
            return Ok(report);
        }
        messages.push(Message {
            role: Role::Assistant,
            content: report.text.clone(),
            reasoning: (!report.reasoning.is_empty()).then(|| report.reasoning.clone()),
        });
        self.history = messages;
        Ok(report)
    }
}
