//! The architectures that are known: one row each.
//!
//! The engine goes by tensor names and graph nodes, not by architecture, so a row changes nothing about how a
//! model runs. It says what an architecture's experts are like and what was verified of it. One without a
//! row runs too, after a warning, when its tensors are named as usual.

use std::fmt::{self, Display};

use serde::Serialize;

/// What is special about an architecture's experts, its routing or its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    /// Experts that every token uses.
    SharedExpert,
    /// A dense feed-forward part beside the experts of every layer.
    DensePart,
    /// Its first layers have no experts.
    LeadingDense,
    /// Layers with and without experts take turns.
    InterleavedDense,
    /// A bias that steers the choice of experts, but not their weights.
    BiasedTopK,
    /// Groups of experts are chosen first, then experts within them.
    GroupedRouting,
    /// In some layers the token itself, not the router, says which experts it uses.
    HashRouting,
    /// Gate and up are one tensor (in some files at least).
    FusedGateUp,
    /// Experts without a gate: up and down only.
    NoGate,
    /// Biases on router and experts.
    ExpertBias,
    /// Experts in a narrower space than the residual, with projections before and behind them.
    LatentExperts,
    /// Experts that groups of neighbours share. They are not streamed.
    ChunkExperts,
    /// Router weights multiply the experts' input, not their output.
    WeightsBeforeExperts,
    /// Layers for multi-token prediction at the end of the file, which are not loaded.
    PredictionLayers,
    /// State that positions can't be removed from: linear attention, convolutions, compressed caches.
    RecurrentState,
}

impl Feature {
    /// A few words on it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::SharedExpert => "shared expert",
            Self::DensePart => "dense part beside the experts",
            Self::LeadingDense => "leading dense layers",
            Self::InterleavedDense => "interleaved dense layers",
            Self::BiasedTopK => "biased top-k",
            Self::GroupedRouting => "grouped routing",
            Self::HashRouting => "routing by token in some layers",
            Self::FusedGateUp => "fused gate+up",
            Self::NoGate => "no gate",
            Self::ExpertBias => "expert biases",
            Self::LatentExperts => "experts in a narrower space",
            Self::ChunkExperts => "chunk experts (not streamed)",
            Self::WeightsBeforeExperts => "weights before the experts",
            Self::PredictionLayers => "prediction layers (not loaded)",
            Self::RecurrentState => "recurrent state",
        }
    }
}

/// What was verified of an architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verified {
    /// A tiny model of it computes the same streamed as resident, to the last bit, in a test.
    Gates,
    /// Its graph in the pinned llama.cpp goes through `build_moe_ffn`, and its expert tensors have the usual
    /// names. Nothing was run.
    Graph,
    /// It can't stream; the row says why.
    Refused,
}

impl Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gates => "tested",
            Self::Graph => "untested",
            Self::Refused => "no",
        })
    }
}

/// An architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Architecture {
    /// `general.architecture` of its files.
    pub name: &'static str,
    /// Models that have it.
    pub families: &'static str,
    /// What is special.
    pub features: &'static [Feature],
    /// What was verified.
    pub verified: Verified,
    /// A remark; empty when there is nothing to say.
    pub note: &'static str,
}

impl Architecture {
    /// Whether it has a feature.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }
}

/// The row of an architecture.
#[must_use]
pub fn find(name: &str) -> Option<&'static Architecture> {
    ALL.iter().find(|a| a.name == name)
}

/// Whether the state of an architecture's models is recurrent or hybrid, by its row: positions can't be
/// removed from it. `None` when there is no row. A loaded model knows for itself, see
/// [`Model::has_recurrent_state`](crate::llama::model::Model::has_recurrent_state).
#[must_use]
pub fn is_recurrent(name: &str) -> Option<bool> {
    find(name).map(|a| a.has(Feature::RecurrentState))
}

/// What has to be said about streaming a model of this architecture, if anything.
#[must_use]
pub fn warning(name: &str) -> Option<String> {
    match find(name) {
        None => Some(format!(
            "architecture \"{name}\" has no row in the registry (bmoe-engine archs); its expert tensors are \
             named as usual, so it is streamed like the others; compare --hash-logits with --mode resident \
             once"
        )),
        Some(row) if row.verified == Verified::Refused => {
            Some(format!("architecture \"{name}\" is not expected to stream: {}", row.note))
        }
        Some(_) => None,
    }
}

const fn row(
    name: &'static str,
    families: &'static str,
    features: &'static [Feature],
    verified: Verified,
) -> Architecture {
    Architecture { name, families, features, verified, note: "" }
}

impl Architecture {
    const fn note(self, note: &'static str) -> Self {
        Self { note, ..self }
    }
}

use Feature::{
    BiasedTopK, ChunkExperts, DensePart, ExpertBias, FusedGateUp, GroupedRouting, HashRouting,
    InterleavedDense, LatentExperts, LeadingDense, NoGate, PredictionLayers, RecurrentState,
    SharedExpert, WeightsBeforeExperts,
};
use Verified::{Gates, Refused};

