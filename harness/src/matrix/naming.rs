//! Names that people read and ids that machines compare.

use std::collections::{BTreeMap, BTreeSet};

use bmoe_trace::config::{ComputeTrace, Sampling};
use bmoe_trace::{CacheBudget, Mode, RunConfig};
use sha2::{Digest, Sha256};

use super::knobs::applies;
use super::{Model, Synth};

/// A cell's name: its mode and cache, what is not the default in how experts are read, then whatever else
/// differs between the cells of the matrix.
pub(super) fn cell_name(config: &RunConfig, varying: &BTreeSet<String>) -> String {
    let default = RunConfig::default();
    let varies = |key: &str| varying.contains(key) && applies(key, config);
    let mut parts = vec![config.mode.to_string()];
    if config.mode == Mode::Stream {
        parts.push(match config.cache_mib {
            CacheBudget::OFF => "cache off".to_owned(),
            CacheBudget::Mib(mib) => format!("cache {mib} MiB"),
            CacheBudget::Auto => "cache auto".to_owned(),
        });
        if config.cache_policy != default.cache_policy || varies("cache_policy") {
            parts.push(plain(&config.cache_policy));
        }
        match config.prefetch_layers {
            0 if varies("prefetch_layers") => parts.push("no prefetch".to_owned()),
            0 => {}
            n => parts.push(format!("prefetch {n}")),
        }
        match config.predict_experts {
            0 if varies("predict_experts") => parts.push("no prediction".to_owned()),
            0 => {}
            n => parts.push(format!("predict {n}")),
        }
        parts.push(count(config.io_threads, "lane"));
        if config.io_engine != default.io_engine || varies("io_engine") {
            parts.push(config.io_engine.to_string());
        }
        if !config.odirect {
            parts.push("buffered".to_owned());
        }
        match config.overlap {
            false => parts.push("overlap off".to_owned()),
            true if varies("overlap") => parts.push("overlap".to_owned()),
            true => {}
        }
        if config.dense_weights != default.dense_weights || varies("dense_weights") {
            parts.push(format!("dense {}", config.dense_weights));
        }
    }
    parts.extend(OTHERS.iter().filter(|(key, _)| varies(key)).filter_map(|(_, name)| name(config)));
    parts.join(", ")
}

/// How a value is named, when it is.
type Named = fn(&RunConfig) -> Option<String>;

/// The settings that are named where they vary.
const OTHERS: &[(&str, Named)] = &[
    ("cache_floor_mib", |c| Some(format!("floor {} MiB", c.cache_floor_mib))),
    ("cache_ceil_mib", |c| match c.cache_ceil_mib {
        0 => Some("no ceiling".to_owned()),
        mib => Some(format!("ceiling {mib} MiB")),
    }),
    ("force_cache", |c| c.force_cache.then(|| "forced".to_owned())),
    ("warm_profile", |c| {
        Some(c.warm_profile.as_ref().map_or("cold".to_owned(), |path| {
            format!("warm {}", plain(&path.file_name().unwrap_or_default().to_string_lossy()))
        }))
    }),
    ("replay_routes", |c| {
        Some(c.replay_routes.as_ref().map_or("own routes".to_owned(), |path| {
            format!("routes of {}", plain(&path.file_name().unwrap_or_default().to_string_lossy()))
        }))
    }),
    ("io_ceiling_mib_s", |c| Some(format!("{} MiB/s at best", c.io_ceiling_mib_s))),
    ("n_expert_used", |c| match c.n_expert_used {
        0 => Some("the model's top-k".to_owned()),
        n => Some(format!("top-{n}")),
    }),
    ("n_predict", |c| Some(count(c.n_predict, "token"))),
    ("ctx_tokens", |c| Some(format!("context {}", c.ctx_tokens))),
    ("ubatch_tokens", |c| Some(format!("micro-batch {}", c.ubatch_tokens))),
    ("threads", |c| match c.threads {
        0 => Some("all threads".to_owned()),
        n => Some(count(n, "thread")),
    }),
    ("cpu_mask", |c| match c.cpu_mask.as_str() {
        "" => Some("any core".to_owned()),
        cores => Some(format!("cores {}", plain(cores))),
    }),
    ("chat", |c| Some(if c.chat { "chat" } else { "raw prompt" }.to_owned())),
    ("think", |c| Some(format!("think {}", c.think))),
    ("sampling", |c| Some(sampling(&c.sampling))),
    ("prompt", |c| Some(format!("prompt \"{}\"", shorten(&c.prompt)))),
    ("hash_logits", |c| c.hash_logits.then(|| "logits hashed".to_owned())),
    ("trace_scores", |c| (c.trace_scores > 0).then(|| format!("{} scores", c.trace_scores))),
    ("io_trace", |c| c.io_trace.then(|| "reads traced".to_owned())),
    ("compute_trace", |c| match c.compute_trace {
        ComputeTrace::Off => None,
        what => Some(format!("{what} traced")),
    }),
];

