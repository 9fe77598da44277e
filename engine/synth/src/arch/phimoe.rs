//! Phi-3.5 MoE: biases on norms, attention output and head.

use super::Builder;
use super::spec::Spec;

pub(super) const SPEC: Spec = Spec {
    heads_fill_hidden: true,
    qkv_bias: true,
    layer,
    after_layers: |b| {
        let vocab = u64::from(b.shape.tokenizer.vocab);
        b.vector("output.bias".to_owned(), [vocab], 0.0, 0.02);
        b.vector("output_norm.bias".to_owned(), [u64::from(b.shape.dims.hidden)], 0.0, 0.01);
    },
    ..Spec::STANDARD
};

fn layer(b: &mut Builder<'_>, layer: u32) {
    b.standard_layer(layer);
    let hidden = u64::from(b.shape.dims.hidden);
    for part in ["attn_norm", "attn_output", "ffn_norm"] {
        b.vector(format!("blk.{layer}.{part}.bias"), [hidden], 0.0, 0.01);
    }
}
