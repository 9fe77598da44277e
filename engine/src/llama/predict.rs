//! Guessing the next layer's experts: its router, run on this layer's input.

use super::kernel::Kernel;
use super::sys;

/// A layer's router, as its graph nodes show it. Null pointers = not seen (yet).
#[derive(Debug, Clone, Copy)]
pub(super) struct Router {
    /// `[n_in, n_expert]`
    weights: *const sys::ggml_tensor,
    /// `[n_in, tokens]`
    input: *const sys::ggml_tensor,
    /// `[n_expert]`, added to the products; null = none.
    bias: *const sys::ggml_tensor,
}

impl Router {
    pub(super) const UNKNOWN: Self =
        Self { weights: std::ptr::null(), input: std::ptr::null(), bias: std::ptr::null() };

    /// Looks at a node of the layer whose name begins with `ffn_moe_logits`.
    pub(super) fn learn(&mut self, node: &sys::ggml_tensor) {
        match node.op {
            sys::GGML_OP_MUL_MAT => {
                (self.weights, self.input) = (node.src[0], node.src[1]);
            }
            sys::GGML_OP_ADD => self.bias = node.src[1],
            _ => {}
        }
    }
}

/// Space for guesses, used again and again.
#[derive(Debug, Default)]
pub(super) struct Predictor {
    activations: Vec<u64>,
    scores: Vec<(f32, u16)>,
}

impl Predictor {
    /// The `n` experts that `next` would choose for the single token that `here` routed; empty when a router
    /// is not of the usual form.
    ///
    /// # Safety
    /// Both routers' nodes must be of the graph that is running, and `here`'s input computed and in use.
    pub(super) unsafe fn guess(
        &mut self,
        here: &Router,
        next: &Router,
        n: usize,
    ) -> impl Iterator<Item = u16> {
        self.scores.clear();
        // SAFETY: the caller's promise.
        unsafe { self.score(here, next) };
        self.scores.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        self.scores.iter().take(n).map(|(_, expert)| *expert)
    }

    /// # Safety
    /// As [`Self::guess`].
    unsafe fn score(&mut self, here: &Router, next: &Router) {
        if here.input.is_null() || next.weights.is_null() {
            return;
        }
        // SAFETY: nodes and weights of the running graph.
        let (input, weights) = unsafe { (&*here.input, &*next.weights) };
        let n_in = weights.ne[0] as usize;
        let n_expert = weights.ne[1] as usize;
        let usual = input.type_ == sys::GGML_TYPE_F32
            && input.ne[0] as usize == n_in
            && input.ne[1] == 1
            && !input.data.is_null();
        let Some(kernel) = Kernel::of(weights.type_).filter(|_| usual) else { return };
        let mut row = input.data.cast_const().cast::<u8>();
        if !kernel.takes_f32() {
            self.activations.resize(kernel.activation_bytes(n_in).div_ceil(8), 0);
            let converted = self.activations.as_mut_ptr().cast::<u8>();
            // SAFETY: the input holds `n_in` floats, the buffer a converted row.
            unsafe { kernel.convert(row.cast(), converted, n_in) };
            row = converted;
        }
        for expert in 0..n_expert {
            let mut score = 0.0f32;
            // SAFETY: a row of the weights and an activation row of the same length; the bias has one
            // float for each expert when it is F32 of that length.
            unsafe {
                let weights = weights.data.byte_add(expert * weights.nb[1]).cast_const().cast();
                kernel.dot(n_in, &raw mut score, weights, row);
                if let Some(bias) = next.bias.as_ref()
                    && bias.type_ == sys::GGML_TYPE_F32
                    && bias.ne[0] as usize == n_expert
                {
                    score += *bias.data.cast_const().cast::<f32>().add(expert);
                }
            }
            self.scores.push((score, expert as u16));
        }
    }
}
