//! Kimi Linear and Ling 3.0: Kimi delta attention (linear) in most layers, latent attention in the last of
//! every few. Ling's has gates of full rank, and its latent attention has one, too. Kimi K3 and GLM-5.3-Flash
//! have the linear part in common with them.

use super::Builder;
use super::deepseek2::{latent_attention, latent_keys};
use super::keys::Keys;
use super::spec::{Has, Shared, Spec};
use super::standard::gating;
use crate::{Arch, Shape};

/// Tokens that the convolutions in front of linear attention see.
pub(super) const CONV_TOKENS: u32 = 4;

pub(super) const BAILINGMOE3: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Always,
    expert_groups: Has::Maybe,
    prediction_layers: Has::Maybe,
    // As deepseek2, and layers up to and with one of latent attention, and the width of a linear head.
    extra: &["q_lora_rank", "kv_lora_rank", "rope_dim", "attention_every", "linear_head_dim"],
    choice_bias: 0.1,
    prediction_norm: "layer_output_norm",
    shared: Shared::Counted,
    keys: |shape, keys| {
        latent_keys(shape, keys);
        linear_head_counts(shape, keys);
        keys.set("ssm.conv_kernel", CONV_TOKENS);
        keys.set("kda.head_dim", shape.dims.extra("linear_head_dim"));
        keys.set("kda.safe_gate", true);
        keys.set("kda.gate_lower_bound", -5.0);
        keys.set("expert_gating_func", gating::SIGMOID);
        keys.set("expert_weights_norm", true);
        keys.set("expert_weights_scale", 1.5);
    },
    layer,
    ..Spec::STANDARD
};

/// Prediction layers have latent attention.
pub(super) fn is_linear(shape: &Shape, layer: u32) -> bool {
    layer < shape.dims.layers
        && !(layer + 1).is_multiple_of(shape.dims.extra("attention_every").max(1))
}

pub(super) const KIMI_LINEAR: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Maybe,
    extra: &["kv_lora_rank", "rope_dim", "attention_every", "linear_head_dim"],
    choice_bias: 0.1,
    shared: Shared::Counted,
    keys: |shape, keys| {
        latent_keys(shape, keys);
        linear_head_counts(shape, keys);
        keys.set("ssm.conv_kernel", CONV_TOKENS);
        keys.set("kda.head_dim", shape.dims.extra("linear_head_dim"));
        keys.set("expert_gating_func", gating::SIGMOID);
        keys.set("expert_weights_scale", 2.5);
    },
    layer,
    ..Spec::STANDARD
};

/// Key/value heads, of which linear layers have none: it is how llama.cpp knows them.
pub(super) fn linear_head_counts(shape: &Shape, keys: &mut Keys) {
    keys.set_per_layer("attention.head_count_kv", shape, |l| u32::from(!is_linear(shape, l)));
}

fn layer(b: &mut Builder<'_>, layer: u32) {
    let d = &b.shape.dims;
    let (hidden, heads) = (d.hidden, u64::from(d.heads));
    b.layer_norm(layer, "attn_norm", hidden);
    if is_linear(b.shape, layer) {
        linear_attention(b, layer);
    } else {
        latent_attention(b, layer);
        if b.shape.arch == Arch::BailingMoe3 {
            b.mixer(layer, "attn_gate.weight", [u64::from(hidden), heads], 1.0);
        }
    }
    b.layer_norm(layer, "ffn_norm", hidden);
    b.feed_forward(layer);
}

/// Kimi delta attention. Projections of decay and gate have full rank in Ling's, that of the gate in Kimi K3's,
/// too; the others go through a head's width.
pub(super) fn linear_attention(b: &mut Builder<'_>, layer: u32) {
    let d = &b.shape.dims;
    let (hidden, head_dim) = (u64::from(d.hidden), d.extra("linear_head_dim"));
    let heads = u64::from(d.heads);
    let inner = heads * u64::from(head_dim);
    let name = |part: &str| format!("blk.{layer}.{part}");
    for part in ["q", "k", "v"] {
        let dims = [u64::from(CONV_TOKENS), 1, inner];
        b.vector(name(&format!("ssm_conv1d_{part}.weight")), dims, 0.0, 0.5);
        b.mixer(layer, &format!("attn_{part}.weight"), [hidden, inner], 1.0);
    }
    let arch = b.shape.arch;
    for part in ["ssm_f", "ssm_g"] {
        if arch == Arch::BailingMoe3 {
            b.mixer(layer, &format!("{part}_a.weight"), [hidden, inner], 1.0);
        } else if arch == Arch::KimiK3 && part == "ssm_g" {
            b.mixer(layer, "ssm_g.weight", [hidden, inner], 1.0);
        } else {
            let narrow = u64::from(head_dim);
            b.mixer(layer, &format!("{part}_a.weight"), [hidden, narrow], 1.0);
            b.mixer(layer, &format!("{part}_b.weight"), [narrow, inner], 1.0);
        }
    }
    b.mixer(layer, "ssm_beta.weight", [hidden, heads], 1.0);
    // What is left of the state after a token: exp(-5 times the sigmoid of a times about dt) in Ling's and, with
    // the other sign of a, in Kimi K3's; in the others' exp(a times the softplus of about dt).
    let a = if arch == Arch::BailingMoe3 { 1.0 } else { -1.0 };
    let dims = match arch {
        Arch::BailingMoe3 | Arch::KimiLinear => vec![1, heads],
        _ => vec![heads],
    };
    b.vector(name("ssm_a"), dims, a, 0.1);
    b.vector(name("ssm_dt.bias"), [inner], -3.0, 0.5);
    b.layer_norm(layer, "ssm_norm", head_dim);
    b.mixer(layer, "attn_output.weight", [inner, hidden], b.mixer_gain());
}
