//! The engine settings that a matrix can set, in one list.

use std::path::{Path, PathBuf};

use bmoe_trace::config::{ComputeTrace, DenseWeights, IoEngine, Sampling, Think};
use bmoe_trace::{CacheBudget, Mode, RunConfig};
use serde::{Deserialize, Serialize};

use super::values::Values;

/// Declares [`Overrides`], [`Axes`] and [`ExtraCell`] from one list of [`RunConfig`] fields. The list's order is the
/// nesting order of the axes: the first is the outermost loop.
macro_rules! knobs {
    ($($name:ident: $type:ty),* $(,)?) => {
        /// Settings that replace those underneath them; in a selector, settings that a cell must have.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Overrides {
            $(
                #[doc = concat!("[`RunConfig::", stringify!($name), "`]")]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $name: Option<$type>,
            )*
        }

        impl Overrides {
            /// Replaces what is set here.
            pub fn apply(&self, config: &mut RunConfig) {
                $(if let Some(value) = &self.$name { config.$name = value.clone(); })*
            }

            /// Whether the configuration has every value that is set here.
            #[must_use]
            pub fn matches(&self, config: &RunConfig) -> bool {
                $(self.$name.as_ref().is_none_or(|value| *value == config.$name))&&*
            }

            /// Sets here what is set there.
            fn merge(&mut self, other: &Self) {
                $(if other.$name.is_some() { self.$name.clone_from(&other.$name); })*
            }
        }

        fn reset_what_does_not_apply(config: &mut RunConfig) {
            let default = RunConfig::default();
            $(if !applies(stringify!($name), config) {
                config.$name.clone_from(&default.$name);
            })*
        }

        /// Lists of values; every combination is a cell.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Axes {
            $(
                #[doc = concat!("Values of [`RunConfig::", stringify!($name), "`]")]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $name: Option<Values<$type>>,
            )*
        }

        impl Axes {
            /// Every combination of the axes' values; one empty combination when there is no axis.
            #[must_use]
            pub fn combinations(&self) -> Vec<Overrides> {
                let mut all = vec![Overrides::default()];
                $(if let Some(values) = &self.$name {
                    all = all.iter().flat_map(|outer| values.0.iter().map(|value| {
                        let mut one = Overrides { $name: Some(value.clone()), ..Overrides::default() };
                        one.merge(outer);
                        one
                    }).collect::<Vec<_>>()).collect();
                })*
                all
            }

            /// How many combinations there are, without making them; at most `u64::MAX`.
            #[must_use]
            pub fn count(&self) -> u64 {
                let counts = [$(self.$name.as_ref().map_or(1, |values| values.0.len())),*];
                counts.into_iter().fold(1, |product: u64, n| {
                    product.saturating_mul(u64::try_from(n).unwrap_or(u64::MAX))
                })
            }

            /// The names of the axes that have no value at all, which would leave no cell.
            #[must_use]
            pub fn empty(&self) -> Vec<&'static str> {
                let mut names = Vec::new();
                $(if self.$name.as_ref().is_some_and(|values| values.0.is_empty()) {
                    names.push(stringify!($name));
                })*
                names
            }
        }

        /// A cell that is no combination of the axes.
        #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct ExtraCell {
            /// Its name; made from its settings when absent.
            pub name: Option<String>,
            /// The model that it is for; all of them when absent.
            pub model: Option<String>,
            $(
                #[doc = concat!("[`RunConfig::", stringify!($name), "`]")]
                pub $name: Option<$type>,
            )*
        }

        impl ExtraCell {
            /// Its settings.
            #[must_use]
            pub fn settings(&self) -> Overrides {
                Overrides { $($name: self.$name.clone(),)* }
            }
        }
    };
}

knobs! {
    mode: Mode,
    prompt: String,
    n_predict: u32,
    n_expert_used: u32,
    replay_routes: Option<PathBuf>,
    chat: bool,
    think: Think,
    sampling: Sampling,
    ctx_tokens: u32,
    ubatch_tokens: u32,
    threads: u32,
    cpu_mask: String,
    dense_weights: DenseWeights,
    odirect: bool,
    io_engine: IoEngine,
    io_ceiling_mib_s: f64,
    overlap: bool,
    cache_mib: CacheBudget,
    cache_floor_mib: u64,
    cache_ceil_mib: u64,
    force_cache: bool,
    cache_policy: String,
    warm_profile: Option<PathBuf>,
    prefetch_layers: u32,
    predict_experts: u32,
    io_threads: u32,
    hash_logits: bool,
    trace_scores: u32,
    io_trace: bool,
    compute_trace: ComputeTrace,
}