fn sampling(sampling: &Sampling) -> String {
    if sampling.is_greedy() {
        return "greedy".to_owned();
    }
    let default = Sampling::default();
    let mut text = format!("temperature {}", sampling.temperature);
    let mut add = |name: &str, value: String, differs: bool| {
        if differs {
            text += &format!(" {name} {value}");
        }
    };
    add("top-k", sampling.top_k.to_string(), sampling.top_k != default.top_k);
    add("top-p", sampling.top_p.to_string(), sampling.top_p != default.top_p);
    add("min-p", sampling.min_p.to_string(), sampling.min_p != default.min_p);
    add("seed", sampling.seed.to_string(), sampling.seed != default.seed);
    text
}

fn count(n: u32, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Names stand in tables.
fn plain(text: &str) -> String {
    let plain = |c: char| match c {
        '|' => '¦',
        '\u{2028}' | '\u{2029}' => ' ',
        c if c.is_control() => ' ',
        c => c,
    };
    text.chars().map(plain).collect()
}

fn shorten(prompt: &str) -> String {
    let plain = plain(prompt);
    let mut chars = plain.chars();
    let head: String = chars.by_ref().take(16).collect();
    if chars.next().is_some() { format!("{}…", head.trim_end()) } else { head }
}

/// The settings that have more than one value among the cells in which they mean something.
pub(super) fn varying(configs: &[&RunConfig]) -> BTreeSet<String> {
    let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // A file that is not given has no key of its own.
    let no_file = |key: &str| (key.to_owned(), toml::Value::String(String::new()));
    for config in configs {
        let settings = ["warm_profile", "replay_routes"].map(no_file);
        let settings = settings.into_iter().chain(table(config));
        let settings: BTreeMap<String, toml::Value> = settings.collect();
        for (key, value) in settings.into_iter().filter(|(key, _)| applies(key, config)) {
            values.entry(key).or_default().insert(value.to_string());
        }
    }
    values.into_iter().filter(|(_, values)| values.len() > 1).map(|(key, _)| key).collect()
}

/// A cell's id: 12 hex digits of the SHA-256 of its model and of those settings that aren't the
/// default, so that a new setting doesn't change the ids of cells that don't use it.
pub(super) fn cell_id(model: &Model, config: &RunConfig) -> String {
    let default = table(&RunConfig::default());
    let mut settings = table(config);
    settings.remove("model");
    settings.retain(|key, value| default.get(key) != Some(value));
    let mut content = toml::Table::new();
    content.insert("model".to_owned(), toml::Value::String(model_identity(model)));
    content.insert("settings".to_owned(), toml::Value::Table(settings));
    let digest = Sha256::digest(content.to_string());
    digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// What makes two models the same one: the file's name, the beginning of its hash, or how it is synthesised.
fn model_identity(model: &Model) -> String {
    if let Some(sha256) = &model.sha256 {
        return format!("sha256 {}", &sha256[..12].to_ascii_lowercase());
    }
    match (&model.synth, &model.path) {
        (Some(Synth { shape, layers, seed }), _) => {
            let layers = layers.map_or_else(String::new, |n| format!(" layers={n}"));
            format!("synth {shape}{layers} seed={seed}")
        }
        (None, Some(path)) => {
            path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
        }
        (None, None) => model.name.clone(),
    }
}

fn table(config: &RunConfig) -> toml::Table {
    toml::Table::try_from(config).expect("a run configuration has only plain values")
}
