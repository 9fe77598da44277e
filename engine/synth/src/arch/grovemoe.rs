//! GroveMoE: chunk experts, which groups of neighbouring experts share. They are dense weights to the engine:
//! only the routed experts' own are streamed.

use super::Builder;
use super::spec::{QkNorm, Spec};
use crate::fill::Fill;

pub(super) const SPEC: Spec = Spec {
    // Experts that share a chunk expert, and its width.
    extra: &["group_experts", "chunk_ffn"],
    qk_norm: QkNorm::PerHead,
    keys: |shape, keys| {
        keys.set("expert_chunk_feed_forward_length", shape.dims.extra("chunk_ffn"));
        keys.set("experts_per_group", shape.dims.extra("group_experts"));
        keys.set("expert_group_scale", 0.05);
    },
    layer,
    ..Spec::STANDARD
};

fn layer(b: &mut Builder<'_>, layer: u32) {
    b.standard_layer(layer);
    let d = &b.shape.dims;
    let (hidden, ffn) = (u64::from(d.hidden), u64::from(d.extra("chunk_ffn")));
    let chunks = u64::from(d.experts / d.extra("group_experts").max(1));
    let ty = b.shape.types.attention.at(layer);
    for (part, dims) in [
        ("gate", [hidden, ffn, chunks]),
        ("up", [hidden, ffn, chunks]),
        ("down", [ffn, hidden, chunks]),
    ] {
        let fill = Fill::Random { std: 1.0 / (dims[0] as f32).sqrt() };
        b.push(format!("blk.{layer}.ffn_{part}_chexps.weight"), dims, ty, fill);
    }
}
