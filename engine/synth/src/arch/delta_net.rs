//! Qwen3 Next and Qwen3.5 MoE: gated delta nets (linear attention) in most layers, gated attention in the
//! last of every few.

use super::Builder;
use super::keys::Keys;
use super::spec::{Has, Shared, Spec};
use crate::fill::Fill;
use crate::{Shape, WeightType};

/// Layers up to and with one of full attention; key heads, value heads and width of a head of the
/// linear ones.
const EXTRA: [&str; 4] = ["attention_every", "linear_k_heads", "linear_v_heads", "linear_head_dim"];
/// Tokens that the convolution in front of linear attention sees.
const CONV_TOKENS: u32 = 4;

const COMMON: Spec = Spec {
    dense_ffn: Has::Always,
    prediction_layers: Has::Maybe,
    extra: &EXTRA,
    ffn_norm: "post_attention_norm",
    shared: Shared::DenseFfn,
    shared_gate: true,
    layer,
    ..Spec::STANDARD
};

pub(super) const QWEN3NEXT: Spec = Spec { keys: common_keys, ..COMMON };

pub(super) const QWEN35MOE: Spec = Spec {
    fused_gate_up: true,
    keys: |shape, keys| {
        common_keys(shape, keys);
        // Thirds of the rotating pairs for text, height and width of images.
        let pairs = shape.dims.head_dim / 2;
        let third = pairs / 3;
        keys.set("rope.dimension_sections", vec![pairs - 2 * third, third, third, 0]);
    },
    ..COMMON
};

fn common_keys(shape: &Shape, keys: &mut Keys) {
    let d = &shape.dims;
    let (v_heads, head_dim) = (d.extra("linear_v_heads"), d.extra("linear_head_dim"));
    keys.set("expert_shared_feed_forward_length", d.dense_ffn);
    keys.set("full_attention_interval", d.extra("attention_every"));
    keys.set("ssm.conv_kernel", CONV_TOKENS);
    keys.set("ssm.inner_size", v_heads * head_dim);
    keys.set("ssm.state_size", head_dim);
    keys.set("ssm.time_step_rank", v_heads);
    keys.set("ssm.group_count", d.extra("linear_k_heads"));
}

/// Prediction layers have full attention.
pub(super) fn is_linear(shape: &Shape, layer: u32) -> bool {
    layer < shape.dims.layers
        && !(layer + 1).is_multiple_of(shape.dims.extra("attention_every").max(1))
}

fn layer(b: &mut Builder<'_>, layer: u32) {
    let hidden = b.shape.dims.hidden;
    b.layer_norm(layer, "attn_norm", hidden);
    b.layer_norm(layer, "post_attention_norm", hidden);
    if is_linear(b.shape, layer) {
        linear_attention(b, layer)
    } else {
        gated_attention(b, layer)
    }
    b.feed_forward(layer);
}

/// Attention whose query projection also gives a gate for every output.
pub(super) fn gated_attention(b: &mut Builder<'_>, layer: u32) {
    let d = &b.shape.dims;
    let (hidden, head_dim) = (u64::from(d.hidden), d.head_dim);
    let q_len = u64::from(d.heads * head_dim);
    let kv_len = u64::from(d.kv_heads * head_dim);
    b.mixer(layer, "attn_q.weight", [hidden, 2 * q_len], 1.0);
    b.mixer(layer, "attn_k.weight", [hidden, kv_len], 1.0);
    b.mixer(layer, "attn_v.weight", [hidden, kv_len], 1.0);
    b.mixer(layer, "attn_output.weight", [q_len, hidden], b.mixer_gain());
    b.layer_norm(layer, "attn_q_norm", head_dim);
    b.layer_norm(layer, "attn_k_norm", head_dim);
}

pub(super) fn linear_attention(b: &mut Builder<'_>, layer: u32) {
    let d = &b.shape.dims;
    let (hidden, head_dim) = (u64::from(d.hidden), d.extra("linear_head_dim"));
    let (k_heads, v_heads) = (d.extra("linear_k_heads"), d.extra("linear_v_heads"));
    let keys = u64::from(k_heads * head_dim);
    let values = u64::from(v_heads * head_dim);
    let mixed = 2 * keys + values;
    b.mixer(layer, "attn_qkv.weight", [hidden, mixed], 1.0);
    b.mixer(layer, "attn_gate.weight", [hidden, values], 1.0);
    let name = |part: &str| format!("blk.{layer}.{part}");
    b.vector(name("ssm_conv1d.weight"), [u64::from(CONV_TOKENS), mixed], 0.0, 0.5);
    let heads = u64::from(v_heads);
    b.vector(name("ssm_dt.bias"), [heads], 0.0, 0.5);
    // Decay: what is left of the state after a token is exp(this times a softplus near 0.7).
    b.vector(name("ssm_a"), [heads], -0.3, 0.05);
    if b.spec.fused_gate_up {
        for part in ["ssm_beta.weight", "ssm_alpha.weight"] {
            b.mixer(layer, part, [hidden, heads], 1.0);
        }
    } else {
        b.mixer(layer, "ssm_ba.weight", [hidden, 2 * heads], 1.0);
    }
    b.push(
        name("ssm_norm.weight"),
        [u64::from(head_dim)],
        WeightType::F32,
        Fill::Around { mean: 1.0, std: 0.02 },
    );
    b.mixer(layer, "ssm_out.weight", [values, hidden], b.mixer_gain());
}
