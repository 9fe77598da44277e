//! A context: decoding and logits.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::rc::Rc;

use super::hook::Hook;
use super::model::Model;
use super::{log, sys};
use crate::error::EngineError;

/// Sizes and threads of a context.
#[derive(Debug, Clone, Copy)]
pub struct ContextParams {
    /// Context length, tokens.
    pub ctx_tokens: u32,
    /// Most tokens in one call of [`Context::decode`].
    pub batch_tokens: u32,
    /// Micro-batch.
    pub ubatch_tokens: u32,
    /// Compute threads.
    pub threads: u32,
}

/// A context on a model. Its graph runs through the hook.
pub struct Context {
    pub(super) context: NonNull<sys::llama_context>,
    hook: Box<Hook>,
    n_vocab: usize,
    threads: u32,
    /// Freed behind the context, which `drop` frees.
    model: Rc<Model>,
}

impl Context {
    /// Makes a context.
    ///
    /// # Errors
    /// llama.cpp can't make it (most often: not enough memory).
    pub fn new(
        model: Rc<Model>,
        params: ContextParams,
        mut hook: Box<Hook>,
    ) -> Result<Self, EngineError> {
        hook.attach(&model, params.threads);
        // SAFETY: a plain call.
        let mut c = unsafe { sys::llama_context_default_params() };
        c.n_ctx = params.ctx_tokens;
        c.n_batch = params.batch_tokens;
        c.n_ubatch = params.ubatch_tokens;
        c.n_seq_max = 1;
        c.n_threads = params.threads as i32;
        c.n_threads_batch = params.threads as i32;
        c.no_perf = true;
        c.offload_kqv = false;
        c.op_offload = false;
        let user_data = std::ptr::from_mut::<Hook>(&mut hook).cast::<c_void>();
        c.cb_eval = Some(super::hook::on_node);
        c.cb_eval_user_data = user_data;
        c.abort_callback = Some(super::hook::on_abort_check);
        c.abort_callback_data = user_data;
        // SAFETY: the hook is boxed and owned by the context, so the callbacks' data outlives it.
        let context = unsafe { sys::llama_init_from_model(model.as_ptr(), c) };
        let context = NonNull::new(context).ok_or_else(|| {
            EngineError::Llama(log::take_error().unwrap_or_else(|| {
                format!("no context of {} tokens could be made", params.ctx_tokens)
            }))
        })?;
        Ok(Self { context, hook, n_vocab: model.n_vocab(), threads: params.threads, model })
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The hook.
    pub fn hook(&mut self) -> &mut Hook {
        &mut self.hook
    }

    /// Compute threads.
    #[must_use]
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// Computes tokens at the positions from `first_position` on. Logits are wanted of all of them, or
    /// of the last one.
    ///
    /// # Errors
    /// A read failed, the graph was not understood, the run was interrupted, or llama.cpp failed. After
    /// [`EngineError::Cancelled`] the context can be used again, but what it remembers of these tokens is
    /// undefined: see [`Self::forget_from`] and [`Self::restore`].
    pub fn decode(
        &mut self,
        tokens: &[i32],
        first_position: u32,
        all_logits: bool,
    ) -> Result<(), EngineError> {
        let n = tokens.len();
        let mut tokens = tokens.to_vec();
        let mut positions: Vec<i32> =
            (0..n).map(|i| (first_position as usize + i) as i32).collect();
        let mut sequence_counts = vec![1i32; n];
        let mut sequence = 0i32;
        let mut sequences = vec![std::ptr::from_mut(&mut sequence); n];
        let mut wanted: Vec<i8> = (0..n).map(|i| i8::from(all_logits || i + 1 == n)).collect();
        let batch = sys::llama_batch {
            n_tokens: n as i32,
            token: tokens.as_mut_ptr(),
            embd: std::ptr::null_mut(),
            pos: positions.as_mut_ptr(),
            n_seq_id: sequence_counts.as_mut_ptr(),
            seq_id: sequences.as_mut_ptr(),
            logits: wanted.as_mut_ptr().cast(),
        };
        self.hook.start_batch(n as u32, first_position);
        let _ = log::take_error();
        // SAFETY: all arrays have `n` elements and live until the call returns.
        let status = unsafe { sys::llama_decode(self.context.as_ptr(), batch) };
        self.hook.end_batch();
        if let Some(error) = self.hook.take_failure() {
            if matches!(error, EngineError::Cancelled) {
                self.hook.abandon();
            }
            return Err(error);
        }
        if status != 0 {
            let why = log::take_error().map_or_else(String::new, |e| format!(": {e}"));
            return Err(EngineError::Llama(format!("llama_decode returned {status}{why}")));
        }
        Ok(())
    }

    /// Logits of the last [`decode`](Self::decode), of its token `index` (from 0; it must have been wanted).
    ///
    /// # Panics
    /// If that token's logits were not wanted.
    #[must_use]
    pub fn logits(&self, index: usize) -> &[f32] {
        // SAFETY: llama.cpp returns null or `n_vocab` floats that stay until the next decode, which
        // needs `&mut self`.
        unsafe {
            let logits = sys::llama_get_logits_ith(self.context.as_ptr(), index as i32);
            assert!(!logits.is_null(), "token {index} has no logits");
            std::slice::from_raw_parts(logits, self.n_vocab)
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made once, freed once; the model is still there.
        unsafe { sys::llama_free(self.context.as_ptr()) };
    }
}
