//! One run of the engine, described by one TOML file (`bmoe-engine generate --config FILE`).

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use crate::setting::{
    CacheBudget, ComputeTrace, DenseWeights, IoEngine, Mode, Sampling, Think,
};

/// Everything that decides what one run does and measures.
///
/// Unknown keys are errors: a knob that silently does nothing makes a wrong benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// GGUF file; of a split model any of its `-0000I-of-0000N` files.
    pub model: PathBuf,
    /// How the expert weights reach the CPU.
    pub mode: Mode,
    /// The prompt, given to the tokenizer as it is.
    pub prompt: String,
    /// Tokens to generate after the prompt.
    pub n_predict: u32,
    /// Compute threads; 0 = the cores available to the process.
    pub threads: u32,
    /// Context length in tokens, prompt and generated tokens together.
    pub ctx_tokens: u32,
    /// Largest number of tokens computed at once (llama.cpp's micro-batch).
    pub ubatch_tokens: u32,
    /// Expert cache budget in MiB, or `auto` (`stream` only); 0 = no cache.
    pub cache_mib: CacheBudget,
    /// `auto` never takes less, MiB.
    pub cache_floor_mib: u64,
    /// `auto` never takes more, MiB; 0 = no such limit.
    pub cache_ceil_mib: u64,
    /// Accept a budget that can't hold one token's experts of all layers.
    pub force_cache: bool,
    /// Which experts stay in the cache; names as in `bmoe-cache`.
    pub cache_policy: String,
    /// Preload the experts that a profile of an earlier run names, most used first.
    pub warm_profile: Option<PathBuf>,
    /// Read ahead the experts that the previous token used in so many of the next layers; 0 = off.
    pub prefetch_layers: u32,
    /// Run the next layer's router on this layer's input and read at most so many of the experts that
    /// it names; 0 = off.
    pub predict_experts: u32,
    /// Read lanes, 1 to 8 (`stream` only).
    pub io_threads: u32,
    /// How reads are handed to the kernel (`stream` only). Which way was used is in the run's summary.
    pub io_engine: IoEngine,
    /// Ask for O_DIRECT reads (`stream` only). Whether they were used is in the run's summary.
    pub odirect: bool,
    /// Compute with the experts that are there while others are read (`stream` only).
    pub overlap: bool,
    /// What the storage can do, MiB/s, as `bmoe-engine iobench` measured it; 0 = not known. The summary
    /// puts the run's own rate beside it.
    pub io_ceiling_mib_s: f64,
    /// Where the weights outside the experts are (`stream` only).
    pub dense_weights: DenseWeights,
    /// Cores of the compute threads: a list such as `4-7` or a mask such as `0xf0`; empty = any. The
    /// lanes then run on the other cores.
    pub cpu_mask: String,
    /// Experts per token; 0 = what the model file says.
    pub n_expert_used: u32,
    /// Every token uses the experts of this recorded route trace (of any format that [`crate::import`] reads) in
    /// the place of the router's choice. Timing is then that of the recorded run's accesses; the text means nothing.
    pub replay_routes: Option<PathBuf>,
    /// Put the prompt into the model's own chat template, as a user's message.
    pub chat: bool,
    /// Whether the model is to think (`chat` only).
    pub think: Think,
    /// How the next token is chosen.
    pub sampling: Sampling,
    /// Hash the logits of every token, prompt included, into the run's summary.
    pub hash_logits: bool,
    /// Record the router's so many best experts of every token with their scores, chosen or not.
    pub trace_scores: u32,
    /// Record every read.
    pub io_trace: bool,
    /// Record where the graph's time goes.
    pub compute_trace: ComputeTrace,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            model: PathBuf::new(),
            mode: Mode::Stream,
            prompt: String::new(),
            n_predict: 64,
            threads: 0,
            ctx_tokens: 2048,
            ubatch_tokens: 512,
            cache_mib: CacheBudget::OFF,
            cache_floor_mib: 1536,
            cache_ceil_mib: 0,
            force_cache: false,
            cache_policy: "lru".to_owned(),
            warm_profile: None,
            prefetch_layers: 0,
            predict_experts: 0,
            io_threads: 4,
            io_engine: IoEngine::default(),
            odirect: true,
            overlap: true,
            io_ceiling_mib_s: 0.0,
            dense_weights: DenseWeights::default(),
            cpu_mask: String::new(),
            n_expert_used: 0,
            replay_routes: None,
            chat: false,
            think: Think::default(),
            sampling: Sampling::default(),
            hash_logits: false,
            trace_scores: 0,
            io_trace: false,
            compute_trace: ComputeTrace::default(),
        }
    }
}

