//! Names that people read and ids that machines compare.

use std::collections::BTreeSet;

use bmoe_trace::{Mode, RunConfig};
use sha2::{Digest, Sha256};

use super::{Model, Synth};

/// A cell's name: its mode and cache, then whatever else differs between the cells of the matrix.
pub(super) fn cell_name(config: &RunConfig, varying: &BTreeSet<String>) -> String {
    let mut parts = vec![config.mode.to_string()];
    if config.mode == Mode::Stream {
        parts.push(match config.cache_mib {
            0 => "cache off".to_owned(),
            mib => format!("cache {mib} MiB"),
        });
        parts.push(count(config.io_threads, "lane"));
        if !config.odirect {
            parts.push("buffered".to_owned());
        }
    }
    let others = [
        ("n_expert_used", format!("top-{}", config.n_expert_used)),
        ("n_predict", count(config.n_predict, "token")),
        ("ctx_tokens", format!("context {}", config.ctx_tokens)),
        ("ubatch_tokens", format!("micro-batch {}", config.ubatch_tokens)),
        ("threads", count(config.threads, "thread")),
        ("prompt", format!("prompt \"{}\"", shorten(&config.prompt))),
    ];
    for (key, text) in others {
        if varying.contains(key) {
            parts.push(match (key, config.n_expert_used, config.threads) {
                ("n_expert_used", 0, _) => "the model's top-k".to_owned(),
                ("threads", _, 0) => "all threads".to_owned(),
                _ => text,
            });
        }
    }
    parts.join(", ")
}

fn count(n: u32, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn shorten(prompt: &str) -> String {
    // Names stand in tables.
    let mut chars = prompt.chars().map(|c| match c {
        '|' => '¦',
        '\u{2028}' | '\u{2029}' => ' ',
        c if c.is_control() => ' ',
        c => c,
    });
    let head: String = chars.by_ref().take(16).collect();
    if chars.next().is_some() { format!("{}…", head.trim_end()) } else { head }
}

/// The settings that have more than one value among the cells.
pub(super) fn varying(configs: &[&RunConfig]) -> BTreeSet<String> {
    let tables: Vec<toml::Table> = configs.iter().map(|c| table(c)).collect();
    let Some(first) = tables.first() else { return BTreeSet::new() };
    first
        .keys()
        .filter(|key| tables.iter().any(|t| t.get(*key) != first.get(*key)))
        .cloned()
        .collect()
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

/// What makes two models the same one: the file's name, or how it is synthesised.
fn model_identity(model: &Model) -> String {
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
