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
    b.norms_behind(layer, "post_attention_norm", "post_ffw_norm");
}
