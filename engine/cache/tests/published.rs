//! The published replays of real traces, to the last digit.

mod common;

use bmoe_cache::{Cache, EntrySizes, Layered, Lfru, Lfu, Lru, Overshoot, Policy, PolicyKind};
use common::Access;

/// The published replays let an event larger than its share stay until the layer's next one.
fn overshooting<P: Policy>(sizes: &EntrySizes, budget_bytes: u64, policy: P) -> Cache<P> {
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
fn check_curve(published_name: &str, kind: PolicyKind, overshoot: Overshoot) {
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
        let cache = Cache::new(sizes.clone(), budget, kind.build(&sizes, 0));
        let mut cache = cache.with_overshoot(overshoot);
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

/// The published replay shows this curve for layers whose shares are as small as one expert.
#[test]
fn shares_below_one_event_differ_when_nothing_may_overshoot() {
    let Some((sizes, events)) = common::qwen3() else { return };
    let strict = |mib: u64| {
        let policy = PolicyKind::LayerLru.build(&sizes, 0);
        let mut cache = Cache::new(sizes.clone(), mib << 20, policy);
        format!("{:.3}", decode_hit_pct(&mut cache, &events))
    };
    // Published: 38.344, 38.344, 42.337, 79.715.
    assert_eq!([250, 750, 1000, 4000].map(strict), ["7.699", "34.494", "41.867", "79.438"]);
}

/// Another generator than the published one, so near it and not equal.
#[test]
fn random_of_qwen3_is_near_the_published_one() {
    let Some((sizes, events)) = common::qwen3() else { return };
    for (mib, published) in [(1000, 26.750), (2000, 49.064), (4000, 74.034), (8000, 93.099)] {
        let runs = (0..8).map(|seed| {
            let policy = PolicyKind::Random.build(&sizes, seed);
            decode_hit_pct(&mut Cache::new(sizes.clone(), mib << 20, policy), &events)
        });
        let mean = runs.sum::<f64>() / 8.0;
        assert!((mean - published).abs() < 0.5, "{mib} MiB: {mean:.3}, published {published}");
    }
}

#[test]
fn lru_of_qwen3_at_eleven_budgets() {
    check_curve("lru", PolicyKind::Lru, Overshoot::Never);
}

#[test]
fn lfu_of_qwen3_at_eleven_budgets() {
    check_curve("lfu", PolicyKind::Lfu, Overshoot::Never);
}

#[test]
fn layer_lru_of_qwen3_at_eleven_budgets() {
    check_curve("layer", PolicyKind::LayerLru, Overshoot::KeepUntilNextEvent);
}

#[test]
fn layer_lfu_of_qwen3_at_eleven_budgets() {
    check_curve("layerlfu", PolicyKind::LayerLfu, Overshoot::KeepUntilNextEvent);
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
            decode_hit_pct(&mut overshooting(&sizes, budget, lru), &events),
            decode_hit_pct(&mut overshooting(&sizes, budget, lfu), &events),
            decode_hit_pct(&mut overshooting(&sizes, budget, lfru), &events),
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
