//! What the writer has to know of an architecture.

use super::Builder;
use super::keys::Keys;
use crate::Shape;

/// Whether an architecture has an optional part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Has {
    Never,
    Maybe,
    Always,
}

/// RMS norms of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QkNorm {
    None,
    /// Over each head, all heads with the same weights.
    PerHead,
    /// Over all heads together.
    Whole,
}

/// A gate on attention's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    None,
    PerHead,
    PerElement,
}

/// The experts that every token uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shared {
    None,
    /// `dims.dense_ffn` wide.
    DenseFfn,
    /// `dims.shared_experts` times as wide as a routed expert.
    Counted,
}

/// An architecture. Most differ from [`Spec::STANDARD`] in a few fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    /// Whether `dims.dense_ffn` is needed: the width of dense layers or parts.
    pub dense_ffn: Has,
    /// `dims.leading_dense`.
    pub leading_dense: Has,
    /// `dims.moe_step`.
    pub moe_step: Has,
    /// `dims.expert_groups` and `dims.expert_groups_used`.
    pub expert_groups: Has,
    /// `dims.prediction_layers`.
    pub prediction_layers: Has,
    /// `dims.window`.
    pub window: Has,
    /// The names in `dims.extra`, all of which are needed.
    pub extra: &'static [&'static str],
    /// The heads together are as wide as the residual stream.
    pub heads_fill_hidden: bool,
    /// The head may be tied to the embedding.
    pub tied_head: bool,

    pub qk_norm: QkNorm,
    /// Query, key and value are one tensor.
    pub fused_qkv: bool,
    /// Query, key and value have biases.
    pub qkv_bias: bool,
    pub attention_gate: Gate,
    /// Rotary pairs are neighbours; else they are half a head apart.
    pub neighbour_pairs: bool,
    /// Global layers, in a model with windows, may have heads of their own.
    pub global_heads: bool,
    /// Of the pairs of a global layer, in a model with windows, one in so many rotates.
    pub global_rotation: usize,
    /// What attention scores are multiplied with; 0 = 1 / sqrt(head_dim).
    pub score_scale: f32,
    /// The graph multiplies embeddings with sqrt(hidden).
    pub scaled_embedding: bool,

    /// The norm in front of the feed-forward part; empty = it takes attention's input.
    pub ffn_norm: &'static str,
    pub fused_gate_up: bool,
    /// Experts and dense parts have a gate beside up and down.
    pub gated: bool,
    /// Deviation of the bias that steers the choice of experts; 0 = there is none.
    pub choice_bias: f32,
    pub choice_bias_name: &'static str,
    pub shared: Shared,
    /// The shared expert has a gate of its own.
    pub shared_gate: bool,
    /// Expert weights are normalised, or else in the order of 1 / experts each.
    pub normalised: bool,
    /// Root mean square of `activation(gate) * up` for unit normal inputs.
    pub activation_rms: f32,
    /// The norm in front of the output head; empty = it is among `after_layers`.
    pub output_norm: &'static str,
    /// The same of a prediction layer.
    pub prediction_norm: &'static str,

    /// Metadata beyond the common.
    pub keys: fn(&Shape, &mut Keys),
    /// Tensors in front of the first layer's.
    pub before_layers: fn(&mut Builder<'_>),
    /// A layer's tensors.
    pub layer: fn(&mut Builder<'_>, u32),
    /// What a layer for multi-token prediction has beside a decoder layer's tensors.
    pub prediction_tensors: fn(&mut Builder<'_>, u32),
    /// Tensors behind the last layer's.
    pub after_layers: fn(&mut Builder<'_>),
}

impl Spec {
    /// A decoder with attention and split gate, up and down experts, nothing else.
    pub(crate) const STANDARD: Self = Self {
        dense_ffn: Has::Never,
        leading_dense: Has::Never,
        moe_step: Has::Never,
        expert_groups: Has::Never,
        prediction_layers: Has::Never,
        window: Has::Never,
        extra: &[],
        heads_fill_hidden: false,
        tied_head: false,
        qk_norm: QkNorm::None,
        fused_qkv: false,
        qkv_bias: false,
        attention_gate: Gate::None,
        neighbour_pairs: false,
        global_heads: false,
        global_rotation: 1,
        score_scale: 0.0,
        scaled_embedding: false,
        ffn_norm: "ffn_norm",
        fused_gate_up: false,
        gated: true,
        choice_bias: 0.0,
        choice_bias_name: "exp_probs_b.bias",
        shared: Shared::None,
        shared_gate: false,
        normalised: true,
        activation_rms: 0.6,
        output_norm: "output_norm",
        prediction_norm: "nextn.shared_head_norm",
        keys: |_, _| {},
        before_layers: |_| {},
        layer: |b, layer| b.standard_layer(layer),
        prediction_tensors: |b, layer| b.prediction_tensors(layer),
        after_layers: |_| {},
    };
}