/// A run file that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("cannot read the run file {}: {source}", path.display())]
    Read {
        /// The file named.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file isn't a run configuration.
    #[error("the run file {} is not a run configuration: {message}", path.display())]
    Parse {
        /// The file named.
        path: PathBuf,
        /// What is wrong, with its place in the file.
        message: String,
    },
}

impl RunConfig {
    /// Reads a run file.
    ///
    /// # Errors
    /// The file can't be read, is no TOML, or has a key that this version doesn't know.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        toml::from_str(&text).map_err(|e| ConfigError::Parse {
            path: path.to_owned(),
            message: e.to_string().trim_end().to_owned(),
        })
    }

    /// Whether reads overlap with computation: only where the engine reads experts itself.
    #[must_use]
    pub fn overlaps(&self) -> bool {
        self.mode == Mode::Stream && self.overlap
    }

    /// Whether what is recorded takes time that a run without it would not take.
    #[must_use]
    pub fn perturbed(&self) -> bool {
        self.io_trace || self.compute_trace != ComputeTrace::Off
    }

    /// The files that a run reads beside its model; where they are on a target is for whoever sends them there.
    pub fn files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.warm_profile, &mut self.replay_routes].into_iter().flatten()
    }

    /// The files that a run reads beside its model.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.warm_profile, &self.replay_routes].into_iter().flatten()
    }

    /// The run file's text.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a run configuration has only plain values")
    }
}

/// All files of a model: the shards of a split one (`stem-0000I-of-0000N.gguf`), in order, or the one file.
#[must_use]
pub fn model_files(path: &Path) -> Vec<PathBuf> {
    shards(path).unwrap_or_else(|| vec![path.to_owned()])
}

fn shards(path: &Path) -> Option<Vec<PathBuf>> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
    let (rest, total) = stem.rsplit_once("-of-")?;
    let (stem, index) = rest.rsplit_once('-')?;
    let number = |text: &str| {
        (text.len() == 5).then(|| text.parse::<u32>().ok()).flatten().filter(|n| *n > 0)
    };
    let (_, total) = (number(index)?, number(total)?);
    let shard = |i: u32| path.with_file_name(format!("{stem}-{i:05}-of-{total:05}.gguf"));
    Some((1..=total).map(shard).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_listed_from_any_of_them() {
        let files = model_files(Path::new("m/big-00002-of-00003.gguf"));
        let names: Vec<_> = files.iter().map(|f| f.to_str().unwrap()).collect();
        assert_eq!(
            names,
            ["m/big-00001-of-00003.gguf", "m/big-00002-of-00003.gguf", "m/big-00003-of-00003.gguf"]
        );
        assert_eq!(model_files(Path::new("m/end-of-story.gguf")).len(), 1);
    }

    #[test]
    fn a_run_file_round_trips() {
        let config = RunConfig {
            model: "models/m.gguf".into(),
            prompt: "two\nlines \"quoted\"".into(),
            cache_mib: CacheBudget::Auto,
            warm_profile: Some("profile.toml".into()),
            replay_routes: Some("routes.csv".into()),
            sampling: Sampling { temperature: 0.7, ..Sampling::default() },
            ..RunConfig::default()
        };
        let back: RunConfig = toml::from_str(&config.to_toml()).unwrap();
        assert_eq!(back, config);
    }

    #[test]
    fn an_unknown_key_is_named() {
        let error = toml::from_str::<RunConfig>("cache_mb = 4000").unwrap_err().to_string();
        assert!(error.contains("cache_mb") && error.contains("cache_mib"), "{error}");
    }
}
