//! Weight types that may differ between layers.

use serde::{Deserialize, Serialize};

use crate::WeightType;

/// One type for all layers, a pattern with exceptions, or an explicit list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a weight type such as \"Q4_K\", a list of them (one a layer), \
    or { type = \"Q4_K\", other = \"Q6_K\", layers = [0, 3] }"
)]
pub enum LayerTypes {
    /// `"Q4_K"`.
    All(WeightType),
    /// `["Q4_K", "Q6_K", …]`, one per layer.
    List(Vec<WeightType>),
    /// `{ type = "Q4_K", other = "Q6_K", layers = [0, 1, 5] }`: the listed layers have the other type.
    Mixed(Mixed),
}

/// A type with exceptions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixed {
    /// The type of layers that are not listed.
    #[serde(rename = "type")]
    pub usual: WeightType,
    /// The type of those that are.
    pub other: WeightType,
    /// The layers that have `other`, counted from 0.
    pub layers: Vec<u32>,
}

impl From<WeightType> for LayerTypes {
    fn from(ty: WeightType) -> Self {
        Self::All(ty)
    }
}

impl LayerTypes {
    /// The type of layer `layer`. A list that is too short (which validation refuses) repeats its last entry.
    pub fn at(&self, layer: u32) -> WeightType {
        match self {
            Self::All(ty) => *ty,
            Self::List(list) => {
                list.get(layer as usize).or(list.last()).copied().unwrap_or(WeightType::F16)
            }
            Self::Mixed(m) => {
                if m.layers.contains(&layer) {
                    m.other
                } else {
                    m.usual
                }
            }
        }
    }

    /// Drops what is said about layers from `layers` on.
    pub(super) fn truncate(&mut self, layers: u32) {
        match self {
            Self::All(_) => {}
            Self::List(list) => list.truncate(layers as usize),
            Self::Mixed(m) => m.layers.retain(|&l| l < layers),
        }
    }

    /// What is wrong with it for a model of `layers` layers, if anything.
    pub(super) fn problem(&self, layers: u32) -> Option<String> {
        match self {
            Self::All(_) => None,
            Self::List(list) if list.len() == layers as usize => None,
            Self::List(list) => Some(format!(
                "lists {} types, expected one for each of the {layers} layers",
                list.len()
            )),
            Self::Mixed(m) => m
                .layers
                .iter()
                .find(|&&l| l >= layers)
                .map(|l| format!("names layer {l}, expected 0 to {}", layers.saturating_sub(1))),
        }
    }
}
