//! Shapes: what a model looks like, as data. The TOML reference is `docs/synthetic-models.md`.

mod builtin;
mod layer_types;
mod validate;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use builtin::{builtin_names, builtin_toml};
pub use layer_types::{LayerTypes, Mixed};

use crate::{Arch, Result, SynthError, WeightType};

/// A model's shape, its weight types and the knobs of its routing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// A short name, used in messages and as `general.name`.
    pub name: String,
    /// The architecture.
    pub arch: Arch,
    /// One line on what the shape is for.
    #[serde(default)]
    pub description: String,
    /// Dimensions.
    pub dims: Dims,
    /// Weight type of each class of tensors.
    pub types: Types,
    /// The vocabulary.
    pub tokenizer: Tokenizer,
    /// What the router does.
    #[serde(default)]
    pub routing: Routing,
}

/// Dimensions of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dims {
    /// Transformer layers, prediction layers not included.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Attention (query) heads.
    pub heads: u32,
    /// Key/value heads; divides `heads`.
    pub kv_heads: u32,
    /// Width of one head.
    pub head_dim: u32,
    /// Routed experts per layer.
    pub experts: u32,
    /// Experts that a token uses (top-k).
    pub experts_used: u32,
    /// Intermediate width of one routed expert.
    pub expert_ffn: u32,
    /// Intermediate width of what is dense: the shared expert (`qwen2moe`), the always-on dense part
    /// (`gemma4`), or the layers without experts.
    #[serde(default)]
    pub dense_ffn: u32,
    /// Layers without experts at the beginning.
    #[serde(default)]
    pub leading_dense: u32,
    /// The last of so many layers has experts, the others are dense; 0 = all have.
    #[serde(default)]
    pub moe_step: u32,
    /// Shared experts, each as wide as a routed one.
    #[serde(default)]
    pub shared_experts: u32,
    /// Groups that the experts are divided into; 0 = none.
    #[serde(default)]
    pub expert_groups: u32,
    /// Groups that a token's experts may come from.
    #[serde(default)]
    pub expert_groups_used: u32,
    /// Layers for multi-token prediction behind the others. llama.cpp doesn't load them for generating text.
    #[serde(default)]
    pub prediction_layers: u32,
    /// Longest context that the file declares, in tokens.
    pub context: u32,
    /// Base of the rotary position frequencies.
    pub rope_base: f32,
    /// Sliding-window attention (`gemma4` and `gpt-oss`).
    #[serde(default)]
    pub window: Option<Window>,
    /// Numbers that only this architecture has, by name.
    #[serde(default)]
    pub extra: BTreeMap<String, u32>,
}

impl Dims {
    /// Layers in the file, prediction layers included.
    pub(crate) fn blocks(&self) -> u32 {
        self.layers + self.prediction_layers
    }

    /// Whether a layer has no experts.
    pub(crate) fn is_dense(&self, layer: u32) -> bool {
        layer < self.leading_dense || !(layer + 1).is_multiple_of(self.moe_step.max(1))
    }

    /// A number that only this architecture has; 0 when it is missing, which validation refuses.
    pub(crate) fn extra(&self, name: &str) -> u32 {
        self.extra.get(name).copied().unwrap_or(0)
    }
}

/// Layers that attend to the most recent tokens only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Tokens that a window layer sees.
    pub size: u32,
    /// The last of every `period` layers attends to everything (`gpt-oss`: always 2).
    pub period: u32,
    /// Head width of the global layers (`gemma4`; default: `head_dim`).
    #[serde(default)]
    pub global_head_dim: Option<u32>,
    /// Key/value heads of the global layers (`gemma4`; default: `kv_heads`).
    #[serde(default)]
    pub global_kv_heads: Option<u32>,
    /// Rotary base of the window layers (`gemma4`; default: `rope_base`).
    #[serde(default)]
    pub rope_base: Option<f32>,
}

/// Weight types. Norms, router, biases and scales are always F32.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Types {
    /// Experts' gate and up (or fused gate+up).
    pub expert_gate_up: LayerTypes,
    /// Experts' down.
    pub expert_down: LayerTypes,
    /// Attention query, key and, unless given apart, value and output.
    pub attention: LayerTypes,
    /// Attention value.
    #[serde(default)]
    pub attn_v: Option<LayerTypes>,
    /// Attention output.
    #[serde(default)]
    pub attn_output: Option<LayerTypes>,
    /// Shared expert's or dense part's gate and up (default: as `attention`).
    #[serde(default)]
    pub dense_gate_up: Option<LayerTypes>,
    /// Shared expert's or dense part's down (default: as `dense_gate_up`).
    #[serde(default)]
    pub dense_down: Option<LayerTypes>,
    /// Token embedding.
    pub embedding: WeightType,
    /// Output head; none when it is tied to the embedding (`qwen3moe` and `gemma4`).
    #[serde(default)]
    pub output: Option<WeightType>,
}

