//! Traces to replay.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::{Path, PathBuf};

use bmoe_cache::EntrySizes;

/// All experts that one layer uses for one micro-batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) decode: bool,
    pub(crate) layer: usize,
    pub(crate) experts: Vec<u16>,
}

/// A file of `../shared/data`; says that the test skips when it isn't there.
pub(crate) fn shared(file: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(file);
    if !path.exists() {
        eprintln!("skipped: the published data are not at {}", path.display());
        return None;
    }
    Some(path)
}

/// The Qwen3 trace (`route_trace v1`): prefill is one event per layer, decode one per (token, layer).
pub(crate) fn qwen3() -> Option<(EntrySizes, Vec<Access>)> {
    let text =
        std::fs::read_to_string(shared("published/2026-07-15-route/qwen.route.csv")?).unwrap();
    let mut layer_bytes = Vec::new();
    let mut events: Vec<Access> =
        (0..48).map(|layer| Access { decode: false, layer, experts: Vec::new() }).collect();
    let mut last = (0, 0);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# layer=") {
            let bytes = rest.split("expert_bytes=").nth(1).unwrap();
            layer_bytes.push(bytes.split(' ').next().unwrap().parse().unwrap());
        } else if line.starts_with(|c: char| c.is_ascii_digit()) {
            let column: Vec<u32> =
                line.split(',').take(6).map(|value| value.parse().unwrap()).collect();
            let (phase, step, layer, expert) =
                (column[1], column[2], column[3] as usize, column[5] as u16);
            if phase == 0 {
                events[layer].experts.push(expert);
                continue;
            }
            if last != (step, layer) {
                events.push(Access { decode: true, layer, experts: Vec::new() });
                last = (step, layer);
            }
            events.last_mut().unwrap().experts.push(expert);
        }
    }
    Some((EntrySizes::new(&layer_bytes, 128), events))
}

/// The Kimi trace (a JSON line a token): decode only, all entries of one byte.
pub(crate) fn kimi() -> Option<(EntrySizes, Vec<Access>)> {
    let text = std::fs::read_to_string(shared("routes/kimi-linear-48b.300tok.jsonl")?).unwrap();
    let mut events = Vec::new();
    for line in text.lines() {
        let layers = line.split("\"layers\": [").nth(1).unwrap().trim_end_matches(['}', ']']);
        for (layer, experts) in layers.split("], ").enumerate() {
            let experts = experts.trim_matches(['[', ']']).split(", ");
            let experts = experts.map(|expert| expert.parse().unwrap()).collect();
            events.push(Access { decode: true, layer, experts });
        }
    }
    Some((EntrySizes::new(&[1; 26], 256), events))
}
