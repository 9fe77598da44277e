//! GLM-5.3-Flash: four residual streams as in DeepSeek V4, linear attention as in Kimi Linear in most layers,
//! in the others latent attention without positions to the pools of tokens that an indexer picks.

use super::Builder;
use super::deepseek2::{indexer, indexer_keys, latent_attention, latent_keys};
use super::deepseek4::{STREAMS, connection};
use super::kda::{CONV_TOKENS, is_linear, linear_attention, linear_head_counts};
use super::spec::{Has, Shared, Spec};
use super::standard::gating;
use crate::Shape;

pub(super) const SPEC: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Maybe,
    prediction_layers: Has::Maybe,
    // As deepseek32 without rotating dimensions, tokens in a pool, layers up to and with one of latent
    // attention, and the width of a linear head. llama.cpp wants whole pools in the indexer's top-k.
    extra: &[
        "q_lora_rank",
        "kv_lora_rank",
        "indexer_heads",
        "indexer_head_dim",
        "indexer_top_k",
        "indexer_pool",
        "attention_every",
        "linear_head_dim",
    ],
    choice_bias: 0.1,
    shared: Shared::Counted,
    keys: |shape, keys| {
        let d = &shape.dims;
        latent_keys(shape, keys);
        linear_head_counts(shape, keys);
        indexer_keys(shape, keys);
        keys.set("attention.indexer.kpool", d.extra("indexer_pool"));
        keys.set("attention.indexer.kpool_select_tail", true);
        let indexed = (0..d.layers).map(|layer| u32::from(has_indexer(shape, layer)));
        keys.set("attention.indexer.types", indexed.collect::<Vec<u32>>());
        keys.set("ssm.conv_kernel", CONV_TOKENS);
        keys.set("kda.head_dim", d.extra("linear_head_dim"));
        keys.set("hyper_connection.count", STREAMS as u32);
        keys.set("hyper_connection.sinkhorn_iterations", 4u32);
        keys.set("hyper_connection.epsilon", 1e-6);
        keys.set("swiglu_clamp_exp", 10.0);
        keys.set("expert_gating_func", gating::SIGMOID);
        keys.set("expert_weights_norm", true);
        keys.set("expert_weights_scale", 2.5);
    },
    layer,
    ..Spec::STANDARD
};

/// Every second layer of latent attention takes the pools that the one before has picked.
fn has_indexer(shape: &Shape, layer: u32) -> bool {
    let every = shape.dims.extra("attention_every").max(1);
    layer >= shape.dims.layers || (layer / every).is_multiple_of(2)
}

fn layer(b: &mut Builder<'_>, layer: u32) {
    let d = &b.shape.dims;
    let (hidden, in_streams) = (d.hidden, layer < d.layers);
    let mixes = (2 + STREAMS) * STREAMS;
    if in_streams {
        connection(b, &format!("blk.{layer}.hc_attn"), mixes, 3);
    }
    b.layer_norm(layer, "attn_norm", hidden);
    if is_linear(b.shape, layer) {
        linear_attention(b, layer);
    } else {
        latent_attention(b, layer);
        if has_indexer(b.shape, layer) {
            pool_indexer(b, layer);
        }
    }
    if in_streams {
        connection(b, &format!("blk.{layer}.hc_ffn"), mixes, 3);
    }
    b.layer_norm(layer, "ffn_norm", hidden);
    b.feed_forward(layer);
}

/// Random scores of pools of earlier tokens.
fn pool_indexer(b: &mut Builder<'_>, layer: u32) {
    indexer(b, layer);
    let d = &b.shape.dims;
    let (hidden, dim) = (u64::from(d.hidden), u64::from(d.extra("indexer_head_dim")));
    let pool = u64::from(d.extra("indexer_pool"));
    b.mixer(layer, "indexer_compressor_gate.weight", [hidden, dim], 1.0);
    b.vector(format!("blk.{layer}.indexer_compressor_ape.weight"), [dim, pool], 0.0, 0.1);
}