impl Types {
    /// The same type for every class.
    pub fn uniform(ty: WeightType) -> Self {
        Self {
            expert_gate_up: ty.into(),
            expert_down: ty.into(),
            attention: ty.into(),
            attn_v: None,
            attn_output: None,
            dense_gate_up: None,
            dense_down: None,
            embedding: ty,
            output: Some(ty),
        }
    }
}

/// The vocabulary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokenizer {
    /// Number of tokens, 256 bytes and 3 special tokens included.
    pub vocab: u32,
}

/// How the router behaves. Strengths are standard deviations of a part of the router's logits, relative to the
/// part that depends on the current token alone (which is 1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Routing {
    /// Part that is the same for every token: some experts are popular.
    pub popularity: f32,
    /// Part that follows an average over past tokens: the topic.
    pub topic: f32,
    /// How far back the topic reaches (standard deviation, tokens).
    pub topic_window: f32,
    /// Part that follows an average over the last few tokens.
    pub recent: f32,
    /// How far back that reaches (standard deviation, tokens).
    pub recent_window: f32,
    /// Standard deviation of a router logit: how unequal the expert weights are.
    pub sharpness: f32,
    /// Attention output of the layers after the first, relative to the first.
    pub later_attention: f32,
    /// Root mean square of what all layers' experts together add to the residual, which starts at about 1.
    pub expert_output: f32,
    /// Tokens that may follow a given one; the context decides between them.
    pub successors: u32,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            popularity: 1.85,
            topic: 0.5,
            topic_window: 12.0,
            recent: 1.05,
            recent_window: 1.0,
            sharpness: 0.8,
            later_attention: 0.1,
            expert_output: 0.3,
            successors: 4,
        }
    }
}

impl Shape {
    /// Reads a shape from TOML text. `source_name` appears in errors.
    ///
    /// # Errors
    /// When the text is not TOML, has unknown or missing fields, or describes an impossible model.
    pub fn from_toml_str(text: &str, source_name: &str) -> Result<Self> {
        let shape: Self = toml::from_str(text).map_err(|e| SynthError::Parse {
            source_name: source_name.to_owned(),
            message: e.to_string().trim_end().to_owned(),
        })?;
        shape.validate()?;
        Ok(shape)
    }

    /// Reads a shape from a TOML file.
    ///
    /// # Errors
    /// As [`Shape::from_toml_str`], or when the file can't be read.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| SynthError::io("read", path, e))?;
        Self::from_toml_str(&text, &path.display().to_string())
    }

    /// A shape that is built into the program; see [`builtin_names`].
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn builtin(name: &str) -> Result<Self> {
        match builtin_toml(name) {
            Some(text) => Self::from_toml_str(text, name),
            None => Err(SynthError::UnknownShape { name: name.to_owned(), known: known_names() }),
        }
    }

    /// A built-in shape by name or, when `name_or_path` ends in `.toml`, a shape file.
    ///
    /// # Errors
    /// As [`Shape::load`] and [`Shape::builtin`].
    pub fn find(name_or_path: &str) -> Result<Self> {
        if name_or_path.ends_with(".toml") {
            Self::load(Path::new(name_or_path))
        } else {
            Self::builtin(name_or_path)
        }
    }

    /// The shape with only its first `layers` layers.
    ///
    /// # Errors
    /// When that is 0 or more than the shape has.
    pub fn with_layers(mut self, layers: u32) -> Result<Self> {
        if layers == 0 || layers > self.dims.layers {
            return Err(SynthError::Options(format!(
                "layers = {layers}: shape `{}` has {} layers; give 1 to {}",
                self.name, self.dims.layers, self.dims.layers
            )));
        }
        let types = &mut self.types;
        for per_layer in [&mut types.expert_gate_up, &mut types.expert_down, &mut types.attention]
            .into_iter()
            .chain(types.attn_v.as_mut())
            .chain(types.attn_output.as_mut())
            .chain(types.dense_gate_up.as_mut())
            .chain(types.dense_down.as_mut())
        {
            per_layer.truncate(layers);
        }
        self.dims.layers = layers;
        Ok(self)
    }

    /// The shape with every large tensor of type `ty` (for tests of architecture x type).
    ///
    /// # Errors
    /// When a dimension is not a multiple of the type's block length.
    pub fn with_type(mut self, ty: WeightType) -> Result<Self> {
        self.types = Types::uniform(ty);
        self.validate()?;
        Ok(self)
    }
}

/// The built-in shapes in words: one tiny one stands for all of them.
fn known_names() -> String {
    let (tiny, others): (Vec<_>, Vec<_>) = builtin_names().partition(|n| n.starts_with("tiny-"));
    format!("{} and tiny ones such as {}", others.join(", "), tiny[0])
}

#[cfg(test)]
mod tests;
