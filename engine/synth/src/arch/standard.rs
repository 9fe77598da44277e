//! Decoders of the usual kind: their specs say all that is special about them.

use super::attention::is_windowed;
use super::keys::Keys;
use super::spec::{Gate, Has, QkNorm, Shared, Spec};
use crate::Shape;

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
        shared_ffn(shape, keys);
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

pub(super) const LLAMA: Spec = Spec { neighbour_pairs: true, ..Spec::STANDARD };

pub(super) const MINICPM: Spec = Spec {
    neighbour_pairs: true,
    keys: |_, keys| {
        keys.set("logit_scale", 1.0);
        keys.set("residual_scale", 1.0);
        keys.set("embedding_scale", 1.0);
    },
    ..Spec::STANDARD
};

pub(super) const QWEN3VLMOE: Spec = Spec {
    qk_norm: QkNorm::PerHead,
    keys: |shape, keys| {
        // Thirds of the rotating pairs for time, height and width.
        let pairs = shape.dims.head_dim / 2;
        let third = pairs / 3;
        keys.set("rope.dimension_sections", vec![pairs - 2 * third, third, third, 0]);
        keys.set("n_deepstack_layers", 0u32);
    },
    ..Spec::STANDARD
};

pub(super) const MINIMAX_M2: Spec = Spec {
    qk_norm: QkNorm::Whole,
    choice_bias: 0.1,
    keys: |shape, keys| {
        keys.set("feed_forward_length", shape.dims.expert_ffn);
        keys.set("expert_gating_func", gating::SIGMOID);
    },
    ..Spec::STANDARD
};

pub(super) const DOTS1: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Maybe,
    qk_norm: QkNorm::PerHead,
    choice_bias: 0.1,
    shared: Shared::Counted,
    keys: |_, keys| {
        keys.set("expert_gating_func", gating::SIGMOID);
        keys.set("expert_weights_norm", true);
        keys.set("expert_weights_scale", 2.5);
    },
    ..Spec::STANDARD
};

pub(super) const HUNYUAN_MOE: Spec = Spec {
    dense_ffn: Has::Always,
    qk_norm: QkNorm::PerHead,
    shared: Shared::DenseFfn,
    keys: |shape, keys| {
        // Routed experts have the dense width here.
        keys.set("feed_forward_length", shape.dims.expert_ffn);
        keys.set("expert_shared_feed_forward_length", shape.dims.dense_ffn);
    },
    ..Spec::STANDARD
};

pub(super) const BAILINGMOE: Spec = Spec {
    neighbour_pairs: true,
    shared: Shared::Counted,
    keys: |_, keys| {
        keys.set("expert_weights_norm", true);
        keys.set("expert_weights_scale", 1.0);
    },
    ..Spec::STANDARD
};

pub(super) const DEEPSEEK: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Maybe,
    heads_fill_hidden: true,
    neighbour_pairs: true,
    shared: Shared::Counted,
    normalised: false,
    ..Spec::STANDARD
};

pub(super) const DEEPSEEK2_OCR: Spec =
    Spec { neighbour_pairs: false, fused_gate_up: true, ..DEEPSEEK };

pub(super) const ARCTIC: Spec = Spec {
    heads_fill_hidden: true,
    neighbour_pairs: true,
    layer: |b, layer| {
        b.standard_layer(layer);
        // Experts look at the layer's input, the dense part at attention's output; both are added.
        let hidden = b.shape.dims.hidden;
        b.layer_norm(layer, "ffn_norm_exps", hidden);
        b.dense_part(layer, "", hidden);
    },
    ..Spec::STANDARD
};

pub(super) const SMALLTHINKER: Spec =
    Spec { keys: |_, keys| keys.set("expert_gating_func", gating::SIGMOID), ..Spec::STANDARD };

pub(super) const EXAONE_MOE: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Maybe,
    window: Has::Always,
    qk_norm: QkNorm::PerHead,
    choice_bias: 0.1,
    shared: Shared::Counted,
    keys: |shape, keys| {
        keys.set("attention.sliding_window_pattern", period(shape));
        shared_ffn(shape, keys);
        keys.set("expert_gating_func", gating::SIGMOID);
        keys.set("expert_weights_norm", true);
        keys.set("expert_weights_scale", 2.5);
    },
    ..Spec::STANDARD
};