/// Every architecture that has a row, by name.
pub const ALL: &[Architecture] = &[
    row("afmoe", "Trinity", &[SharedExpert, LeadingDense, BiasedTopK], Gates),
    row("arctic", "Snowflake Arctic", &[DensePart], Gates),
    row("bailingmoe", "Ling-lite, Ling-plus", &[SharedExpert, LeadingDense], Gates),
    row(
        "bailingmoe2",
        "Ling-2.0, Ring-2.0",
        &[SharedExpert, LeadingDense, BiasedTopK, GroupedRouting, PredictionLayers],
        Gates,
    ),
    row(
        "bailingmoe3",
        "Ling-3.0",
        &[SharedExpert, LeadingDense, BiasedTopK, GroupedRouting, PredictionLayers, RecurrentState],
        Gates,
    ),
    row(
        "cohere2moe",
        "Command A MoE",
        &[SharedExpert, LeadingDense, FusedGateUp, PredictionLayers],
        Gates,
    ),
    row("dbrx", "DBRX", &[], Gates),
    row("deepseek", "DeepSeek-MoE 16B", &[SharedExpert, LeadingDense], Gates),
    row(
        "deepseek2",
        "DeepSeek-V2, V3, R1; Kimi-K2; GLM-4.7-Flash; Mistral Large 3",
        &[SharedExpert, LeadingDense, BiasedTopK, GroupedRouting, FusedGateUp, PredictionLayers],
        Gates,
    ),
    row("deepseek2-ocr", "DeepSeek-OCR", &[SharedExpert, LeadingDense, FusedGateUp], Gates),
    row(
        "deepseek32",
        "DeepSeek-V3.2",
        &[SharedExpert, LeadingDense, BiasedTopK, GroupedRouting, FusedGateUp, PredictionLayers],
        Gates,
    ),
    row(
        "deepseek4",
        "DeepSeek-V4",
        &[SharedExpert, BiasedTopK, HashRouting, PredictionLayers, RecurrentState],
        Gates,
    ),
    row("dots1", "dots.llm1", &[SharedExpert, LeadingDense, BiasedTopK], Gates),
    row(
        "dots3note",
        "dots.note",
        &[SharedExpert, LeadingDense, BiasedTopK, PredictionLayers],
        Gates,
    ),
    row(
        "ernie4_5-moe",
        "ERNIE-4.5-21B-A3B, 300B-A47B",
        &[SharedExpert, LeadingDense, InterleavedDense, BiasedTopK],
        Gates,
    ),
    row(
        "exaone-moe",
        "K-EXAONE",
        &[SharedExpert, LeadingDense, BiasedTopK, PredictionLayers],
        Gates,
    ),
    row("gemma4", "Gemma-4-26B-A4B", &[DensePart, FusedGateUp], Gates),
    row(
        "glm-dsa",
        "GLM-5",
        &[SharedExpert, LeadingDense, BiasedTopK, FusedGateUp, PredictionLayers],
        Gates,
    ),
    row(
        "glm4moe",
        "GLM-4.5, GLM-4.6, GLM-4.5-Air",
        &[SharedExpert, LeadingDense, BiasedTopK, PredictionLayers],
        Gates,
    ),
    row(
        "glm5-next",
        "GLM-5.3-Flash",
        &[SharedExpert, LeadingDense, BiasedTopK, PredictionLayers, RecurrentState],
        Gates,
    ),
    row("gpt-oss", "gpt-oss-20b, gpt-oss-120b", &[ExpertBias], Gates),
    row("granite_swa", "Granite with sliding windows", &[SharedExpert, FusedGateUp], Gates),
    row("granitehybrid", "Granite-4.0-H", &[SharedExpert, RecurrentState], Gates),
    row("granitemoe", "Granite-3.x MoE, Granite-4.0-Tiny", &[SharedExpert], Gates),
    row("grok", "Grok-1, Grok-2", &[DensePart], Gates),
    row("grovemoe", "GroveMoE", &[ChunkExperts], Gates),
    row("hunyuan-moe", "Hunyuan-A13B", &[SharedExpert], Gates),
    row(
        "hy_v3",
        "Hunyuan 3",
        &[SharedExpert, LeadingDense, BiasedTopK, FusedGateUp, PredictionLayers],
        Gates,
    ),
    row("hy_v4", "Hunyuan 4", &[SharedExpert, LeadingDense, BiasedTopK], Gates),
    row("jamba", "Jamba", &[InterleavedDense, RecurrentState], Gates),
    row(
        "kimi-k3",
        "Kimi-K3",
        &[SharedExpert, LeadingDense, BiasedTopK, LatentExperts, RecurrentState],
        Gates,
    ),
    row(
        "kimi-linear",
        "Kimi-Linear-48B-A3B",
        &[SharedExpert, LeadingDense, BiasedTopK, RecurrentState],
        Gates,
    ),
    row("laguna", "Laguna", &[SharedExpert, LeadingDense, BiasedTopK], Gates),
    row("lfm2moe", "LFM2-8B-A1B, LFM2-24B-A2B", &[LeadingDense, BiasedTopK, RecurrentState], Gates),
    row("llada-moe", "LLaDA-MoE", &[], Refused)
        .note("it is a diffusion model, which doesn't decode token by token"),
    row("llama", "Mixtral 8x7B, 8x22B", &[SharedExpert], Gates),
    row(
        "llama4",
        "Llama 4 Scout, Maverick",
        &[SharedExpert, InterleavedDense, WeightsBeforeExperts],
        Gates,
    ),
    row("maple", "Maple", &[], Gates),
    row("mellum", "Mellum 2", &[], Gates),
    row("mimo2", "MiMo-V2", &[LeadingDense, BiasedTopK, PredictionLayers], Gates),
    row("minicpm", "MiniCPM-MoE-8x2B", &[], Gates),
    row("minimax-01", "MiniMax-Text-01", &[RecurrentState], Gates),
    row("minimax-m2", "MiniMax-M2", &[BiasedTopK], Gates),
    row("minimax-m3", "MiniMax-M3", &[SharedExpert, LeadingDense, BiasedTopK], Gates),
    row("mistral3", "Mistral 3 with experts", &[SharedExpert], Gates),
    row("mistral4", "Mistral 4", &[SharedExpert, LeadingDense, BiasedTopK], Gates),
    row(
        "nemotron_h_moe",
        "Nemotron-3 Nano, Super",
        &[SharedExpert, InterleavedDense, BiasedTopK, NoGate, PredictionLayers, RecurrentState],
        Gates,
    ),
    row("nomic-bert-moe", "nomic-embed-text-v2-moe", &[InterleavedDense, NoGate], Refused)
        .note("it is an encoder, which generates no text"),
    row("olmoe", "OLMoE-1B-7B", &[], Gates),
    row("phimoe", "Phi-3.5-MoE", &[], Gates),
    row("qwen2moe", "Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B", &[SharedExpert], Gates),
    row(
        "qwen35moe",
        "Qwen3.5-35B-A3B, 122B-A10B, 397B-A17B",
        &[SharedExpert, FusedGateUp, PredictionLayers, RecurrentState],
        Gates,
    ),
    row("qwen3moe", "Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder", &[], Gates),
    row(
        "qwen3next",
        "Qwen3-Next-80B-A3B",
        &[SharedExpert, FusedGateUp, PredictionLayers, RecurrentState],
        Gates,
    ),
    row("qwen3vlmoe", "Qwen3-VL-30B-A3B, 235B-A22B", &[], Gates),
    row(
        "qwen4exp",
        "Qwen4 (experimental)",
        &[SharedExpert, FusedGateUp, PredictionLayers, RecurrentState],
        Gates,
    ),
    row("rnd1", "RND1", &[], Refused)
        .note("it is a diffusion model, which doesn't decode token by token"),
    row("smallthinker", "SmallThinker-4B-A0.6B, 21B-A3B", &[], Gates),
    row("step35", "Step-3.5", &[SharedExpert, LeadingDense, BiasedTopK, PredictionLayers], Gates),
];

