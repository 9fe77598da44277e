//! Traces to replay.

use std::path::{Path, PathBuf};

use bmoe_analysis::routes::{LoadOptions, RouteEvent, RouteTrace, load};
use bmoe_trace::record::Phase;

/// What replays need.
pub(crate) const ONLY_EXPERTS: LoadOptions =
    LoadOptions { weights: false, residency: false, scores: false };

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

/// The Qwen3 trace (`route_trace v1`): 48 layers of 128 experts, top-6, a prompt of 28 tokens and 128 generated ones.
pub(crate) fn qwen3() -> Option<RouteTrace> {
    Some(load(&shared("published/2026-07-15-route/qwen.route.csv")?, ONLY_EXPERTS).unwrap())
}

/// The Kimi trace (a JSON line a token): 26 layers of 256 experts, top-8, 300 generated tokens, no sizes.
pub(crate) fn kimi() -> Option<RouteTrace> {
    Some(load(&shared("routes/kimi-linear-48b.300tok.jsonl")?, ONLY_EXPERTS).unwrap())
}
