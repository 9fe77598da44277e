//! Settings that do nothing in a run: a knob that silently does nothing makes a wrong benchmark.

use bmoe_cache::PolicyKind;
use bmoe_trace::config::{IoEngine, Sampling};
use bmoe_trace::{CacheBudget, Mode, RunConfig};

/// One line for each group of settings that this configuration can't use.
pub(super) fn idle_settings(config: &RunConfig) -> Vec<String> {
    let default = RunConfig::default();
    let mut idle = Vec::new();
    let named = |settings: &[(&str, bool)]| -> Vec<String> {
        settings.iter().filter(|(_, set)| *set).map(|(name, _)| (*name).to_owned()).collect()
    };
    let mut add = |names: Vec<String>, why: String| {
        if !names.is_empty() {
            idle.push(format!("{} does nothing: {why}", names.join(", ")));
        }
    };
    let sampling = config.sampling;
    let plain = Sampling { temperature: sampling.temperature, ..Sampling::default() };
    if sampling.is_greedy() && sampling != plain {
        add(
            named(&[
                ("--top-k", sampling.top_k != plain.top_k),
                ("--top-p", sampling.top_p.to_bits() != plain.top_p.to_bits()),
                ("--min-p", sampling.min_p.to_bits() != plain.min_p.to_bits()),
                ("--seed", sampling.seed != plain.seed),
            ]),
            "the choice of tokens is greedy; give --temp".into(),
        );
    }
    let cache = [
        ("--cache-policy", config.cache_policy != default.cache_policy),
        ("--prefetch", config.prefetch_layers > 0),
        ("--predict", config.predict_experts > 0),
    ];
    let bounds = [
        ("--cache-floor-mb", config.cache_floor_mib != default.cache_floor_mib),
        ("--cache-ceil-mb", config.cache_ceil_mib != default.cache_ceil_mib),
    ];
    let forced = ("--force-cache", config.force_cache);
    if config.mode != Mode::Stream {
        let why = format!("--mode {} leaves the experts to llama.cpp and the kernel", config.mode);
        let reads = [
            ("--cache-mb", config.cache_mib.is_on()),
            bounds[0],
            bounds[1],
            forced,
            ("--io-threads", config.io_threads != default.io_threads),
            ("--io-ceiling", config.io_ceiling_mib_s > 0.0),
            ("--io-engine", config.io_engine != IoEngine::default()),
            ("--no-odirect", !config.odirect),
            ("--overlap", !config.overlap),
            ("--io-trace", config.io_trace),
        ];
        add(named(&[&cache[..], &reads[..]].concat()), why);
        return idle;
    }
    match config.cache_mib {
        CacheBudget::OFF => add(
            named(&[&cache[..], &bounds[..], &[forced]].concat()),
            "there is no cache; give --cache-mb".into(),
        ),
        CacheBudget::Mib(_) => add(
            named(&bounds),
            format!("the cache has {} MiB; they bound --cache-mb auto", config.cache_mib),
        ),
        CacheBudget::Auto => {}
    }
    let by_recency =
        matches!(config.cache_policy.parse(), Ok(PolicyKind::Lru | PolicyKind::LayerLru));
    if config.cache_mib.is_on() && by_recency && !config.force_cache {
        add(
            named(&[("--prefetch", config.prefetch_layers > 0)]),
            format!(
                "a cache of one token's experts or more, by {}, still holds what the previous token used; \
                 give another --cache-policy, or --predict",
                config.cache_policy
            ),
        );
    }
    idle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_without_effect_is_named() {
        assert_eq!(idle_settings(&RunConfig::default()), [""; 0]);
        let config = RunConfig {
            prefetch_layers: 2,
            cache_policy: "arc".into(),
            sampling: Sampling { seed: 4, ..Sampling::default() },
            ..RunConfig::default()
        };
        assert_eq!(
            idle_settings(&config),
            [
                "--seed does nothing: the choice of tokens is greedy; give --temp",
                "--cache-policy, --prefetch does nothing: there is no cache; give --cache-mb",
            ]
        );
        let resident = RunConfig {
            mode: Mode::Resident,
            cache_mib: CacheBudget::Mib(3),
            overlap: false,
            ..RunConfig::default()
        };
        let idle = idle_settings(&resident);
        assert!(
            idle[0].starts_with("--cache-mb, --overlap does nothing: --mode resident"),
            "{idle:?}"
        );
        let mapped = RunConfig {
            mode: Mode::Mmap,
            io_threads: 2,
            force_cache: true,
            io_ceiling_mib_s: 900.0,
            ..RunConfig::default()
        };
        assert!(
            idle_settings(&mapped)[0]
                .starts_with("--force-cache, --io-threads, --io-ceiling does nothing")
        );
        let ahead = |policy: &str| RunConfig {
            cache_mib: CacheBudget::Mib(2000),
            prefetch_layers: 2,
            cache_policy: policy.into(),
            ..RunConfig::default()
        };
        assert!(
            idle_settings(&ahead("lru"))[0].starts_with("--prefetch does nothing: a cache of one")
        );
        assert_eq!(idle_settings(&ahead("lfu")), [""; 0]);
        let fixed = RunConfig {
            cache_mib: CacheBudget::Mib(2000),
            cache_floor_mib: 7,
            ..RunConfig::default()
        };
        assert!(idle_settings(&fixed)[0].starts_with("--cache-floor-mb does nothing"));
    }
}
