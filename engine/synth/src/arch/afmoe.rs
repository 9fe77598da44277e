//! Trinity: sliding windows, gated attention, and norms behind attention and experts.

use super::Builder;
use super::spec::{Gate, Has, QkNorm, Shared, Spec};
use super::standard::{gating, period};

pub(super) const SPEC: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Maybe,
    window: Has::Always,
    qk_norm: QkNorm::PerHead,
    attention_gate: Gate::PerElement,
    scaled_embedding: true,
    choice_bias: 0.1,
    shared: Shared::Counted,
    keys: |shape, keys| {
        keys.set("attention.sliding_window_pattern", period(shape));
        keys.set("expert_gating_func", gating::SIGMOID);
        keys.set("expert_weights_norm", true);
        keys.set("expert_weights_scale", 2.5);
    },
    layer,
    ..Spec::STANDARD
};

fn layer(b: &mut Builder<'_>, layer: u32) {
    b.standard_layer(layer);
    // These norms bring what is added to the residual to their weight.
    let hidden = [u64::from(b.shape.dims.hidden)];
    let (attention, experts) = (0.5 * b.attention_gain(layer), b.expert_rms());
    for (part, weight) in [("post_attention_norm", attention), ("post_ffw_norm", experts)] {
        b.vector(format!("blk.{layer}.{part}.weight"), hidden, weight, 0.02 * weight);
    }
}
