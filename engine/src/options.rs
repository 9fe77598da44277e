//! Options that several commands share.

use std::path::PathBuf;
use std::str::FromStr;

use bmoe_trace::CacheBudget;
use bmoe_trace::config::{IoEngine, Sampling, Think};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

/// A parser of one of a type's names.
pub(crate) fn one_of<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// The expert cache.
#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    /// Expert cache in MiB, or auto; 0 = no cache
    #[arg(long, value_name = "MIB|auto", default_value_t = CacheBudget::OFF, group = "settings")]
    pub(crate) cache_mb: CacheBudget,
    /// Smallest cache that auto takes (all experts, where they are less), MiB
    #[arg(long, value_name = "MIB", default_value_t = 1536, group = "settings")]
    pub(crate) cache_floor_mb: u64,
    /// Largest cache that auto takes, MiB; 0 = no such limit
    #[arg(long, value_name = "MIB", default_value_t = 0, group = "settings")]
    pub(crate) cache_ceil_mb: u64,
    /// Accept a cache that can't hold one token's experts
    #[arg(long, group = "settings")]
    pub(crate) force_cache: bool,
    /// Which experts stay in the cache
    #[arg(long, value_name = "NAME", default_value = "lru", group = "settings")]
    pub(crate) cache_policy: String,
    /// Preload the most used experts of an earlier run (see --save-profile)
    #[arg(long, value_name = "FILE", group = "settings")]
    pub(crate) warm_profile: Option<PathBuf>,
    /// Read ahead what the previous token used in the next K layers; 0 = off (under lru and layer-lru that is in the
    /// cache anyway)
    #[arg(long, value_name = "K", default_value_t = 0, group = "settings")]
    pub(crate) prefetch: u32,
    /// Run the next layer's router on this layer's input and read at most K of its experts; 0 = off
    #[arg(long, value_name = "K", default_value_t = 0, group = "settings")]
    pub(crate) predict: u32,
}

/// Reading experts.
#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    /// Read lanes, 1 to 8
    #[arg(long, value_name = "N", default_value_t = 4, group = "settings")]
    pub(crate) io_threads: u32,
    /// How reads are handed to the kernel
    #[arg(long, value_parser = one_of::<IoEngine>(IoEngine::NAMES), default_value = "pread",
          group = "settings")]
    pub(crate) io_engine: IoEngine,
    /// Read through the page cache
    #[arg(long, group = "settings")]
    pub(crate) no_odirect: bool,
    /// Compute with the experts that are there while others are read
    #[arg(long, value_enum, default_value = "on", group = "settings")]
    pub(crate) overlap: Switch,
    /// What the storage can do, MiB/s (from `bmoe-engine iobench`); the summary compares with it
    #[arg(long, value_name = "MIB/S", default_value_t = 0.0, group = "settings")]
    pub(crate) io_ceiling: f64,
}

/// Thinking, and how tokens are chosen.
#[derive(Debug, Args)]
pub(crate) struct TextArgs {
    /// Whether the model is to think, where its chat template knows the difference
    #[arg(long, value_parser = one_of::<Think>(Think::NAMES), default_value = "default",
          group = "settings")]
    pub(crate) think: Think,
    /// 0 = greedy: always the most probable token
    #[arg(long, value_name = "T", default_value_t = 0.0, group = "settings")]
    pub(crate) temp: f32,
    /// Choose among the N most probable tokens; 0 = all (with --temp)
    #[arg(long, value_name = "N", default_value_t = 40, group = "settings")]
    pub(crate) top_k: u32,
    /// Choose among the most probable tokens that have this probability together (with --temp)
    #[arg(long, value_name = "P", default_value_t = 0.95, group = "settings")]
    pub(crate) top_p: f32,
    /// Leave out tokens below this share of the most probable one (with --temp)
    #[arg(long, value_name = "P", default_value_t = 0.05, group = "settings")]
    pub(crate) min_p: f32,
    /// Seed of the random choice (with --temp)
    #[arg(long, value_name = "N", default_value_t = 0, group = "settings")]
    pub(crate) seed: u32,
}

impl TextArgs {
    pub(crate) fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            seed: self.seed,
        }
    }
}
