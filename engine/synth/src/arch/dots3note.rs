//! dots.note: latent attention over windows and, in the last layer of every few, to the tokens that an
//! indexer picks, each with a rank of its own; a gate per head.

use super::Builder;
use super::attention::is_windowed;
use super::deepseek2::{self, indexer, indexer_keys, latent_attention_of_rank};
use super::spec::{Has, Spec};
use super::standard::window_pattern;
use crate::Shape;

pub(super) const SPEC: Spec = Spec {
    leading_dense: Has::Always,
    expert_groups: Has::Never,
    window: Has::Always,
    extra: &[
        "q_lora_rank",
        "kv_lora_rank",
        "window_kv_lora_rank",
        "rope_dim",
        "indexer_heads",
        "indexer_head_dim",
        "indexer_top_k",
    ],
    keys: |shape, keys| {
        (deepseek2::SPEC.keys)(shape, keys);
        indexer_keys(shape, keys);
        window_pattern(shape, keys);
        let d = &shape.dims;
        let (rank, rope) = (d.extra("window_kv_lora_rank"), d.extra("rope_dim"));
        keys.set("attention.kv_lora_rank_swa", rank);
        keys.set("attention.key_length_swa", rank + rope);
        keys.set("attention.value_length_swa", rank);
        keys.set("attention.key_length_mla_swa", d.head_dim + rope);
        keys.set("attention.value_length_mla_swa", d.head_dim);
        keys.set("rope.dimension_count_swa", rope);
        let indexed: Vec<bool> = (0..d.blocks()).map(|l| !windowed(shape, l)).collect();
        keys.set("attention.indexer.types", indexed);
    },
    layer,
    ..deepseek2::SPEC
};

/// Prediction layers have a window.
fn windowed(shape: &Shape, layer: u32) -> bool {
    layer >= shape.dims.layers || is_windowed(shape, layer)
}

fn layer(b: &mut Builder<'_>, layer: u32) {
    let d = &b.shape.dims;
    let (hidden, heads, dense_ffn) = (d.hidden, u64::from(d.heads), d.dense_ffn);
    let prediction = layer >= d.layers;
    b.layer_norm(layer, "attn_norm", hidden);
    let windowed = windowed(b.shape, layer);
    let rank = if windowed { "window_kv_lora_rank" } else { "kv_lora_rank" };
    latent_attention_of_rank(b, layer, b.shape.dims.extra(rank));
    b.layer_norm(layer, "attn_k_norm", b.shape.dims.extra("rope_dim"));
    b.mixer(layer, "attn_gate.weight", [u64::from(hidden), heads], 1.0);
    if !windowed {
        indexer(b, layer);
    }
    b.layer_norm(layer, "ffn_norm", hidden);
    if prediction {
        b.dense_part(layer, "", dense_ffn);
    } else {
        b.feed_forward(layer);
    }
}
