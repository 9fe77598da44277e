//! Kimi K3: linear and gated latent attention as in Kimi Linear, experts in a narrower space than the
//! residual, and parts that take a mix of earlier residuals.

use super::Builder;
use super::deepseek2::{latent_attention, latent_keys};
use super::kda::{CONV_TOKENS, is_linear, linear_attention, linear_head_counts};
use super::spec::{Has, Shared, Spec};
use super::standard::gating;
use crate::WeightType;
use crate::fill::Fill;

/// Layers after which the residual begins anew.
const RESIDUAL_BLOCK: u32 = 2;

pub(super) const SPEC: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Maybe,
    // As bailingmoe3, and the width of the experts' input and output.
    extra: &[
        "q_lora_rank",
        "kv_lora_rank",
        "rope_dim",
        "attention_every",
        "linear_head_dim",
        "expert_latent",
    ],
    choice_bias: 0.1,
    shared: Shared::Counted,
    keys: |shape, keys| {
        latent_keys(shape, keys);
        linear_head_counts(shape, keys);
        keys.set("ssm.conv_kernel", CONV_TOKENS);
        keys.set("kda.head_dim", shape.dims.extra("linear_head_dim"));
        keys.set("kda.gate_lower_bound", -5.0);
        keys.set("attn_res.block_size", RESIDUAL_BLOCK);
        keys.set("activation.situ_beta", 4.0);
        keys.set("activation.situ_linear_beta", 8.0);
        keys.set("expert_latent_length", shape.dims.extra("expert_latent"));
        keys.set("expert_gating_func", gating::SIGMOID);
        keys.set("expert_weights_norm", true);
        keys.set("expert_weights_scale", 2.5);
    },
    layer,
    after_layers: |b| residual_score(b, "output_res_score"),
    ..Spec::STANDARD
};

/// What tells how much of each earlier residual a part takes: scores between about -1 and 1.
fn residual_score(b: &mut Builder<'_>, name: &str) {
    let hidden = b.shape.dims.hidden;
    let fill = Fill::Around { mean: 0.0, std: 1.0 / (hidden as f32).sqrt() };
    b.push(format!("{name}.weight"), [u64::from(hidden)], WeightType::F32, fill);
}

fn layer(b: &mut Builder<'_>, layer: u32) {
    let d = &b.shape.dims;
    let (hidden, inner) = (d.hidden, u64::from(d.heads * d.head_dim));
    residual_score(b, &format!("blk.{layer}.attn_res_score"));
    b.layer_norm(layer, "attn_norm", hidden);
    if is_linear(b.shape, layer) {
        linear_attention(b, layer);
    } else {
        latent_attention(b, layer);
        b.mixer(layer, "attn_gate.weight", [u64::from(hidden), inner], 1.0);
    }
    residual_score(b, &format!("blk.{layer}.ffn_res_score"));
    b.layer_norm(layer, "ffn_norm", hidden);
    b.feed_forward(layer);
    if !b.shape.dims.is_dense(layer) {
        latent(b, layer);
    }
}

/// The way into the experts' space and back; the norm brings what comes back to what experts add.
fn latent(b: &mut Builder<'_>, layer: u32) {
    let d = &b.shape.dims;
    let (hidden, latent) = (u64::from(d.hidden), u64::from(d.extra("expert_latent")));
    b.mixer(layer, "ffn_routed_down.weight", [hidden, latent], 1.0);
    let weight = b.expert_rms();
    b.vector(format!("blk.{layer}.ffn_routed_norm.weight"), [latent], weight, 0.02 * weight);
    b.mixer(layer, "ffn_routed_up.weight", [latent, hidden], 1.0);
}
