//! What the context keeps of a text: going back to a beginning of it, by position or by copies of a running
//! state.

use super::engine::Engine;
use crate::error::EngineError;

/// Copies of a running state that are kept: before a request, within its prompt and behind it, and one of
/// the request before.
const CHECKPOINTS: usize = 4;

impl Engine<'_> {
    /// The most tokens, up to `wanted`, that the context can go back to.
    pub(super) fn reachable(&self, wanted: usize) -> usize {
        if wanted == self.transcript.len() || !self.context.model().has_recurrent_state() {
            return wanted;
        }
        let reached = self.checkpoints.iter().rev().map(|c| c.tokens() as usize);
        reached.filter(|tokens| *tokens <= wanted).max().unwrap_or(0)
    }

    /// Goes back to the first `tokens` tokens, or to as many of them as can be reached.
    pub(super) fn rewind(&mut self, tokens: usize) -> Result<(), EngineError> {
        let tokens = self.reachable(tokens);
        self.checkpoints.retain(|c| c.tokens() as usize <= tokens);
        if tokens == 0 {
            self.context.forget_all();
        } else if self.context.model().has_recurrent_state() && tokens < self.transcript.len() {
            let checkpoint = self.checkpoints.last().expect("reachable tokens have a checkpoint");
            self.context.restore(checkpoint)?;
        } else if !self.context.forget_from(tokens as u32) {
            return Err(EngineError::Llama(format!(
                "it can't forget the text behind token {tokens}"
            )));
        }
        self.transcript.truncate(tokens);
        Ok(())
    }

    /// Copies a running state, if the model has one and there is no copy yet.
    pub(super) fn save_state(&mut self) -> Result<(), EngineError> {
        let tokens = self.transcript.len() as u32;
        let saved = self.checkpoints.last().is_some_and(|c| c.tokens() == tokens);
        if tokens == 0 || saved || !self.context.model().has_recurrent_state() {
            return Ok(());
        }
        if self.checkpoints.len() == CHECKPOINTS {
            self.checkpoints.remove(0);
        }
        let checkpoint = self.context.checkpoint(tokens)?;
        self.checkpoints.push(checkpoint);
        Ok(())
    }

    /// Takes back what a cancelled turn did to the context, which may have stopped anywhere.
    pub(super) fn undo(&mut self, keep: usize) -> Result<(), EngineError> {
        if self.context.model().has_recurrent_state() {
            // Even a state that has seen as many tokens as it should was being written to.
            let reached = self.checkpoints.iter().rposition(|c| c.tokens() as usize <= keep);
            let tokens = reached.map_or(0, |i| self.checkpoints[i].tokens() as usize);
            self.checkpoints.truncate(reached.map_or(0, |i| i + 1));
            match self.checkpoints.last() {
                Some(checkpoint) => self.context.restore(checkpoint)?,
                None => self.context.forget_all(),
            }
            self.transcript.truncate(tokens);
            return Ok(());
        }
        self.transcript.truncate(keep);
        if !self.context.forget_from(keep as u32) {
            return Err(EngineError::Llama("it can't forget a cancelled request".into()));
        }
        Ok(())
    }
}
