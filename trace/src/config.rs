//! One run of the engine, described by one TOML file (`bmoe-engine generate --config FILE`).

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// How the expert weights reach the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Experts are read from flash when a token routes to them, into a cache of `cache_mib`.
    Stream,
    /// Stock llama.cpp over a memory map of the whole file: the kernel pages experts in and out.
    Mmap,
    /// Stock llama.cpp with every weight in anonymous memory: the reference for losslessness.
    Resident,
}

impl Mode {
    /// The name used on the command line and in files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Mmap => "mmap",
            Self::Resident => "resident",
        }
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

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
    /// Tokens to generate, greedily, after the prompt.
    pub n_predict: u32,
    /// Compute threads; 0 = the cores available to the process.
    pub threads: u32,
    /// Context length in tokens, prompt and generated tokens together.
    pub ctx_tokens: u32,
    /// Largest number of tokens computed at once (llama.cpp's micro-batch).
    pub ubatch_tokens: u32,
    /// Expert cache budget in MiB (`stream` only); 0 = no cache.
    pub cache_mib: u64,
    /// Read lanes, 1 to 8 (`stream` only).
    pub io_threads: u32,
    /// Ask for O_DIRECT reads (`stream` only). Whether they were used is in the run's summary.
    pub odirect: bool,
    /// Experts per token; 0 = what the model file says.
    pub n_expert_used: u32,
    /// Hash the logits of every token, prompt included, into the run's summary.
    pub hash_logits: bool,
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
            cache_mib: 0,
            io_threads: 4,
            odirect: true,
            n_expert_used: 0,
            hash_logits: false,
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

    /// The run file's text.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a run configuration has only plain values")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_file_round_trips() {
        let config = RunConfig {
            model: "models/m.gguf".into(),
            prompt: "two\nlines \"quoted\"".into(),
            cache_mib: 4000,
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
