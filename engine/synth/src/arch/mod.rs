//! Tensors and metadata of each architecture, by llama.cpp's names.

mod ffn;
mod layer;

use crate::fill::{self, Fill, Rows};
use crate::gguf::{Metadata, Value};
use crate::plan::TensorInfo;
use crate::residual::Residual;
use crate::{Arch, Shape, WeightType, tokenizer};

/// How strongly the last norm passes the ranges that don't belong to the token, so that the output head
/// listens to the token and to what experts added to it.
const OUTPUT_TOPIC: f32 = 0.5;
/// The same for a tied head, of everything but the next range.
const OUTPUT_OTHERS: f32 = 0.01;

/// Collects the tensors of a model.
struct Builder<'a> {
    shape: &'a Shape,
    residual: Residual,
    tensors: Vec<TensorInfo>,
}

/// The tensors of a model in file order.
pub(crate) fn tensors(shape: &Shape) -> Vec<TensorInfo> {
    let mut b = Builder { shape, residual: Residual::new(shape), tensors: Vec::new() };
    let (hidden, vocab) = (u64::from(shape.dims.hidden), u64::from(shape.tokenizer.vocab));
    let scale = if shape.arch == Arch::Gemma4 { 1.0 / (hidden as f32).sqrt() } else { 1.0 };
    let embedding = Fill::Rows(Rows::Embedding { scale });
    b.push("token_embd.weight", [hidden, vocab], shape.types.embedding, embedding);
    b.rope_freqs();
    for layer in 0..shape.dims.layers {
        b.layer(layer);
    }
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
    b.push("output_norm.weight", [hidden], WeightType::F32, norm);
    if let Some(ty) = shape.types.output {
        b.push("output.weight", [hidden, vocab], ty, Fill::Rows(Rows::Output));
    }
    b.tensors
}

/// Elements of a layer's value projection.
pub(crate) fn value_len(shape: &Shape, layer: u32) -> usize {
    let heads = layer::heads(shape, Some(layer));
    (heads.head_dim * heads.kv_heads) as usize
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
        if let Some(last) = self.tensors.last_mut() {
            last.expert_layer = Some(layer);
        }
    }

    /// F32 values around `mean`.
    fn vector(&mut self, name: String, dims: impl Into<Vec<u64>>, mean: f32, std: f32) {
        self.push(name, dims, WeightType::F32, Fill::Around { mean, std });
    }

    /// A norm's weights: near 1, so that the design of the residual survives.
    fn norm(&mut self, name: String, len: u32) {
        self.vector(name, [u64::from(len)], 1.0, 0.02);
    }
}

/// The metadata of a model, tokenizer included.
pub(crate) fn metadata(shape: &Shape) -> Metadata {
    let mut meta = Metadata::new();
    let mut put = |key: &str, value: Value| meta.push((key.to_owned(), value));
    put("general.architecture", Value::Str(shape.arch.name().to_owned()));
    put("general.type", Value::Str("model".to_owned()));
    put("general.name", Value::Str(shape.name.clone()));
    put("general.description", Value::Str(shape.description.clone()));
    put("general.quantization_version", Value::U32(2));
    put("general.file_type", Value::U32(shape.types.expert_gate_up.at(0).file_type()));
    put_dims(shape, &mut meta);
    put_tokenizer(shape, &mut meta);
    meta
}

fn put_dims(shape: &Shape, meta: &mut Metadata) {
    let (arch, d) = (shape.arch.name(), &shape.dims);
    let mut put = |key: &str, value: Value| meta.push((format!("{arch}.{key}"), value));
    put("block_count", Value::U32(d.layers));
    put("context_length", Value::U32(d.context));
    put("embedding_length", Value::U32(d.hidden));
    put("vocab_size", Value::U32(shape.tokenizer.vocab));
    let ffn = if shape.arch.has_dense_ffn() { d.dense_ffn } else { d.expert_ffn };
    put("feed_forward_length", Value::U32(ffn));
    put("expert_feed_forward_length", Value::U32(d.expert_ffn));
    put("expert_count", Value::U32(d.experts));
    put("expert_used_count", Value::U32(d.experts_used));
    put("attention.head_count", Value::U32(d.heads));
    put("attention.layer_norm_rms_epsilon", Value::F32(1e-6));
    put("rope.freq_base", Value::F32(d.rope_base));
    let global = layer::heads(shape, None);
    put("attention.key_length", Value::U32(global.head_dim));
    put("attention.value_length", Value::U32(global.head_dim));
    put("rope.dimension_count", Value::U32(global.head_dim));
    if shape.arch == Arch::Gemma4 {
        let kv_heads = (0..d.layers).map(|l| layer::heads(shape, Some(l)).kv_heads).collect();
        put("attention.head_count_kv", Value::U32s(kv_heads));
    } else {
        put("attention.head_count_kv", Value::U32(d.kv_heads));
    }
    if shape.arch == Arch::Qwen2Moe {
        put("expert_shared_feed_forward_length", Value::U32(d.dense_ffn));
    }
    let Some(window) = &d.window else { return };
    put("attention.sliding_window", Value::U32(window.size));
    if shape.arch == Arch::GptOss {
        put("rope.scaling.type", Value::Str("yarn".to_owned()));
        put("rope.scaling.factor", Value::F32(32.0));
        put("rope.scaling.original_context_length", Value::U32(4096));
    } else {
        let windowed = (0..d.layers).map(|l| layer::is_windowed(shape, l)).collect();
        put("attention.sliding_window_pattern", Value::Bools(windowed));
        put("attention.shared_kv_layers", Value::U32(0));
        put("attention.key_length_swa", Value::U32(d.head_dim));
        put("attention.value_length_swa", Value::U32(d.head_dim));
        put("rope.dimension_count_swa", Value::U32(d.head_dim));
        put("rope.freq_base_swa", Value::F32(window.rope_base.unwrap_or(d.rope_base)));
        put("embedding_length_per_layer_input", Value::U32(0));
        put("final_logit_softcapping", Value::F32(30.0));
    }
}

fn put_tokenizer(shape: &Shape, meta: &mut Metadata) {
    let vocabulary = tokenizer::build(shape.tokenizer.vocab);
    let mut put = |key: &str, value: Value| meta.push((format!("tokenizer.{key}"), value));
    put("ggml.model", Value::Str("gpt2".to_owned()));
    put("ggml.pre", Value::Str("gpt-2".to_owned()));
    put("ggml.tokens", Value::Strs(vocabulary.tokens));
    put("ggml.token_type", Value::I32s(vocabulary.token_types));
    put("ggml.merges", Value::Strs(vocabulary.merges));
    put("ggml.bos_token_id", Value::U32(vocabulary.bos_id));
    put("ggml.eos_token_id", Value::U32(vocabulary.eos_id));
    put("ggml.padding_token_id", Value::U32(vocabulary.bos_id));
    put("ggml.add_bos_token", Value::Bool(false));
    put("chat_template", Value::Str(tokenizer::CHAT_TEMPLATE.to_owned()));
}
