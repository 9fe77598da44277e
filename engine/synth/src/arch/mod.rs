//! Architectures: tensors and metadata by llama.cpp's names.
//!
//! An architecture is a [`Spec`] and a line in the list below. A decoder of the usual kind is told by the
//! spec's fields; one with tensors of its own has functions that add them, in a file of its own.

mod afmoe;
mod attention;
mod deepseek2;
mod deepseek4;
mod delta_net;
mod dots3note;
mod ffn;
mod gemma4;
mod glm5_next;
mod gpt_oss;
mod granite_swa;
mod grok;
mod grovemoe;
mod hy_v4;
mod jamba;
mod kda;
mod keys;
mod kimi_k3;
mod lfm2moe;
mod mamba2;
mod minimax;
mod phimoe;
mod qwen4exp;
mod spec;
mod standard;

use serde::{Deserialize, Serialize};

use crate::fill::{self, Fill, Rows};
use crate::plan::TensorInfo;
use crate::residual::Residual;
use crate::{Shape, WeightType};

pub(crate) use attention::value_len;
pub(crate) use keys::metadata;
pub(crate) use spec::{Has, Shared, Spec};

macro_rules! architectures {
    ($($(#[$doc:meta])* $variant:ident = $name:literal => $spec:path,)*) => {
        /// The architectures that the writer knows, by their `general.architecture` name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Arch {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Arch {
            /// Every architecture.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The name in `general.architecture`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            pub(crate) const fn spec(self) -> &'static Spec {
                match self {
                    $(Self::$variant => &$spec,)*
                }
            }
        }
    };
}

