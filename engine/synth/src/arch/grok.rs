//! Grok: a dense part beside the experts, norms behind attention and experts, capped scores.

use super::Builder;
use super::spec::{Has, Spec};

pub(super) const SPEC: Spec = Spec {
    dense_ffn: Has::Always,
    heads_fill_hidden: true,
    keys: |shape, keys| {
        // What scores are multiplied with before they are capped.
        keys.set("attention.output_scale", 1.0 / (shape.dims.head_dim as f32).sqrt());
        keys.set("attn_logit_softcapping", 30.0);
        keys.set("embedding_scale", 1.0);
        keys.set("logit_scale", 1.0);
    },
    layer,
    ..Spec::STANDARD
};

fn layer(b: &mut Builder<'_>, layer: u32) {
    b.standard_layer(layer);
    b.dense_part(layer, "", b.shape.dims.dense_ffn);
    b.norms_behind(layer, "attn_output_norm", "layer_output_norm");
}
