//! Metadata: what is common to all architectures, the tokenizer, and how architectures add to it.

use super::attention;
use crate::gguf::{Metadata, Value};
use crate::{Shape, tokenizer};

/// An architecture's metadata in the making. Keys are without the architecture's name in front.
pub(crate) struct Keys {
    arch: &'static str,
    meta: Metadata,
}

impl Keys {
    /// Adds a key, or replaces its value where it is.
    pub(super) fn set(&mut self, key: &str, value: impl Into<Value>) {
        let key = format!("{}.{key}", self.arch);
        match self.meta.iter_mut().find(|(k, _)| *k == key) {
            Some((_, old)) => *old = value.into(),
            None => self.meta.push((key, value.into())),
        }
    }

    /// As [`Keys::set`] for a number of a layer, as a list.
    pub(super) fn set_per_layer(&mut self, key: &str, shape: &Shape, value: impl Fn(u32) -> u32) {
        self.set(key, (0..shape.dims.blocks()).map(value).collect::<Vec<u32>>());
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
    let mut keys = Keys { arch: shape.arch.name(), meta };
    put_dims(shape, &mut keys);
    (shape.arch.spec().keys)(shape, &mut keys);
    put_tokenizer(shape, &mut keys.meta);
    keys.meta
}

fn put_dims(shape: &Shape, keys: &mut Keys) {
    let d = &shape.dims;
    keys.set("block_count", d.blocks());
    keys.set("context_length", d.context);
    keys.set("embedding_length", d.hidden);
    keys.set("vocab_size", shape.tokenizer.vocab);
    keys.set("feed_forward_length", if d.dense_ffn > 0 { d.dense_ffn } else { d.expert_ffn });
    keys.set("expert_feed_forward_length", d.expert_ffn);
    keys.set("expert_count", d.experts);
    keys.set("expert_used_count", d.experts_used);
    keys.set("attention.head_count", d.heads);
    keys.set("attention.layer_norm_rms_epsilon", 1e-6);
    keys.set("rope.freq_base", d.rope_base);
    let global = attention::heads(shape, None);
    keys.set("attention.key_length", global.head_dim);
    keys.set("attention.value_length", global.head_dim);
    keys.set("rope.dimension_count", global.head_dim);
    keys.set("attention.head_count_kv", d.kv_heads);
    let optional = [
        ("leading_dense_block_count", d.leading_dense),
        ("interleave_moe_layer_step", d.moe_step),
        ("expert_shared_count", d.shared_experts),
        ("expert_group_count", d.expert_groups),
        ("expert_group_used_count", d.expert_groups_used),
        ("nextn_predict_layers", d.prediction_layers),
    ];
    for (key, value) in optional {
        if value > 0 {
            keys.set(key, value);
        }
    }
    if let Some(window) = &d.window {
        keys.set("attention.sliding_window", window.size);
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
