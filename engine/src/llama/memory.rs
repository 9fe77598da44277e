//! What a context remembers of its text: forgetting the end of it, copies of a running state.

use super::context::Context;
use super::sys;
use crate::error::EngineError;

/// The only sequence that contexts of ours have.
const SEQUENCE: sys::llama_seq_id = 0;

/// `LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY`, which bindgen leaves out: what can't be taken apart by position.
const RUNNING_STATE: sys::llama_state_seq_flags = 1;

/// The state of a recurrent or hybrid model behind some tokens. Of a hybrid model it has the recurrent
/// part only: the attention's part is kept token by token in the context.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    tokens: u32,
    state: Vec<u8>,
}

impl Checkpoint {
    /// Tokens that the state has seen.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Size of the copy.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.state.len()
    }
}

impl Context {
    /// Forgets the tokens at the positions from `position` on. False when the model can't do that, in
    /// which case nothing has changed: its state has no positions, see [`Self::checkpoint`].
    #[must_use]
    pub fn forget_from(&mut self, position: u32) -> bool {
        // SAFETY: the context's own memory; -1 = to the end.
        unsafe {
            sys::llama_memory_seq_rm(
                sys::llama_get_memory(self.context.as_ptr()),
                SEQUENCE,
                position as i32,
                -1,
            )
        }
    }

    /// Forgets everything.
    pub fn forget_all(&mut self) {
        // SAFETY: the context's own memory. The old bytes may stay: no position refers to them.
        unsafe { sys::llama_memory_clear(sys::llama_get_memory(self.context.as_ptr()), false) };
    }

    /// Copies the running state, which has seen `tokens` tokens.
    ///
    /// # Errors
    /// llama.cpp writes less than it said it would.
    pub fn checkpoint(&mut self, tokens: u32) -> Result<Checkpoint, EngineError> {
        let (context, flags) = (self.context.as_ptr(), RUNNING_STATE);
        // SAFETY: the buffer has the size that llama.cpp asks for.
        let (state, written) = unsafe {
            let size = sys::llama_state_seq_get_size_ext(context, SEQUENCE, flags);
            let mut state = vec![0u8; size];
            let written = sys::llama_state_seq_get_data_ext(
                context,
                state.as_mut_ptr(),
                size,
                SEQUENCE,
                flags,
            );
            (state, written)
        };
        if written != state.len() || state.is_empty() {
            return Err(EngineError::Llama(format!(
                "it saved {written} of {} bytes of the model's state",
                state.len()
            )));
        }
        Ok(Checkpoint { tokens, state })
    }

    /// Goes back to a checkpoint. The tokens before it must be those of when it was made.
    ///
    /// # Errors
    /// llama.cpp doesn't take the state; the context must be cleared then.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<(), EngineError> {
        // SAFETY: pointer and length are the copy's.
        let read = unsafe {
            sys::llama_state_seq_set_data_ext(
                self.context.as_ptr(),
                checkpoint.state.as_ptr(),
                checkpoint.state.len(),
                SEQUENCE,
                RUNNING_STATE,
            )
        };
        // What attention remembers beyond the checkpoint goes, too.
        if read == checkpoint.state.len() && self.forget_from(checkpoint.tokens) {
            return Ok(());
        }
        Err(EngineError::Llama(format!(
            "it took {read} of {} bytes of a saved state of the model",
            checkpoint.state.len()
        )))
    }
}
