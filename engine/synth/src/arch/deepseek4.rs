//! DeepSeek V4: four residual streams that are mixed before and after every part (hyper-connections),
//! attention over a window and over compressed tokens, and, in the first layers, experts chosen by token.

use super::Builder;
use super::spec::{Has, Shared, Spec};
use super::standard::gating;
use crate::fill::Fill;
use crate::{Shape, WeightType};

/// Residual streams; llama.cpp knows no other number.
pub(super) const STREAMS: u64 = 4;
/// Tokens that an entry of the fine and of the coarse compressed cache stands for.
const FINE: u32 = 4;
const COARSE: u32 = 128;

pub(super) const SPEC: Spec = Spec {
    window: Has::Always,
    // Query rank, rank and groups of the output projection, rotating dimensions of a head, layers whose
    // experts are chosen by token, and heads, width and top-k of the indexer that picks compressed entries.
    // llama.cpp fails (a division by zero) on an indexer as wide as a head.
    extra: &[
        "q_lora_rank",
        "o_lora_rank",
        "o_groups",
        "rope_dim",
        "hash_layers",
        "indexer_heads",
        "indexer_head_dim",
        "indexer_top_k",
    ],
    choice_bias: 0.1,
    shared: Shared::Counted,
    keys: |shape, keys| {
        let d = &shape.dims;
        keys.set("attention.head_count_kv", 1u32);
        keys.set("rope.dimension_count", d.extra("rope_dim"));
        keys.set("attention.q_lora_rank", d.extra("q_lora_rank"));
        keys.set("attention.output_lora_rank", d.extra("o_lora_rank"));
        keys.set("attention.output_group_count", d.extra("o_groups"));
        keys.set("attention.compress_rope_freq_base", d.rope_base);
        keys.set_per_layer("attention.compress_ratios", shape, |layer| ratio(shape, layer));
        keys.set("attention.indexer.head_count", d.extra("indexer_heads"));
        keys.set("attention.indexer.key_length", d.extra("indexer_head_dim"));
        keys.set("attention.indexer.top_k", d.extra("indexer_top_k"));
        keys.set("hyper_connection.count", STREAMS as u32);
        keys.set("hyper_connection.sinkhorn_iterations", 4u32);
        keys.set("hyper_connection.epsilon", 1e-6);
        keys.set("hash_layer_count", d.extra("hash_layers"));
        keys.set("expert_gating_func", gating::SQRT_SOFTPLUS);
        keys.set("expert_weights_norm", true);
        keys.set("expert_weights_scale", 1.5);
        keys.set("swiglu_clamp_exp", 10.0);
    },
    layer,
    after_layers: |b| connection(b, "output_hc", STREAMS, 1),
    ..Spec::STANDARD
};

/// How many tokens a compressed entry of a layer stands for; 0 = the layer has its window only.
/// The period of the window says how often that is.
fn ratio(shape: &Shape, layer: u32) -> u32 {
    let period = shape.dims.window.as_ref().map_or(2, |w| w.period);
    match layer % period.max(3) {
        0 => 0,
        n if n % 2 == 1 => FINE,
        _ => COARSE,
    }
}

/// The weights of a hyper-connection: a projection of all streams, and `scales` scales and a base for the
/// `outputs` that it gives.
pub(super) fn connection(b: &mut Builder<'_>, name: &str, outputs: u64, scales: u64) {
    let wide = STREAMS * u64::from(b.shape.dims.hidden);
    let fill = Fill::Around { mean: 0.0, std: 1.0 / (wide as f32).sqrt() };
    b.push(format!("{name}_fn.weight"), [wide, outputs], WeightType::F32, fill);
    b.vector(format!("{name}_base.weight"), [outputs], 0.0, 0.1);
    b.vector(format!("{name}_scale.weight"), [scales], 0.3, 0.02);
}

fn layer(b: &mut Builder<'_>, layer: u32) {
    let hidden = b.shape.dims.hidden;
    let mixes = (2 + STREAMS) * STREAMS;
    connection(b, &format!("blk.{layer}.hc_attn"), mixes, 3);
    b.layer_norm(layer, "attn_norm", hidden);
    attention(b, layer);
    connection(b, &format!("blk.{layer}.hc_ffn"), mixes, 3);
    b.layer_norm(layer, "ffn_norm", hidden);
    let d = &b.shape.dims;
    let (experts, used) = (d.experts, d.experts_used);
    let shared = d.shared_experts * d.expert_ffn;
    b.experts(layer);
    if layer < d.extra("hash_layers") {
        let dims = [u64::from(used), u64::from(b.shape.tokenizer.vocab)];
        let fill = Fill::TokenExperts { experts, used };
        b.push(format!("blk.{layer}.ffn_gate_tid2eid.weight"), dims, WeightType::F32, fill);
    } else {
        b.choice_bias(layer);
    }
    b.dense_part(layer, "_shexp", shared);
}

fn attention(b: &mut Builder<'_>, layer: u32) {
    let d = &b.shape.dims;
    let wide = |n: u32| u64::from(n);
    let (hidden, heads, head_dim) = (wide(d.hidden), wide(d.heads), wide(d.head_dim));
    let q_rank = d.extra("q_lora_rank");
    let (o_rank, groups) = (wide(d.extra("o_lora_rank")), wide(d.extra("o_groups")));
    let (i_heads, i_dim) = (wide(d.extra("indexer_heads")), d.extra("indexer_head_dim"));
    let head = d.head_dim;
    b.vector(format!("blk.{layer}.attn_sinks.weight"), [heads], 0.0, 0.5);
    b.mixer(layer, "attn_q_a.weight", [hidden, wide(q_rank)], 1.0);
    b.layer_norm(layer, "attn_q_a_norm", q_rank);
    b.mixer(layer, "attn_q_b.weight", [wide(q_rank), heads * head_dim], 1.0);
    b.mixer(layer, "attn_kv.weight", [hidden, head_dim], 1.0);
    b.layer_norm(layer, "attn_kv_a_norm", head);
    b.mixer(layer, "attn_output_a.weight", [heads * head_dim / groups, o_rank * groups], 1.0);
    b.mixer(layer, "attn_output_b.weight", [groups * o_rank, hidden], b.mixer_gain());
    let ratio = ratio(b.shape, layer);
    if ratio == 0 {
        return;
    }
    let overlap = if ratio == FINE { 2 } else { 1 };
    compressor(b, layer, "attn_compressor", overlap * head_dim, ratio, head);
    if ratio == FINE {
        b.mixer(layer, "indexer.proj.weight", [hidden, i_heads], 1.0);
        b.mixer(layer, "indexer.attn_q_b.weight", [wide(q_rank), i_heads * wide(i_dim)], 1.0);
        compressor(b, layer, "indexer_compressor", 2 * wide(i_dim), ratio, i_dim);
    }
}

/// What makes one entry of `width` (part of it from the tokens before) out of `ratio` tokens.
fn compressor(b: &mut Builder<'_>, layer: u32, name: &str, width: u64, ratio: u32, norm: u32) {
    let hidden = u64::from(b.shape.dims.hidden);
    b.mixer(layer, &format!("{name}_kv.weight"), [hidden, width], 1.0);
    b.mixer(layer, &format!("{name}_gate.weight"), [hidden, width], 1.0);
    b.vector(format!("blk.{layer}.{name}_ape.weight"), [width, u64::from(ratio)], 0.0, 0.1);
    b.layer_norm(layer, &format!("{name}_norm"), norm);
}
