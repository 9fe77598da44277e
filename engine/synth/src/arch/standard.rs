//! Decoders of the usual kind: their specs say all that is special about them.

use super::spec::{Has, QkNorm, Shared, Spec};

/// `expert_gating_func`: how router logits become weights.
pub(super) mod gating {
    /// A sigmoid of each.
    pub(in crate::arch) const SIGMOID: u32 = 2;
    /// The square root of each one's softplus.
    pub(in crate::arch) const SQRT_SOFTPLUS: u32 = 4;
}

pub(super) const QWEN3MOE: Spec =
    Spec { tied_head: true, qk_norm: QkNorm::PerHead, ..Spec::STANDARD };

pub(super) const QWEN2MOE: Spec = Spec {
    dense_ffn: Has::Always,
    heads_fill_hidden: true,
    qkv_bias: true,
    shared: Shared::DenseFfn,
    shared_gate: true,
    normalised: false,
    keys: |shape, keys| keys.set("expert_shared_feed_forward_length", shape.dims.dense_ffn),
    ..Spec::STANDARD
};

pub(super) const OLMOE: Spec =
    Spec { heads_fill_hidden: true, qk_norm: QkNorm::Whole, normalised: false, ..Spec::STANDARD };

pub(super) const GRANITEMOE: Spec = Spec {
    dense_ffn: Has::Always,
    shared: Shared::DenseFfn,
    neighbour_pairs: true,
    keys: |shape, keys| {
        // Routed experts have the dense width here.
        keys.set("feed_forward_length", shape.dims.expert_ffn);
        keys.set("expert_shared_feed_forward_length", shape.dims.dense_ffn);
        keys.set("logit_scale", 1.0);
        keys.set("residual_scale", 1.0);
        keys.set("embedding_scale", 1.0);
    },
    ..Spec::STANDARD
};

pub(super) const ERNIE4_5_MOE: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Maybe,
    neighbour_pairs: true,
    choice_bias: 0.02,
    shared: Shared::Counted,
    keys: |shape, keys| {
        let d = &shape.dims;
        keys.set("expert_shared_feed_forward_length", d.shared_experts * d.expert_ffn);
        keys.set("interleave_moe_layer_step", 1);
    },
    ..Spec::STANDARD
};

pub(super) const GLM4MOE: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Maybe,
    prediction_layers: Has::Maybe,
    qk_norm: QkNorm::PerHead,
    qkv_bias: true,
    ffn_norm: "post_attention_norm",
    choice_bias: 0.1,
    shared: Shared::Counted,
    keys: |_, keys| {
        keys.set("expert_gating_func", gating::SIGMOID);
        keys.set("expert_weights_norm", true);
        keys.set("expert_weights_scale", 1.5);
    },
    ..Spec::STANDARD
};

pub(super) const BAILINGMOE2: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Maybe,
    expert_groups: Has::Maybe,
    prediction_layers: Has::Maybe,
    heads_fill_hidden: true,
    qk_norm: QkNorm::PerHead,
    fused_qkv: true,
    prediction_norm: "layer_output_norm",
    choice_bias: 0.1,
    shared: Shared::Counted,
    keys: |_, keys| {
        keys.set("expert_gating_func", gating::SIGMOID);
        keys.set("expert_weights_norm", true);
        keys.set("expert_weights_scale", 1.5);
    },
    ..Spec::STANDARD
};

pub(super) const LLAMA4: Spec = Spec {
    dense_ffn: Has::Always,
    moe_step: Has::Maybe,
    neighbour_pairs: true,
    shared: Shared::Counted,
    keys: |shape, keys| keys.set("interleave_moe_layer_step", shape.dims.moe_step.max(1)),
    ..Spec::STANDARD
};
