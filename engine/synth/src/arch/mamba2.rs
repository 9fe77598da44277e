//! Granite 4.0 and Nemotron 3: Mamba-2 in most layers.

use super::Builder;
use super::keys::Keys;
use super::spec::{Has, Shared, Spec};
use crate::Shape;

/// Heads, state of a head, and groups of heads that share it, of a Mamba-2 layer; layers up to and with one of
/// attention.
const EXTRA: [&str; 4] = ["ssm_heads", "ssm_state", "ssm_groups", "attention_every"];
/// Tokens that the convolution in front of the state space sees.
const CONV_TOKENS: u32 = 4;

pub(super) const GRANITEHYBRID: Spec = Spec {
    dense_ffn: Has::Always,
    extra: &EXTRA,
    neighbour_pairs: true,
    shared: Shared::DenseFfn,
    keys: |shape, keys| {
        common_keys(shape, keys);
        // Routed experts have the dense width here.
        keys.set("feed_forward_length", shape.dims.expert_ffn);
        keys.set("logit_scale", 1.0);
        keys.set_per_layer("attention.head_count_kv", shape, |layer| {
            if is_attention(shape, layer) { shape.dims.kv_heads } else { 0 }
        });
    },
    layer: granite_layer,
    ..Spec::STANDARD
};

/// Experts, attention and Mamba-2 are layers of their own: every `moe_step`-th has experts, of the others
/// every `attention_every`-th attention.
pub(super) const NEMOTRON_H_MOE: Spec = Spec {
    dense_ffn: Has::Always,
    moe_step: Has::Always,
    extra: &EXTRA,
    gated: false,
    choice_bias: 0.1,
    shared: Shared::DenseFfn,
    // The squared ReLU of a unit normal.
    activation_rms: 1.2,
    keys: |shape, keys| {
        common_keys(shape, keys);
        let d = &shape.dims;
        keys.set("attention.layer_norm_epsilon", 1e-6);
        keys.set_per_layer("feed_forward_length", shape, |layer| {
            if d.is_dense(layer) { 0 } else { d.expert_ffn }
        });
        keys.set_per_layer("attention.head_count_kv", shape, |layer| {
            if d.is_dense(layer) && is_attention(shape, layer) { d.kv_heads } else { 0 }
        });
        keys.set("expert_shared_count", 1u32);
        keys.set("expert_weights_norm", true);
        keys.set("expert_weights_scale", 2.5);
    },
    layer: nemotron_layer,
    ..Spec::STANDARD
};

fn is_attention(shape: &Shape, layer: u32) -> bool {
    (layer + 1).is_multiple_of(shape.dims.extra("attention_every").max(1))
}

fn common_keys(shape: &Shape, keys: &mut Keys) {
    let d = &shape.dims;
    keys.set("expert_shared_feed_forward_length", d.dense_ffn);
    keys.set("ssm.conv_kernel", CONV_TOKENS);
    keys.set("ssm.inner_size", 2 * d.hidden);
    keys.set("ssm.state_size", d.extra("ssm_state"));
    keys.set("ssm.time_step_rank", d.extra("ssm_heads"));
    keys.set("ssm.group_count", d.extra("ssm_groups"));
}

fn granite_layer(b: &mut Builder<'_>, layer: u32) {
    if is_attention(b.shape, layer) {
        return b.standard_layer(layer);
    }
    b.layer_norm(layer, "attn_norm", b.shape.dims.hidden);
    state_space(b, layer);
    b.layer_norm(layer, "ffn_norm", b.shape.dims.hidden);
    b.feed_forward(layer);
}

fn nemotron_layer(b: &mut Builder<'_>, layer: u32) {
    b.layer_norm(layer, "attn_norm", b.shape.dims.hidden);
    if !b.shape.dims.is_dense(layer) {
        b.feed_forward(layer);
    } else if is_attention(b.shape, layer) {
        b.attention(layer);
    } else {
        state_space(b, layer);
    }
}

fn state_space(b: &mut Builder<'_>, layer: u32) {
    let d = &b.shape.dims;
    let (hidden, heads) = (u64::from(d.hidden), u64::from(d.extra("ssm_heads")));
    let (state, groups) = (u64::from(d.extra("ssm_state")), u64::from(d.extra("ssm_groups")));
    let inner = 2 * hidden;
    let mixed = inner + 2 * groups * state;
    let name = |part: &str| format!("blk.{layer}.{part}");
    b.mixer(layer, "ssm_in.weight", [hidden, inner + mixed + heads], 1.0);
    b.vector(name("ssm_conv1d.weight"), [u64::from(CONV_TOKENS), mixed], 0.0, 0.5);
    b.vector(name("ssm_conv1d.bias"), [mixed], 0.0, 0.02);
    b.vector(name("ssm_dt.bias"), [heads], -1.0, 0.5);
    b.vector(name("ssm_a"), [1, heads], -1.0, 0.2);
    b.vector(name("ssm_d"), [1, heads], 1.0, 0.1);
    b.vector(name("ssm_norm.weight"), [inner / groups, groups], 1.0, 0.02);
    b.mixer(layer, "ssm_out.weight", [inner, hidden], b.mixer_gain());
}
