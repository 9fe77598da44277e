//! Qwen4 (experimental): as Qwen3.5 MoE, with residual streams that gates of low rank mix in place of norms,
//! attention to the blocks of tokens that an indexer picks, and embeddings of the last few tokens in the first
//! layer.

use super::Builder;
use super::deepseek2::indexer_keys;
use super::deepseek4::STREAMS;
use super::delta_net::{self, gated_attention, is_linear, linear_attention};
use super::keys::Keys;
use super::spec::Spec;
use crate::fill::Fill;
use crate::gguf::Value;
use crate::{Shape, WeightType, tokenizer};

/// Tokens that embeddings of several tokens are of: 2 to this many.
const NGRAM: u32 = 3;
/// Heads of the embeddings of each number of tokens, and of all.
const NGRAM_HEADS: u32 = 4;
const ALL_NGRAM_HEADS: u32 = (NGRAM - 1) * NGRAM_HEADS;
/// Tokens that the convolution behind those embeddings sees, each NGRAM from the next.
const NGRAM_CONV: u32 = 4;
/// The layer that adds those embeddings.
const NGRAM_LAYER: u32 = 0;

pub(super) const SPEC: Spec = Spec {
    // As qwen35moe, and the rank of the streams' gates; the indexer's heads, their width, the tokens that it
    // picks and those in a block; and rows of a head of the embeddings of several tokens.
    extra: &[
        "attention_every",
        "linear_k_heads",
        "linear_v_heads",
        "linear_head_dim",
        "stream_rank",
        "indexer_heads",
        "indexer_head_dim",
        "indexer_top_k",
        "indexer_pool",
        "ngram_rows",
    ],
    ffn_norm: "",
    output_norm: "",
    keys,
    before_layers: |b| {
        let width = u64::from(ngram_width(b.shape));
        let rows = u64::from(ALL_NGRAM_HEADS) * u64::from(b.shape.dims.extra("ngram_rows"));
        let fill = Fill::Random { std: 1.0 };
        b.push("per_layer_token_embd.weight", [width, rows], WeightType::Q8_0, fill);
    },
    layer,
    prediction_tensors: |b, layer| {
        let hidden = u64::from(b.shape.dims.hidden);
        b.mixer(layer, "nextn.eh_proj.weight", [2 * hidden, hidden], 1.0);
        b.layer_norm(layer, "nextn.enorm", b.shape.dims.hidden);
        stream_norm(b, &format!("blk.{layer}.nextn.hnorm"), 1.0);
        streams_gate(b, &format!("blk.{layer}.nextn.hc_head"));
    },
    after_layers: |b| streams_gate(b, "output_hc"),
    ..delta_net::QWEN35MOE
};

/// The width of a head of those embeddings: together they are as wide as the residual.
fn ngram_width(shape: &Shape) -> u32 {
    shape.dims.hidden / ALL_NGRAM_HEADS
}

fn keys(shape: &Shape, keys: &mut Keys) {
    let d = &shape.dims;
    (delta_net::QWEN35MOE.keys)(shape, keys);
    keys.set("hyper_connection.count", STREAMS as u32);
    keys.set("hyper_connection.low_rank", d.extra("stream_rank"));
    indexer_keys(shape, keys);
    keys.set_per_layer("attention.compress_ratios", shape, |layer| {
        if is_linear(shape, layer) { 0 } else { d.extra("indexer_pool") }
    });
    let rows = u64::from(d.extra("ngram_rows"));
    keys.set("ple.layers", vec![NGRAM_LAYER]);
    keys.set("ple.ngram_size", NGRAM);
    keys.set("ple.heads_per_ngram", NGRAM_HEADS);
    keys.set("ple.conv_kernel", NGRAM_CONV);
    keys.set("ple.eos_token_id", tokenizer::build(shape.tokenizer.vocab).eos_id);
    keys.set("embedding_length_per_layer_input", ngram_width(shape));
    // What tokens are multiplied with to hash them: any odd numbers.
    let multipliers = (1..=u64::from(NGRAM)).map(|n| (n * 0x9E37_79B9) | 1);
    keys.set("ple.layer_multipliers", Value::U64s(multipliers.collect()));
    let heads = 0..u64::from(ALL_NGRAM_HEADS);
    keys.set("ple.head_offsets", Value::U64s(heads.clone().map(|h| h * rows).collect()));
    // Each hashes to one row less than the head before: else all would hash alike.
    let sizes = heads.map(|h| rows.saturating_sub(h).max(1));
    keys.set("ple.head_vocab_sizes", Value::U64s(sizes.collect()));
}

/// A norm of each stream. Gates near one half follow, hence the weight.
fn stream_norm(b: &mut Builder<'_>, name: &str, weight: f32) {
    let wide = STREAMS * u64::from(b.shape.dims.hidden);
    b.vector(format!("{name}.weight"), [wide], weight, 0.02 * weight);
}

/// What makes one stream of all.
fn streams_gate(b: &mut Builder<'_>, name: &str) {
    let d = &b.shape.dims;
    let (wide, rank) = (STREAMS * u64::from(d.hidden), u64::from(d.extra("stream_rank")));
    stream_norm(b, &format!("{name}_norm"), 2.0);
    for (part, dims) in [("down", [wide, rank]), ("up", [rank, wide])] {
        let fill = Fill::Random { std: 1.0 / (dims[0] as f32).sqrt() };
        b.push(format!("{name}_{part}.weight"), dims, WeightType::F16, fill);
    }
}

/// As [`streams_gate`], and how much of a part's output each stream gets.
fn connection(b: &mut Builder<'_>, layer: u32, part: &str) {
    streams_gate(b, &format!("blk.{layer}.hc_{part}"));
    let wide = STREAMS * u64::from(b.shape.dims.hidden);
    b.mixer(layer, &format!("hc_{part}_inject.weight"), [wide, STREAMS], 1.0);
}

fn layer(b: &mut Builder<'_>, layer: u32) {
    if layer == NGRAM_LAYER {
        ngram_embedding(b, layer);
    }
    connection(b, layer, "attn");
    if is_linear(b.shape, layer) {
        linear_attention(b, layer);
    } else {
        gated_attention(b, layer);
        indexer(b, layer);
    }
    connection(b, layer, "ffn");
    b.feed_forward(layer);
}

fn ngram_embedding(b: &mut Builder<'_>, layer: u32) {
    let hidden = u64::from(b.shape.dims.hidden);
    b.mixer(layer, "ple_key.weight", [hidden, STREAMS * hidden], 1.0);
    b.mixer(layer, "ple_value.weight", [hidden, hidden], 0.1);
    for part in ["key", "query", "conv"] {
        stream_norm(b, &format!("blk.{layer}.ple_norm_{part}"), 1.0);
    }
    let dims = [u64::from(NGRAM_CONV), STREAMS * hidden];
    b.vector(format!("blk.{layer}.ple_conv1d.weight"), dims, 0.0, 0.05);
}

/// Random scores of blocks of earlier tokens.
fn indexer(b: &mut Builder<'_>, layer: u32) {
    let d = &b.shape.dims;
    let (hidden, dim) = (u64::from(d.hidden), d.extra("indexer_head_dim"));
    let heads = u64::from(d.extra("indexer_heads"));
    b.mixer(layer, "indexer.q_proj.weight", [hidden, heads * u64::from(dim)], 1.0);
    b.mixer(layer, "indexer.k_proj.weight", [hidden, u64::from(dim)], 1.0);
    b.layer_norm(layer, "indexer.q_norm", dim);
    b.layer_norm(layer, "indexer.k_norm", dim);
}
