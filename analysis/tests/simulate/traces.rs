//! Traces to replay.

use std::path::{Path, PathBuf};

use bmoe_analysis::routes::{RouteEvent, RouteLayer, RouteTrace};
use bmoe_trace::record::Phase;

/// An event with nothing but routes.
pub(crate) fn push(
    trace: &mut RouteTrace,
    phase: Phase,
    layer: usize,
    positions: &[u32],
    experts: &[u16],
) {
    let event = RouteEvent {
        phase,
        layer,
        positions,
        experts,
        weights: &[],
        residency: &[],
        read_bytes: &[],
        scored: &[],
        scores: &[],
    };
    trace.push(&event).unwrap();
}

/// A file of `../shared/data`; says that the test skips when it isn't there.
pub(crate) fn shared(file: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(file);
    if !path.exists() {
        eprintln!("skipped: the published data are not beside this repository ({file})");
        return None;
    }
    Some(path)
}

/// The Qwen3 trace (`route_trace v1`): prefill is one event per layer, decode one per (token, layer).
pub(crate) fn qwen3() -> Option<RouteTrace> {
    let text =
        std::fs::read_to_string(shared("published/2026-07-15-route/qwen.route.csv")?).unwrap();
    let mut layers = Vec::new();
    // (phase, layer, position, experts) of every token and layer, as they stand.
    let mut rows: Vec<(Phase, usize, u32, Vec<u16>)> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# layer=") {
            let bytes = rest.split("expert_bytes=").nth(1).unwrap();
            let expert_bytes = bytes.split(' ').next().unwrap().parse().unwrap();
            layers.push(RouteLayer { index: layers.len() as u32, expert_bytes });
        } else if line.starts_with(|c: char| c.is_ascii_digit()) {
            let column: Vec<u32> =
                line.split(',').take(6).map(|value| value.parse().unwrap()).collect();
            let phase = if column[1] == 0 { Phase::Prefill } else { Phase::Decode };
            let (position, layer, expert) = (column[2], column[3] as usize, column[5] as u16);
            match rows.last_mut() {
                Some(row) if (row.1, row.2) == (layer, position) => row.3.push(expert),
                _ => rows.push((phase, layer, position, vec![expert])),
            }
        }
    }
    let mut trace = RouteTrace::new("qwen3".into(), "qwen3moe".into(), layers, 128);
    for layer in 0..48 {
        let prefill = rows.iter().filter(|row| row.0 == Phase::Prefill && row.1 == layer);
        let (positions, experts): (Vec<u32>, Vec<Vec<u16>>) =
            prefill.map(|row| (row.2, row.3.clone())).unzip();
        push(&mut trace, Phase::Prefill, layer, &positions, &experts.concat());
    }
    for (phase, layer, position, experts) in rows {
        if phase == Phase::Decode {
            push(&mut trace, phase, layer, &[position], &experts);
        }
    }
    Some(trace)
}

/// The Kimi trace (a JSON line a token): decode only, no sizes.
pub(crate) fn kimi() -> Option<RouteTrace> {
    let text = std::fs::read_to_string(shared("routes/kimi-linear-48b.300tok.jsonl")?).unwrap();
    let layers = (0..26).map(|index| RouteLayer { index, expert_bytes: 0 }).collect();
    let mut trace = RouteTrace::new("kimi".into(), String::new(), layers, 256);
    for line in text.lines() {
        let token: serde_json::Value = serde_json::from_str(line).unwrap();
        let position = token["tok"].as_u64().unwrap() as u32;
        for (layer, experts) in token["layers"].as_array().unwrap().iter().enumerate() {
            let experts: Vec<u16> =
                experts.as_array().unwrap().iter().map(|e| e.as_u64().unwrap() as u16).collect();
            push(&mut trace, Phase::Decode, layer, &[position], &experts);
        }
    }
    Some(trace)
}
