//! Hunyuan 4: four residual streams (hyper-connections), gated latent attention with sinks to the tokens that
//! an indexer picks, which every other layer shares with the one before.

use super::Builder;
use super::deepseek2::{self, DEEPSEEK32, indexer, latent_attention};
use super::deepseek4::{STREAMS, connection};
use super::spec::{Has, Spec};

pub(super) const SPEC: Spec = Spec {
    expert_groups: Has::Never,
    prediction_layers: Has::Never,
    keys: |shape, keys| {
        (DEEPSEEK32.keys)(shape, keys);
        keys.set_per_layer("attention.indexer.types", shape, |layer| u32::from(has_indexer(layer)));
        keys.set("hyper_connection.count", STREAMS as u32);
        keys.set("hyper_connection.epsilon", 1e-6);
        keys.set("hyper_connection.magnitude", 2.0);
        keys.set("swiglu_clamp_exp", 10.0);
    },
    layer,
    after_layers: |b| connection(b, "output_hc", STREAMS, 1),
    extra: DEEPSEEK32.extra,
    ..deepseek2::SPEC
};

fn has_indexer(layer: u32) -> bool {
    layer.is_multiple_of(2)
}

fn layer(b: &mut Builder<'_>, layer: u32) {
    let d = &b.shape.dims;
    let (hidden, heads) = (d.hidden, u64::from(d.heads));
    let inner = u64::from(d.heads * d.head_dim);
    connection(b, &format!("blk.{layer}.hc_attn"), 2 * STREAMS, 2);
    b.layer_norm(layer, "attn_norm", hidden);
    latent_attention(b, layer);
    b.mixer(layer, "attn_gate.weight", [u64::from(hidden), inner], 1.0);
    b.vector(format!("blk.{layer}.attn_sinks.weight"), [heads], 0.0, 0.5);
    if has_indexer(layer) {
        indexer(b, layer);
    }
    connection(b, &format!("blk.{layer}.hc_ffn"), 2 * STREAMS, 2);
    b.layer_norm(layer, "ffn_norm", hidden);
    b.feed_forward(layer);
}