architectures! {
    /// Qwen3 MoE: separate gate, up and down experts.
    Qwen3Moe = "qwen3moe" => standard::QWEN3MOE,
    /// Qwen2 MoE: as above, plus a gated shared expert.
    Qwen2Moe = "qwen2moe" => standard::QWEN2MOE,
    /// Gemma 4: fused gate+up experts, an always-on dense part, a scale per expert.
    Gemma4 = "gemma4" => gemma4::SPEC,
    /// gpt-oss: biases everywhere and attention sinks.
    GptOss = "gpt-oss" => gpt_oss::SPEC,
    /// OLMoE: queries and keys normalised over all heads.
    Olmoe = "olmoe" => standard::OLMOE,
    /// Granite MoE: a shared expert.
    GraniteMoe = "granitemoe" => standard::GRANITEMOE,
    /// ERNIE 4.5 MoE: leading dense layers, biased top-k.
    Ernie45Moe = "ernie4_5-moe" => standard::ERNIE4_5_MOE,
    /// GLM 4.5 MoE: leading dense layers, biased top-k, prediction layers.
    Glm4Moe = "glm4moe" => standard::GLM4MOE,
    /// Ling 2.0: groups of experts, fused query, key and value.
    BailingMoe2 = "bailingmoe2" => standard::BAILINGMOE2,
    /// Llama 4: router weights applied before the experts, dense layers in between.
    Llama4 = "llama4" => standard::LLAMA4,
    /// DeepSeek V2 and V3: multi-head latent attention.
    DeepSeek2 = "deepseek2" => deepseek2::SPEC,
    /// Qwen3 Next: linear attention in most layers.
    Qwen3Next = "qwen3next" => delta_net::QWEN3NEXT,
    /// Qwen3.5 MoE: as above, with fused gate+up experts.
    Qwen35Moe = "qwen35moe" => delta_net::QWEN35MOE,
    /// LFM2 MoE: short convolutions in most layers.
    Lfm2Moe = "lfm2moe" => lfm2moe::SPEC,
    /// Ling 3.0: linear attention in most layers, latent attention in the others.
    BailingMoe3 = "bailingmoe3" => kda::BAILINGMOE3,
    /// DeepSeek V4: hyper-connections, compressed attention, routing by token in the first layers.
    DeepSeek4 = "deepseek4" => deepseek4::SPEC,
    /// Mixtral and its kind.
    Llama = "llama" => standard::LLAMA,
    /// Qwen3-VL MoE, as far as text goes.
    Qwen3VlMoe = "qwen3vlmoe" => standard::QWEN3VLMOE,
    /// MiniMax-M2: biased top-k.
    MiniMaxM2 = "minimax-m2" => standard::MINIMAX_M2,
    /// dots.llm1: a leading dense layer, shared experts, biased top-k.
    Dots1 = "dots1" => standard::DOTS1,
    /// Hunyuan MoE: a shared expert.
    HunyuanMoe = "hunyuan-moe" => standard::HUNYUAN_MOE,
    /// Ling: shared experts.
    BailingMoe = "bailingmoe" => standard::BAILINGMOE,
    /// DeepSeek MoE: a leading dense layer, shared experts.
    DeepSeek = "deepseek" => standard::DEEPSEEK,
    /// SmallThinker: a router that looks at the layer's input.
    SmallThinker = "smallthinker" => standard::SMALLTHINKER,
    /// K-EXAONE: sliding windows, biased top-k.
    ExaoneMoe = "exaone-moe" => standard::EXAONE_MOE,
    /// Command A MoE: attention and experts side by side.
    Cohere2Moe = "cohere2moe" => standard::COHERE2MOE,
    /// MiMo-V2: sliding windows, biased top-k.
    Mimo2 = "mimo2" => standard::MIMO2,
    /// DBRX: fused query, key and value.
    Dbrx = "dbrx" => standard::DBRX,
    /// Mistral 4: as DeepSeek V3.
    Mistral4 = "mistral4" => deepseek2::SPEC,
    /// Phi-3.5 MoE: biases on norms and head.
    PhiMoe = "phimoe" => phimoe::SPEC,
    /// Granite 4.0: Mamba-2 in most layers.
    GraniteHybrid = "granitehybrid" => mamba2::GRANITEHYBRID,
    /// Nemotron 3: Mamba-2, attention and experts without a gate as layers of their own.
    NemotronHMoe = "nemotron_h_moe" => mamba2::NEMOTRON_H_MOE,
    /// Kimi Linear: linear attention in most layers, latent attention in the others.
    KimiLinear = "kimi-linear" => kda::KIMI_LINEAR,
    /// DeepSeek V3.2: latent attention to the tokens that an indexer picks.
    DeepSeek32 = "deepseek32" => deepseek2::DEEPSEEK32,
    /// GLM-5: as DeepSeek V3.2.
    GlmDsa = "glm-dsa" => deepseek2::DEEPSEEK32,
    /// Step-3.5: sliding windows, attention gated per head.
    Step35 = "step35" => standard::STEP35,
    /// Hunyuan 3: biased top-k, prediction layers.
    HyV3 = "hy_v3" => standard::HY_V3,
    /// Trinity: gated attention, norms behind attention and experts.
    Afmoe = "afmoe" => afmoe::SPEC,
    /// Laguna: gated attention, biased top-k.
    Laguna = "laguna" => standard::LAGUNA,
    /// Mellum 2.
    Mellum = "mellum" => standard::MELLUM,
    /// Maple: sliding windows, a clamped activation.
    Maple = "maple" => standard::MAPLE,
    /// Jamba: Mamba in most layers, dense layers in between.
    Jamba = "jamba" => jamba::SPEC,
    /// Mistral 3 with experts: as Mixtral.
    Mistral3 = "mistral3" => standard::LLAMA,
    /// DeepSeek-OCR's language model: as DeepSeek MoE, with fused gate+up experts.
    DeepSeek2Ocr = "deepseek2-ocr" => standard::DEEPSEEK2_OCR,
    /// Snowflake Arctic: a dense part beside the experts.
    Arctic = "arctic" => standard::ARCTIC,
    /// GroveMoE: chunk experts beside the others.
    GroveMoe = "grovemoe" => grovemoe::SPEC,
    /// Grok: a dense part beside the experts, norms behind both.
    Grok = "grok" => grok::SPEC,
    /// Granite with sliding windows: attention sinks, fused gate+up experts.
    GraniteSwa = "granite_swa" => granite_swa::SPEC,
    /// dots.note: latent attention over windows, and to the tokens that an indexer picks.
    Dots3Note = "dots3note" => dots3note::SPEC,
    /// Hunyuan 4: hyper-connections, gated latent attention to the tokens that an indexer picks.
    HyV4 = "hy_v4" => hy_v4::SPEC,
    /// MiniMax-M3: attention to the blocks of tokens that an indexer picks.
    MiniMaxM3 = "minimax-m3" => minimax::M3,
    /// MiniMax-Text-01: linear attention in most layers.
    MiniMax01 = "minimax-01" => minimax::M01,
    /// Kimi K3: linear and latent attention, experts in a narrower space.
    KimiK3 = "kimi-k3" => kimi_k3::SPEC,
    /// GLM-5.3-Flash: hyper-connections, linear attention, latent attention to pools of tokens.
    Glm5Next = "glm5-next" => glm5_next::SPEC,
    /// Qwen4 (experimental): hyper-connections, linear attention, attention to blocks of tokens.
    Qwen4Exp = "qwen4exp" => qwen4exp::SPEC,
    /// MiniCPM MoE.
    MiniCpm = "minicpm" => standard::MINICPM,
}

/// How strongly the last norm passes the ranges that don't belong to the token, so that the output head
/// listens to the token and to what experts added to it.
const OUTPUT_TOPIC: f32 = 0.5;
/// The same for a tied head, of everything but the next range.
const OUTPUT_OTHERS: f32 = 0.01;

/// Collects the tensors of a model.
pub(crate) struct Builder<'a> {
    shape: &'a Shape,
    spec: &'static Spec,
    residual: Residual,
    tensors: Vec<TensorInfo>,
}

