//! MiniMax-M3: attention to the blocks of tokens that an indexer picks. MiniMax-Text-01: linear attention in
//! most layers, and residuals that are taken behind the norms.

use super::Builder;
use super::spec::{Has, QkNorm, Shared, Spec};
use super::standard::gating;

pub(super) const M3: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Maybe,
    // Width of the indexer's heads (one per key/value head), tokens in a block, blocks that it picks.
    extra: &["indexer_head_dim", "indexer_block", "indexer_top_k"],
    qk_norm: QkNorm::PerHead,
    choice_bias: 0.1,
    shared: Shared::Counted,
    // Its activation multiplies with up + 1.
    activation_rms: 0.9,
    keys: |shape, keys| {
        let d = &shape.dims;
        keys.set("attention.indexer.head_count", d.kv_heads);
        keys.set("attention.indexer.key_length", d.extra("indexer_head_dim"));
        keys.set("attention.indexer.top_k", d.extra("indexer_top_k"));
        keys.set("attention.indexer.block_size", d.extra("indexer_block"));
        keys.set("attention.indexer.local_blocks", 1u32);
        keys.set("expert_gating_func", gating::SIGMOID);
        keys.set("expert_weights_norm", true);
        keys.set("expert_weights_scale", 2.0);
    },
    layer,
    ..Spec::STANDARD
};

fn layer(b: &mut Builder<'_>, layer: u32) {
    b.standard_layer(layer);
    let d = &b.shape.dims;
    if d.is_dense(layer) {
        return;
    }
    let (hidden, heads, dim) =
        (u64::from(d.hidden), u64::from(d.kv_heads), d.extra("indexer_head_dim"));
    b.mixer(layer, "indexer.q_proj.weight", [hidden, heads * u64::from(dim)], 1.0);
    b.mixer(layer, "indexer.k_proj.weight", [hidden, u64::from(dim)], 1.0);
    b.layer_norm(layer, "indexer.q_norm", dim);
    b.layer_norm(layer, "indexer.k_norm", dim);
}

pub(super) const M01: Spec = Spec {
    // Layers up to and with one of attention.
    extra: &["attention_every"],
    keys: |shape, keys| {
        keys.set("full_attention_interval", shape.dims.extra("attention_every"));
        keys.set("residual_scale", 1.0);
    },
    layer: |b, layer| {
        let d = &b.shape.dims;
        let (hidden, every) = (d.hidden, d.extra("attention_every").max(1));
        b.layer_norm(layer, "attn_norm", hidden);
        if (layer + 1).is_multiple_of(every) {
            b.attention(layer);
        } else {
            lightning_attention(b, layer);
        }
        b.layer_norm(layer, "ffn_norm", hidden);
        b.feed_forward(layer);
    },
    ..Spec::STANDARD
};

/// Linear attention whose decay is not learned.
fn lightning_attention(b: &mut Builder<'_>, layer: u32) {
    let d = &b.shape.dims;
    let (hidden, inner) = (u64::from(d.hidden), d.heads * d.head_dim);
    let wide = u64::from(inner);
    b.mixer(layer, "attn_qkv.weight", [hidden, 3 * wide], 1.0);
    b.mixer(layer, "attn_gate.weight", [hidden, wide], 1.0);
    b.layer_norm(layer, "attn_norm_2", inner);
    b.mixer(layer, "attn_output.weight", [wide, hidden], b.mixer_gain());
}
