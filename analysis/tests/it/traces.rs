//! Traces to ask: a small one made by hand, and the published one.

use std::path::Path;

use bmoe_analysis::routes::{LoadOptions, RouteEvent, RouteLayer, RouteTrace, load};
use bmoe_cache::{Cache, EntrySizes, PolicyKind};
use bmoe_trace::record::{Phase, Residency};

const MIB: u64 = 1 << 20;

/// Two layers, numbers 1 and 3, of eight experts of 2 and 3 MiB, top-2. A prompt of three tokens (the last layer knows
/// only the last one), then eight tokens; the recorded run had an LRU cache of 10 MiB. Scores of the best four.
pub(crate) fn toy() -> RouteTrace {
    let layers = vec![
        RouteLayer { index: 1, expert_bytes: 2 * MIB },
        RouteLayer { index: 3, expert_bytes: 3 * MIB },
    ];
    let mut trace = RouteTrace::new("toy".into(), "toymoe".into(), layers, 8);
    let sizes = EntrySizes::new(&[2 * MIB, 3 * MIB], 8);
    let mut cache = Cache::new(sizes.clone(), 10 * MIB, PolicyKind::Lru.build(&sizes, 0));
    let mut push = |phase, layer: usize, positions: &[u32], experts: &[u16]| {
        let event = cache.event(layer, experts);
        let residency: Vec<_> = experts
            .iter()
            .map(|e| if event.misses.contains(e) { Residency::Miss } else { Residency::Hit })
            .collect();
        let size = [2 * MIB, 3 * MIB][layer];
        let first = |i: usize| !experts[..i].contains(&experts[i]);
        let read_bytes: Vec<_> = (0..experts.len())
            .map(|i| if residency[i] == Residency::Miss && first(i) { size } else { 0 })
            .collect();
        let weights: Vec<f32> = positions.iter().flat_map(|_| [0.75, 0.25]).collect();
        let (mut scored, mut scores) = (Vec::new(), Vec::new());
        for token in experts.chunks(2) {
            let others = (0..8).filter(|e| !token.contains(e));
            scored.extend(token.iter().copied().chain(others).take(4));
            scores.extend([0.6, 0.2, 0.1, 0.05]);
        }
        let event = RouteEvent {
            phase,
            layer,
            positions,
            experts,
            weights: &weights,
            residency: &residency,
            read_bytes: &read_bytes,
            scored: &scored,
            scores: &scores,
        };
        trace.push(&event).unwrap();
    };
    push(Phase::Prefill, 0, &[0, 1, 2], &[0, 1, 0, 2, 1, 2]);
    push(Phase::Prefill, 1, &[2], &[5, 6]);
    let decode: [[[u16; 2]; 2]; 8] = [
        [[0, 1], [5, 6]],
        [[0, 2], [5, 7]],
        [[1, 0], [6, 5]],
        [[3, 4], [0, 1]],
        [[3, 0], [0, 5]],
        [[0, 1], [5, 6]],
        [[0, 1], [6, 5]],
        [[7, 0], [2, 5]],
    ];
    for (i, layers) in decode.iter().enumerate() {
        for (layer, experts) in layers.iter().enumerate() {
            push(Phase::Decode, layer, &[3 + i as u32], experts);
        }
    }
    trace
}

/// The published Qwen3 trace (`route_trace v1`); `None`, said on standard error, when it is not there.
pub(crate) fn qwen3() -> Option<RouteTrace> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/data/published/2026-07-15-route/qwen.route.csv");
    if !path.exists() {
        eprintln!("skipped: the published data are not at {}", path.display());
        return None;
    }
    Some(load(&path, LoadOptions::default()).unwrap())
}