/// Whether a setting means anything beside the others.
pub(super) fn applies(setting: &str, config: &RunConfig) -> bool {
    let streams = config.mode == Mode::Stream;
    match setting {
        "dense_weights" | "odirect" | "io_engine" | "io_ceiling_mib_s" | "overlap"
        | "cache_mib" | "io_threads" | "io_trace" => streams,
        "force_cache" | "cache_policy" | "warm_profile" | "prefetch_layers" | "predict_experts" => {
            streams && config.cache_mib.is_on()
        }
        "cache_floor_mib" | "cache_ceil_mib" => streams && config.cache_mib == CacheBudget::Auto,
        "think" => config.chat,
        _ => true,
    }
}

/// Gives the settings that mean nothing in a cell their defaults, so that an axis over them doesn't
/// multiply such cells. An empty path, which lists can hold where they can't hold nothing, becomes none.
pub(super) fn normalise(config: &mut RunConfig) {
    reset_what_does_not_apply(config);
    if config.sampling.is_greedy() {
        config.sampling = Sampling::default();
    }
    for file in [&mut config.warm_profile, &mut config.replay_routes] {
        if file.as_deref() == Some(Path::new("")) {
            *file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_the_engine_can_be_set() {
        let config = RunConfig {
            warm_profile: Some("p".into()),
            replay_routes: Some("r".into()),
            ..RunConfig::default()
        };
        let mut expected: Vec<String> = toml::Table::try_from(config)
            .unwrap()
            .keys()
            .filter(|key| *key != "model")
            .cloned()
            .collect();
        let error = toml::from_str::<Overrides>("nonsense = 1").unwrap_err().to_string();
        let (_, known) = error.split_once("expected one of").expect("serde lists the fields");
        let mut known: Vec<String> =
            known.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        expected.sort();
        known.sort();
        assert_eq!(known, expected);
    }

    #[test]
    fn axes_nest_in_the_order_of_the_list() {
        let axes: Axes = toml::from_str(
            "io_threads = [1, 4]\nmode = [\"mmap\", \"stream\"]\ncache_mib = [0, \"auto\"]",
        )
        .unwrap();
        let all: Vec<_> = axes
            .combinations()
            .iter()
            .map(|o| (o.mode.unwrap(), o.cache_mib.unwrap(), o.io_threads.unwrap()))
            .collect();
        assert_eq!(all.len(), 8);
        assert_eq!(axes.count(), 8);
        let (off, auto) = (CacheBudget::OFF, CacheBudget::Auto);
        assert_eq!(all[..3], [(Mode::Mmap, off, 1), (Mode::Mmap, off, 4), (Mode::Mmap, auto, 1)]);
        assert_eq!(all[7], (Mode::Stream, auto, 4));
    }

    #[test]
    fn a_selector_matches_what_it_names_and_nothing_else() {
        let selector: Overrides = toml::from_str("mode = \"stream\"\ncache_mib = 9").unwrap();
        let mut config =
            RunConfig { cache_mib: CacheBudget::Mib(9), threads: 3, ..RunConfig::default() };
        assert!(selector.matches(&config));
        config.mode = Mode::Mmap;
        assert!(!selector.matches(&config));
    }

    #[test]
    fn settings_that_mean_nothing_become_the_default() {
        let config = || RunConfig {
            cache_mib: CacheBudget::Mib(9),
            cache_ceil_mib: 3000,
            cache_policy: "lfu".to_owned(),
            warm_profile: Some(PathBuf::new()),
            replay_routes: Some(PathBuf::new()),
            prefetch_layers: 2,
            overlap: false,
            think: Think::Off,
            ..RunConfig::default()
        };
        let mut streamed = config();
        normalise(&mut streamed);
        assert_eq!((streamed.cache_policy.as_str(), streamed.prefetch_layers), ("lfu", 2));
        assert_eq!((streamed.cache_ceil_mib, streamed.think), (0, Think::Default));
        assert_eq!((streamed.warm_profile, streamed.replay_routes), (None, None));
        let mut uncached = RunConfig { cache_mib: CacheBudget::OFF, ..config() };
        normalise(&mut uncached);
        assert_eq!(uncached, RunConfig { overlap: false, ..RunConfig::default() });
        let mut mapped = RunConfig { mode: Mode::Mmap, ..config() };
        normalise(&mut mapped);
        assert_eq!(mapped, RunConfig { mode: Mode::Mmap, ..RunConfig::default() });
    }
}