/// The registry as people read it.
#[must_use]
pub fn table() -> String {
    let width = ALL.iter().map(|a| a.name.len()).max().unwrap_or(0);
    let mut text = format!("{:width$}  {:8}  models; what is special\n", "name", "streams");
    for a in ALL {
        let words: Vec<&str> = a.features.iter().map(|f| f.words()).collect();
        let separator = if words.is_empty() { "" } else { "; " };
        text += &format!(
            "{:width$}  {:8}  {}{separator}{}\n",
            a.name,
            a.verified,
            a.families,
            words.join(", ")
        );
        if !a.note.is_empty() {
            text += &format!("{:width$}  {:8}  {}\n", "", "", a.note);
        }
    }
    text += "\ntested: a tiny model computes the same streamed as resident, to the last bit\n";
    if ALL.iter().any(|a| a.verified == Verified::Graph) {
        text += "untested: its graph in this llama.cpp goes the same way; no model of it was run\n";
    }
    text + "An architecture that is not listed streams too, after a warning, if its experts' tensors are named\n\
        blk.N.ffn_{gate,up,gate_up,down}_exps.weight.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_in_order() {
        assert!(ALL.windows(2).all(|w| w[0].name < w[1].name));
    }

    #[test]
    fn what_was_asked_for_has_a_row() {
        for name in "qwen2moe qwen3moe qwen35moe qwen3next gemma4 gpt-oss lfm2moe deepseek2 deepseek4 glm4moe \
                     granitemoe olmoe bailingmoe2 bailingmoe3 ernie4_5-moe llama4"
            .split_whitespace()
        {
            assert!(find(name).is_some_and(|a| a.verified != Refused), "{name}");
            assert_eq!(warning(name), None, "{name}");
        }
    }

    #[test]
    fn an_unknown_one_is_warned_about_by_name() {
        assert_eq!(is_recurrent("qwen9moe"), None);
        let text = warning("qwen9moe").unwrap();
        assert!(text.contains("\"qwen9moe\"") && text.contains("--hash-logits"), "{text}");
        assert!(warning("llada-moe").unwrap().contains("diffusion"));
    }

    #[test]
    fn refusals_say_why() {
        assert!(ALL.iter().all(|a| a.verified != Refused || !a.note.is_empty()));
    }
}
