//! Granite with sliding windows: attention sinks, and gate and up in one tensor, the shared expert's too.

use super::Builder;
use super::spec::{Has, Spec};
use super::standard::window_pattern;

pub(super) const SPEC: Spec = Spec {
    dense_ffn: Has::Always,
    window: Has::Always,
    neighbour_pairs: true,
    fused_gate_up: true,
    keys: |shape, keys| {
        window_pattern(shape, keys);
        // Routed experts have the dense width here.
        keys.set("feed_forward_length", shape.dims.expert_ffn);
        keys.set("expert_shared_feed_forward_length", shape.dims.dense_ffn);
        keys.set("logit_scale", 1.0);
        keys.set("residual_scale", 1.0);
        keys.set("embedding_scale", 1.0);
    },
    layer,
    ..Spec::STANDARD
};

fn layer(b: &mut Builder<'_>, layer: u32) {
    b.standard_layer(layer);
    let (heads, dense_ffn) = (u64::from(b.shape.dims.heads), b.shape.dims.dense_ffn);
    b.vector(format!("blk.{layer}.attn_sinks.weight"), [heads], 0.0, 0.5);
    b.fused_dense_part(layer, "_shexp", dense_ffn);
}
