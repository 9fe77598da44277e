//! gpt-oss: biases on router, experts and attention, and attention sinks.

use super::Builder;
use super::spec::{Has, Spec};

pub(super) const SPEC: Spec = Spec {
    window: Has::Always,
    qkv_bias: true,
    ffn_norm: "post_attention_norm",
    // Its activation multiplies with up + 1.
    activation_rms: 0.9,
    keys: |_, keys| {
        keys.set("rope.scaling.type", "yarn");
        keys.set("rope.scaling.factor", 32.0);
        keys.set("rope.scaling.original_context_length", 4096);
    },
    layer,
    ..Spec::STANDARD
};

fn layer(b: &mut Builder<'_>, layer: u32) {
    let d = &b.shape.dims;
    let (hidden, ffn, experts) =
        (u64::from(d.hidden), u64::from(d.expert_ffn), u64::from(d.experts));
    let heads = u64::from(d.heads);
    let name = |part: &str| format!("blk.{layer}.{part}");
    b.layer_norm(layer, "attn_norm", b.shape.dims.hidden);
    b.attention(layer);
    b.vector(name("attn_output.bias"), [hidden], 0.0, 0.01);
    b.vector(name("attn_sinks.weight"), [heads], 0.0, 0.5);
    b.layer_norm(layer, b.spec.ffn_norm, b.shape.dims.hidden);
    b.experts(layer);
    b.vector(name("ffn_gate_inp.bias"), [experts], 0.0, 0.02);
    for part in ["ffn_gate_exps.bias", "ffn_up_exps.bias"] {
        b.vector(name(part), [ffn, experts], 0.0, 0.02);
    }
    let bias = 0.02 * b.expert_rms();
    b.vector(name("ffn_down_exps.bias"), [hidden, experts], 0.0, bias);
}
