//! LFM2 MoE: short convolutions in most layers, attention in the last of every few.

use super::Builder;
use super::spec::{Has, QkNorm, Spec};
use super::standard::gating;
use crate::Shape;

pub(super) const SPEC: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Maybe,
    // Layers up to and with one of attention; tokens that a convolution sees.
    extra: &["attention_every", "conv_tokens"],
    heads_fill_hidden: true,
    qk_norm: QkNorm::PerHead,
    choice_bias: 0.1,
    output_norm: "token_embd_norm",
    keys: |shape, keys| {
        let kv_heads = shape.dims.kv_heads;
        keys.set_per_layer("attention.head_count_kv", shape, |layer| {
            if is_convolution(shape, layer) { 0 } else { kv_heads }
        });
        keys.set("shortconv.l_cache", shape.dims.extra("conv_tokens"));
        keys.set("expert_gating_func", gating::SIGMOID);
    },
    layer,
    ..Spec::STANDARD
};

fn is_convolution(shape: &Shape, layer: u32) -> bool {
    !(layer + 1).is_multiple_of(shape.dims.extra("attention_every").max(1))
}

fn layer(b: &mut Builder<'_>, layer: u32) {
    if !is_convolution(b.shape, layer) {
        return b.standard_layer(layer);
    }
    let (hidden, tokens) = (b.shape.dims.hidden, b.shape.dims.extra("conv_tokens"));
    let wide = u64::from(hidden);
    b.layer_norm(layer, "attn_norm", hidden);
    b.vector(
        format!("blk.{layer}.shortconv.conv.weight"),
        [u64::from(tokens), wide],
        0.0,
        1.0 / (tokens as f32).sqrt(),
    );
    b.mixer(layer, "shortconv.in_proj.weight", [wide, 3 * wide], 1.0);
    b.mixer(layer, "shortconv.out_proj.weight", [wide, wide], b.mixer_gain());
    b.layer_norm(layer, "ffn_norm", hidden);
    b.feed_forward(layer);
}
