//! DeepSeek V2 and V3: multi-head latent attention, in its absorbed form; and V3.2 and its kind, where an
//! indexer picks the tokens to attend to.

use super::Builder;
use super::keys::Keys;
use super::spec::{Has, Shared, Spec};
use super::standard::gating;
use crate::Shape;

/// Numbers of latent attention: ranks of query and key/value, and how much of a head rotates.
pub(super) const LATENT: [&str; 3] = ["q_lora_rank", "kv_lora_rank", "rope_dim"];

pub(super) const SPEC: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Maybe,
    expert_groups: Has::Maybe,
    prediction_layers: Has::Maybe,
    extra: &LATENT,
    choice_bias: 0.1,
    shared: Shared::Counted,
    keys: |shape, keys| {
        latent_keys(shape, keys);
        // To llama.cpp absorbed attention has one key/value head.
        keys.set("attention.head_count_kv", 1u32);
        keys.set("expert_gating_func", gating::SIGMOID);
        keys.set("expert_weights_norm", true);
        keys.set("expert_weights_scale", 2.5);
    },
    layer,
    ..Spec::STANDARD
};

pub(super) const DEEPSEEK32: Spec = Spec {
    // As above, and heads, width and top-k of the indexer. llama.cpp fails (a division by zero) on an indexer
    // as wide as the key, which is kv_lora_rank + rope_dim.
    extra: &[
        "q_lora_rank",
        "kv_lora_rank",
        "rope_dim",
        "indexer_heads",
        "indexer_head_dim",
        "indexer_top_k",
    ],
    keys: |shape, keys| {
        (SPEC.keys)(shape, keys);
        indexer_keys(shape, keys);
    },
    layer: |b, number| {
        layer(b, number);
        indexer(b, number);
    },
    ..SPEC
};

pub(super) fn indexer_keys(shape: &Shape, keys: &mut Keys) {
    let d = &shape.dims;
    keys.set("attention.indexer.head_count", d.extra("indexer_heads"));
    keys.set("attention.indexer.key_length", d.extra("indexer_head_dim"));
    keys.set("attention.indexer.top_k", d.extra("indexer_top_k"));
}

/// Random scores of all earlier tokens.
pub(super) fn indexer(b: &mut Builder<'_>, layer: u32) {
    let d = &b.shape.dims;
    let (hidden, q_rank) = (u64::from(d.hidden), u64::from(d.extra("q_lora_rank")));
    let (heads, dim) = (u64::from(d.extra("indexer_heads")), d.extra("indexer_head_dim"));
    b.layer_norm(layer, "indexer.k_norm", dim);
    b.vector(format!("blk.{layer}.indexer.k_norm.bias"), [u64::from(dim)], 0.0, 0.02);
    b.mixer(layer, "indexer.proj.weight", [hidden, heads], 1.0);
    b.mixer(layer, "indexer.attn_k.weight", [hidden, u64::from(dim)], 1.0);
    b.mixer(layer, "indexer.attn_q_b.weight", [q_rank, heads * u64::from(dim)], 1.0);
}

pub(super) fn latent_keys(shape: &Shape, keys: &mut Keys) {
    let d = &shape.dims;
    let (rank, rope) = (d.extra("kv_lora_rank"), d.extra("rope_dim"));
    if d.extra("q_lora_rank") > 0 {
        keys.set("attention.q_lora_rank", d.extra("q_lora_rank"));
    }
    keys.set("attention.kv_lora_rank", rank);
    keys.set("attention.key_length", rank + rope);
    keys.set("attention.value_length", rank);
    keys.set("attention.key_length_mla", d.head_dim + rope);
    keys.set("attention.value_length_mla", d.head_dim);
    keys.set("rope.dimension_count", rope);
}

fn layer(b: &mut Builder<'_>, layer: u32) {
    b.layer_norm(layer, "attn_norm", b.shape.dims.hidden);
    latent_attention(b, layer);
    b.layer_norm(layer, "ffn_norm", b.shape.dims.hidden);
    b.feed_forward(layer);
}

/// Random latent attention (without a query rank: a query projection of full rank), whose output has the root
/// mean square of a later layer's.
pub(super) fn latent_attention(b: &mut Builder<'_>, layer: u32) {
    latent_attention_of_rank(b, layer, b.shape.dims.extra("kv_lora_rank"));
}

/// The same with a key/value rank of the layer's own.
pub(super) fn latent_attention_of_rank(b: &mut Builder<'_>, layer: u32, kv_rank: u32) {
    let d = &b.shape.dims;
    let wide = |n: u32| u64::from(n);
    let (hidden, heads, head_dim) = (wide(d.hidden), wide(d.heads), wide(d.head_dim));
    let (q_rank, rope) = (d.extra("q_lora_rank"), wide(d.extra("rope_dim")));
    if q_rank > 0 {
        b.mixer(layer, "attn_q_a.weight", [hidden, wide(q_rank)], 1.0);
        b.layer_norm(layer, "attn_q_a_norm", q_rank);
        b.mixer(layer, "attn_q_b.weight", [wide(q_rank), heads * (head_dim + rope)], 1.0);
    } else {
        b.mixer(layer, "attn_q.weight", [hidden, heads * (head_dim + rope)], 1.0);
    }
    b.mixer(layer, "attn_kv_a_mqa.weight", [hidden, wide(kv_rank) + rope], 1.0);
    b.layer_norm(layer, "attn_kv_a_norm", kv_rank);
    b.mixer(layer, "attn_k_b.weight", [head_dim, wide(kv_rank), heads], 1.0);
    b.mixer(layer, "attn_v_b.weight", [wide(kv_rank), head_dim, heads], 1.0);
    b.mixer(layer, "attn_output.weight", [heads * head_dim, hidden], b.mixer_gain());
}
