//! Gemma 4: a dense part beside the experts, a scale per expert, windows with wider global heads.

use super::Builder;
use super::attention::{heads, is_windowed};
use super::spec::{Has, QkNorm, Spec};
use crate::WeightType;
use crate::fill::Fill;
use crate::residual::NEXT_COPIED;

/// Of the pairs of a global layer's heads one in so many rotates.
const GLOBAL_ROTATION: usize = 4;

pub(super) const SPEC: Spec = Spec {
    dense_ffn: Has::Always,
    window: Has::Always,
    tied_head: true,
    qk_norm: QkNorm::PerHead,
    global_heads: true,
    global_rotation: GLOBAL_ROTATION,
    score_scale: 1.0,
    scaled_embedding: true,
    fused_gate_up: true,
    activation_rms: 0.65,
    keys: |shape, keys| {
        let d = &shape.dims;
        keys.set_per_layer("attention.head_count_kv", shape, |l| heads(shape, Some(l)).kv_heads);
        let windowed: Vec<bool> = (0..d.layers).map(|l| is_windowed(shape, l)).collect();
        keys.set("attention.sliding_window_pattern", windowed);
        keys.set("attention.shared_kv_layers", 0);
        keys.set("attention.key_length_swa", d.head_dim);
        keys.set("attention.value_length_swa", d.head_dim);
        keys.set("rope.dimension_count_swa", d.head_dim);
        let rope_base = d.window.as_ref().and_then(|w| w.rope_base);
        keys.set("rope.freq_base_swa", rope_base.unwrap_or(d.rope_base));
        keys.set("embedding_length_per_layer_input", 0);
        keys.set("final_logit_softcapping", 30.0);
    },
    before_layers: rope_freqs,
    layer,
    ..Spec::STANDARD
};

/// Pairs that stand still get a frequency divisor so large that they do.
fn rope_freqs(b: &mut Builder<'_>) {
    let layers = b.shape.dims.layers;
    if (0..layers).any(|l| !is_windowed(b.shape, l)) {
        let pairs = heads(b.shape, None).head_dim / 2;
        let fill = Fill::Step { split: pairs as usize / GLOBAL_ROTATION, first: 1.0, rest: 1e30 };
        b.push("rope_freqs.weight", [u64::from(pairs)], WeightType::F32, fill);
    }
}

fn layer(b: &mut Builder<'_>, layer: u32) {
    let d = &b.shape.dims;
    let (hidden, experts, dense_ffn) = (d.hidden, u64::from(d.experts), d.dense_ffn);
    b.layer_norm(layer, "attn_norm", hidden);
    b.attention(layer);
    norms(b, layer);
    b.experts(layer);
    b.dense_part(layer, "", dense_ffn);
    // The router's input is divided by sqrt(hidden) in the graph.
    let scale = (hidden as f32).sqrt();
    b.vector(format!("blk.{layer}.ffn_gate_inp.scale"), [u64::from(hidden)], scale, 0.02 * scale);
    b.vector(format!("blk.{layer}.ffn_down_exps.scale"), [experts], 1.0, 0.1);
}

fn norms(b: &mut Builder<'_>, layer: u32) {
    let (hidden, r) = (b.shape.dims.hidden, &b.residual);
    // The norm brings the root mean square of what attention writes, over all dimensions, to its weight.
    let topic = (b.attention_gain(layer) * r.topic_rms).powi(2) * r.topic.len() as f32;
    let copied = if layer == 0 { NEXT_COPIED.powi(2) * r.next.len() as f32 } else { 0.0 };
    let attention = ((topic + copied) / hidden as f32).sqrt();
    let added = b.expert_rms();
    let name = |part: &str| format!("blk.{layer}.{part}.weight");
    let len = [u64::from(hidden)];
    b.vector(name("post_attention_norm"), len, attention, 0.02 * attention);
    b.vector(name("post_ffw_norm"), len, added, 0.02 * added);
    for part in ["ffn_norm", "pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"] {
        b.norm(name(part), hidden);
    }
    b.vector(name("layer_output_scale"), [1], 1.0, 0.0);
}
