//! The published replays of real traces, to the last digit.

mod common;

use bmoe_cache::{Cache, EntrySizes, Layered, Lfru, Lfu, Lru, Overshoot, Policy, PolicyKind};
use common::Access;

/// The published replays let an event larger than the budget stay until the next one.
fn cache<P: Policy>(sizes: &EntrySizes, budget_bytes: u64, policy: P) -> Cache<P> {
    Cache::new(sizes.clone(), budget_bytes, policy).with_overshoot(Overshoot::KeepUntilNextEvent)
}

/// Hit rate of decode in percent.
fn decode_hit_pct<P: Policy>(cache: &mut Cache<P>, events: &[Access]) -> f64 {
    let (mut hits, mut lookups) = (0, 0);
    for access in events {
        let event = cache.event(access.layer, &access.experts);
        if access.decode {
            hits += event.hits.len();
            lookups += event.hits.len() + event.misses.len();
        }
    }
    100.0 * hits as f64 / lookups as f64
}

/// Rows of `qwen-curve.csv` of one policy against ours.
fn check_curve(published_name: &str, kind: PolicyKind) {
    let Some((sizes, events)) = common::qwen3() else { return };
    let curve = common::shared("published/2026-07-20-replay/qwen-curve.csv").unwrap();
    let mut differences = Vec::new();
    let mut compared = 0;
    for line in std::fs::read_to_string(curve).unwrap().lines() {
        let column: Vec<&str> = line.split(',').collect();
        if column[1] != published_name {
            continue;
        }
        let budget = column[0].parse::<u64>().unwrap() << 20;
        let mut cache = cache(&sizes, budget, kind.build(&sizes, 0));
        let decode = decode_hit_pct(&mut cache, &events);
        let total = 100.0 * cache.counts().hit_rate().unwrap();
        let read_mib = cache.counts().miss_bytes as f64 / f64::from(1 << 20);
        let ours = format!("{total:.3},{decode:.3},{read_mib:.1}");
        if ours != column[2..].join(",") {
            differences.push(format!("{}: {} ours {ours}", column[0], column[2..].join(",")));
        }
        compared += 1;
    }
    assert_eq!(differences, Vec::<String>::new());
    assert_eq!(compared, 11);
}

#[test]
fn lru_of_qwen3_at_eleven_budgets() {
    check_curve("lru", PolicyKind::Lru);
}

#[test]
fn lfu_of_qwen3_at_eleven_budgets() {
    check_curve("lfu", PolicyKind::Lfu);
}

#[test]
fn layer_lru_of_qwen3_at_eleven_budgets() {
    check_curve("layer", PolicyKind::LayerLru);
}

#[test]
fn layer_lfu_of_qwen3_at_eleven_budgets() {
    check_curve("layerlfu", PolicyKind::LayerLfu);
}

/// The table of slots per layer: `slots` entries a layer, decode only, ties by the smallest id, which is
/// what a router's order sorted by id gives.
fn check_slots(sizes: &EntrySizes, events: &[Access], slots: [u64; 3], published: [[&str; 3]; 3]) {
    let sizes = EntrySizes::new(&vec![1; sizes.layers()], sizes.n_expert());
    let mut events: Vec<Access> = events.iter().filter(|e| e.decode).cloned().collect();
    events.iter_mut().for_each(|access| access.experts.sort_unstable());
    let entries = |layer: &EntrySizes| layer.entries();
    let n_layer = sizes.layers() as u64;
    let ours = slots.map(|slots| {
        let budget = slots * n_layer;
        let lru = Layered::new(&sizes, |layer, _| Lru::new(entries(layer)));
        let lfu = Layered::new(&sizes, |layer, _| Lfu::new(entries(layer)));
        let lfru = Layered::new(&sizes, |layer, _| Lfru::new(entries(layer)));
        [
            decode_hit_pct(&mut cache(&sizes, budget, lru), &events),
            decode_hit_pct(&mut cache(&sizes, budget, lfu), &events),
            decode_hit_pct(&mut cache(&sizes, budget, lfru), &events),
        ]
        .map(|pct| format!("{pct:.2}"))
    });
    assert_eq!(ours, published);
}

#[test]
fn slots_per_layer_of_kimi() {
    let Some((sizes, events)) = common::kimi() else { return };
    assert_eq!(events.len(), 300 * 26);
    check_slots(
        &sizes,
        &events,
        [8, 16, 32],
        [["33.45", "33.45", "33.45"], ["45.74", "47.68", "48.76"], ["58.40", "59.60", "61.39"]],
    );
}

#[test]
fn slots_per_layer_of_qwen3() {
    let Some((sizes, events)) = common::qwen3() else { return };
    check_slots(
        &sizes,
        &events,
        [6, 12, 24],
        [["37.65", "37.65", "37.65"], ["52.22", "56.83", "56.21"], ["72.26", "75.01", "75.14"]],
    );
}