/// The tensors of a model in file order.
pub(crate) fn tensors(shape: &Shape) -> Vec<TensorInfo> {
    let spec = shape.arch.spec();
    let mut b = Builder { shape, spec, residual: Residual::new(shape), tensors: Vec::new() };
    let (hidden, vocab) = (u64::from(shape.dims.hidden), u64::from(shape.tokenizer.vocab));
    let scale = if spec.scaled_embedding { 1.0 / (hidden as f32).sqrt() } else { 1.0 };
    let embedding = Fill::Rows(Rows::Embedding { scale });
    b.push("token_embd.weight", [hidden, vocab], shape.types.embedding, embedding);
    (spec.before_layers)(&mut b);
    for layer in 0..shape.dims.blocks() {
        (spec.layer)(&mut b, layer);
        if layer >= shape.dims.layers {
            (spec.prediction_tensors)(&mut b, layer);
        }
    }
    (spec.after_layers)(&mut b);
    let r = &b.residual;
    let norm = match shape.types.output {
        Some(_) => Fill::Step { split: r.topic.end, first: OUTPUT_TOPIC, rest: 1.0 },
        // A tied head compares the next range only.
        None => Fill::Step {
            split: r.next.start,
            first: OUTPUT_OTHERS,
            rest: fill::tied_gain(shape, r) / scale,
        },
    };
    if !spec.output_norm.is_empty() {
        b.push(format!("{}.weight", spec.output_norm), [hidden], WeightType::F32, norm);
    }
    if let Some(ty) = shape.types.output {
        b.push("output.weight", [hidden, vocab], ty, Fill::Rows(Rows::Output));
    }
    b.tensors
}

impl Builder<'_> {
    fn push(
        &mut self,
        name: impl Into<String>,
        dims: impl Into<Vec<u64>>,
        weight_type: WeightType,
        fill: Fill,
    ) {
        let dims = dims.into();
        let bytes = weight_type.bytes(dims.iter().product());
        self.tensors.push(TensorInfo {
            name: name.into(),
            dims,
            weight_type,
            bytes,
            expert_layer: None,
            fill,
        });
    }

    /// As [`Builder::push`], for weights of routed experts.
    fn push_experts(
        &mut self,
        name: String,
        dims: [u64; 3],
        layer: u32,
        weight_type: WeightType,
        std: f32,
    ) {
        self.push(name, dims, weight_type, Fill::Random { std });
        // Those of prediction layers are never used.
        if layer < self.shape.dims.layers
            && let Some(last) = self.tensors.last_mut()
        {
            last.expert_layer = Some(layer);
        }
    }

    /// Random weights of a layer's attention or what stands in its place, such that unit normal inputs give
    /// outputs of root mean square `gain`. Rows that attention's type doesn't fit have Q8_0 or F32, as
    /// quantised files of such models do.
    fn mixer(&mut self, layer: u32, part: &str, dims: impl Into<Vec<u64>>, gain: f32) {
        let dims = dims.into();
        let row = dims[0];
        let fits = |ty: WeightType| row.is_multiple_of(ty.block_len() as u64);
        let ty = self.shape.types.attention.at(layer);
        let ty = if fits(ty) {
            ty
        } else if fits(WeightType::Q8_0) {
            WeightType::Q8_0
        } else {
            WeightType::F32
        };
        let fill = Fill::Random { std: gain / (row as f32).sqrt() };
        self.push(format!("blk.{layer}.{part}"), dims, ty, fill);
    }

    /// The gain of an output projection behind random mixing.
    fn mixer_gain(&self) -> f32 {
        self.shape.routing.later_attention
    }

    /// F32 values around `mean`.
    fn vector(&mut self, name: String, dims: impl Into<Vec<u64>>, mean: f32, std: f32) {
        self.push(name, dims, WeightType::F32, Fill::Around { mean, std });
    }

    /// A norm's weights: near 1, so that the design of the residual survives.
    fn norm(&mut self, name: String, len: u32) {
        self.vector(name, [u64::from(len)], 1.0, 0.02);
    }

    /// A layer's norm.
    fn layer_norm(&mut self, layer: u32, part: &str, len: u32) {
        self.norm(format!("blk.{layer}.{part}.weight"), len);
    }

    /// Norms behind attention and experts, which bring what is added to the residual to their weight.
    fn norms_behind(&mut self, layer: u32, attention: &str, experts: &str) {
        let hidden = [u64::from(self.shape.dims.hidden)];
        let weights = [(attention, 0.5 * self.attention_gain(layer)), (experts, self.expert_rms())];
        for (part, weight) in weights {
            self.vector(format!("blk.{layer}.{part}.weight"), hidden, weight, 0.02 * weight);
        }
    }

    /// A decoder layer of the usual kind.
    fn standard_layer(&mut self, layer: u32) {
        self.layer_norm(layer, "attn_norm", self.shape.dims.hidden);
        self.attention(layer);
        if !self.spec.ffn_norm.is_empty() {
            self.layer_norm(layer, self.spec.ffn_norm, self.shape.dims.hidden);
        }
        self.feed_forward(layer);
    }

    /// What a layer for multi-token prediction usually has beside a decoder layer's tensors.
    fn prediction_tensors(&mut self, layer: u32) {
        let hidden = self.shape.dims.hidden;
        let wide = u64::from(hidden);
        self.mixer(layer, "nextn.eh_proj.weight", [2 * wide, wide], 1.0);
        for part in ["nextn.enorm", "nextn.hnorm", self.spec.prediction_norm] {
            self.layer_norm(layer, part, hidden);
        }
    }
}
