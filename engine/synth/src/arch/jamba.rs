//! Jamba: Mamba in most layers, attention without positions in the others; every other layer is dense.

use super::Builder;
use super::spec::{Has, Spec};
use crate::Shape;

/// Tokens that the convolution in front of the state space sees.
const CONV_TOKENS: u32 = 4;

pub(super) const SPEC: Spec = Spec {
    moe_step: Has::Maybe,
    // State of a channel and rank of its time step; layers up to and with one of attention.
    extra: &["ssm_state", "ssm_rank", "attention_every"],
    heads_fill_hidden: true,
    normalised: false,
    keys: |shape, keys| {
        let d = &shape.dims;
        keys.set("ssm.conv_kernel", CONV_TOKENS);
        keys.set("ssm.inner_size", 2 * d.hidden);
        keys.set("ssm.state_size", d.extra("ssm_state"));
        keys.set("ssm.time_step_rank", d.extra("ssm_rank"));
        keys.set_per_layer("attention.head_count_kv", shape, |layer| {
            if is_attention(shape, layer) { d.kv_heads } else { 0 }
        });
    },
    layer,
    ..Spec::STANDARD
};

fn is_attention(shape: &Shape, layer: u32) -> bool {
    (layer + 1).is_multiple_of(shape.dims.extra("attention_every").max(1))
}

fn layer(b: &mut Builder<'_>, layer: u32) {
    let hidden = b.shape.dims.hidden;
    b.layer_norm(layer, "attn_norm", hidden);
    if is_attention(b.shape, layer) {
        b.attention(layer);
    } else {
        state_space(b, layer);
    }
    b.layer_norm(layer, "ffn_norm", hidden);
    // Dense layers are as wide as an expert.
    if b.shape.dims.is_dense(layer) {
        b.dense_part(layer, "", b.shape.dims.expert_ffn);
    } else {
        b.experts(layer);
    }
}

fn state_space(b: &mut Builder<'_>, layer: u32) {
    let d = &b.shape.dims;
    let (hidden, state, rank) = (u64::from(d.hidden), d.extra("ssm_state"), d.extra("ssm_rank"));
    let (inner, wide_state, wide_rank) = (2 * hidden, u64::from(state), u64::from(rank));
    let name = |part: &str| format!("blk.{layer}.{part}");
    b.mixer(layer, "ssm_in.weight", [hidden, 2 * inner], 1.0);
    b.vector(name("ssm_conv1d.weight"), [u64::from(CONV_TOKENS), inner], 0.0, 0.5);
    b.vector(name("ssm_conv1d.bias"), [inner], 0.0, 0.02);
    b.mixer(layer, "ssm_x.weight", [inner, wide_rank + 2 * wide_state], 1.0);
    b.layer_norm(layer, "ssm_dt_norm", rank);
    b.mixer(layer, "ssm_dt.weight", [wide_rank, inner], 0.5);
    b.vector(name("ssm_dt.bias"), [inner], -2.0, 0.5);
    b.layer_norm(layer, "ssm_b_norm", state);
    b.layer_norm(layer, "ssm_c_norm", state);
    b.vector(name("ssm_a"), [wide_state, inner], -1.0, 0.2);
    b.vector(name("ssm_d"), [inner], 1.0, 0.1);
    b.mixer(layer, "ssm_out.weight", [inner, hidden], b.mixer_gain());
}