pub(super) const COHERE2MOE: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Always,
    prediction_layers: Has::Maybe,
    window: Has::Always,
    neighbour_pairs: true,
    ffn_norm: "",
    fused_gate_up: true,
    shared: Shared::Counted,
    keys: |shape, keys| {
        keys.set("attention.sliding_window_pattern", period(shape));
        keys.set("logit_scale", 1.0);
        keys.set("expert_gating_func", gating::SIGMOID);
        keys.set("expert_weights_norm", true);
    },
    ..Spec::STANDARD
};

pub(super) const MIMO2: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Maybe,
    window: Has::Always,
    choice_bias: 0.1,
    keys: |shape, keys| {
        window_pattern(shape, keys);
    },
    ..Spec::STANDARD
};

pub(super) const DBRX: Spec = Spec {
    heads_fill_hidden: true,
    fused_qkv: true,
    ffn_norm: "attn_output_norm",
    keys: |_, keys| {
        keys.set("attention.layer_norm_epsilon", 1e-5);
        keys.set("attention.clamp_kqv", 8.0);
    },
    ..Spec::STANDARD
};

pub(super) const STEP35: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Maybe,
    prediction_layers: Has::Maybe,
    window: Has::Always,
    qk_norm: QkNorm::PerHead,
    attention_gate: Gate::PerHead,
    choice_bias: 0.1,
    shared: Shared::Counted,
    keys: |shape, keys| {
        window_pattern(shape, keys);
        shared_ffn(shape, keys);
        keys.set("expert_gating_func", gating::SIGMOID);
        keys.set("expert_weights_norm", true);
        keys.set("expert_weights_scale", 3.0);
    },
    ..Spec::STANDARD
};

pub(super) const HY_V3: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Maybe,
    prediction_layers: Has::Maybe,
    qk_norm: QkNorm::PerHead,
    choice_bias: 0.1,
    choice_bias_name: "exp_probs_b",
    shared: Shared::Counted,
    keys: |shape, keys| {
        shared_ffn(shape, keys);
        keys.set("expert_gating_func", gating::SIGMOID);
        keys.set("expert_weights_norm", true);
        keys.set("expert_weights_scale", 2.5);
    },
    ..Spec::STANDARD
};

pub(super) const LAGUNA: Spec = Spec {
    dense_ffn: Has::Always,
    leading_dense: Has::Always,
    qk_norm: QkNorm::PerHead,
    attention_gate: Gate::PerHead,
    choice_bias: 0.1,
    shared: Shared::Counted,
    keys: |shape, keys| {
        shared_ffn(shape, keys);
        keys.set("expert_gating_func", gating::SIGMOID);
        keys.set("expert_weights_norm", true);
    },
    ..Spec::STANDARD
};

pub(super) const MELLUM: Spec = Spec { qk_norm: QkNorm::PerHead, ..Spec::STANDARD };

pub(super) const MAPLE: Spec = Spec {
    window: Has::Always,
    qk_norm: QkNorm::PerHead,
    keys: |shape, keys| {
        window_pattern(shape, keys);
        keys.set("swiglu_clamp_exp", 7.0);
    },
    ..Spec::STANDARD
};

/// The last of so many layers sees everything.
pub(super) fn period(shape: &Shape) -> u32 {
    shape.dims.window.as_ref().map_or(1, |w| w.period)
}

/// Which layers see their window only.
pub(super) fn window_pattern(shape: &Shape, keys: &mut Keys) {
    let layers = 0..shape.dims.blocks();
    let windowed: Vec<bool> = layers.map(|l| is_windowed(shape, l)).collect();
    keys.set("attention.sliding_window_pattern", windowed);
    keys.set("rope.freq_base_swa", shape.dims.rope_base);
}

/// The width of all shared experts together.
fn shared_ffn(shape: &Shape, keys: &mut Keys) {
    let width = shape.dims.shared_experts * shape.dims.expert_ffn;
    keys.set("expert_shared_feed_forward_length", width);
}
