//! LRU against a naive model, and the published replay of a real trace.

use std::collections::HashMap;
use std::path::Path;

use bmoe_cache::{Cache, EntrySizes, Key, Lru};
use proptest::prelude::*;

/// The replay rule word for word: one tick an access, look up all, insert all, then evict the oldest.
struct Naive {
    ticks: HashMap<Key, u64>,
    clock: u64,
}

impl Naive {
    fn event(&mut self, sizes: &EntrySizes, budget: u64, layer: usize, experts: &[u16]) -> usize {
        let before: Vec<Key> = self.ticks.keys().copied().collect();
        let mut distinct = experts.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let hits = distinct.iter().filter(|e| before.contains(&sizes.key(layer, **e))).count();
        for &expert in experts {
            self.clock += 1;
            self.ticks.insert(sizes.key(layer, expert), self.clock);
        }
        while self.ticks.keys().map(|k| sizes.bytes(*k)).sum::<u64>() > budget {
            let oldest = *self.ticks.iter().min_by_key(|(_, tick)| **tick).unwrap().0;
            self.ticks.remove(&oldest);
        }
        hits
    }
}

proptest! {
    #[test]
    fn equals_the_rule_read_aloud(
        budget in 0u64..120,
        events in prop::collection::vec((0usize..3, prop::collection::vec(0u16..6, 1..9)), 1..60),
    ) {
        let sizes = EntrySizes::new(&[7, 10, 4], 6);
        let mut cache = Cache::new(sizes.clone(), budget, Lru::new(sizes.entries()));
        let mut naive = Naive { ticks: HashMap::new(), clock: 0 };
        for (layer, experts) in events {
            let hits = naive.event(&sizes, budget, layer, &experts);
            let event = cache.event(layer, &experts).clone();
            prop_assert_eq!(event.hits.len(), hits);
            prop_assert!(cache.resident_bytes() <= budget);
            for key in (0..sizes.entries() as u32).map(Key) {
                prop_assert_eq!(cache.contains(key), naive.ticks.contains_key(&key));
            }
            for expert in &event.transient {
                prop_assert!(!cache.contains(sizes.key(layer, *expert)));
            }
        }
    }
}

#[test]
fn no_budget_keeps_nothing() {
    let sizes = EntrySizes::new(&[5], 4);
    let mut cache = Cache::new(sizes.clone(), 0, Lru::new(sizes.entries()));
    for _ in 0..2 {
        let event = cache.event(0, &[3, 1, 3]);
        assert_eq!((event.hits.len(), event.misses.as_slice()), (0, [3, 1].as_slice()));
        assert_eq!(event.transient.len(), 2);
    }
    assert_eq!(cache.counts().hit_rate(), Some(0.0));
}

/// (phase, step, layer, expert)
type Row = (u8, u32, usize, u16);

/// Rows and bytes per expert of a `route_trace v1` file.
fn read_trace(path: &Path) -> (Vec<Row>, Vec<u64>) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut sizes = Vec::new();
    let mut rows = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# layer=") {
            let bytes = rest.split("expert_bytes=").nth(1).unwrap();
            sizes.push(bytes.split(' ').next().unwrap().parse().unwrap());
        } else if line.starts_with(|c: char| c.is_ascii_digit()) {
            let column: Vec<&str> = line.split(',').collect();
            rows.push((
                column[1].parse().unwrap(),
                column[2].parse().unwrap(),
                column[3].parse().unwrap(),
                column[5].parse().unwrap(),
            ));
        }
    }
    (rows, sizes)
}

#[test]
fn the_published_replay_comes_out() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/published");
    let trace = data.join("2026-07-15-route/qwen.route.csv");
    if !trace.exists() {
        eprintln!("skipped: the published trace is not at {}", trace.display());
        return;
    }
    let (rows, layer_bytes) = read_trace(&trace);
    let sizes = EntrySizes::new(&layer_bytes, 128);

    // Prefill is one event per layer, decode one per (token, layer).
    let mut events: Vec<(u8, usize, Vec<u16>)> = (0..48).map(|l| (0, l, Vec::new())).collect();
    let mut last = (u32::MAX, usize::MAX);
    for (phase, step, layer, expert) in rows {
        if phase == 0 {
            events[layer].2.push(expert);
            continue;
        }
        if last != (step, layer) {
            events.push((1, layer, Vec::new()));
            last = (step, layer);
        }
        events.last_mut().unwrap().2.push(expert);
    }

    let published = std::fs::read_to_string(data.join("2026-07-20-replay/qwen-curve.csv")).unwrap();
    let mut compared = 0;
    for line in published.lines().filter(|l| l.contains(",lru,")) {
        let column: Vec<&str> = line.split(',').collect();
        let budget = column[0].parse::<u64>().unwrap() << 20;
        let mut cache = Cache::new(sizes.clone(), budget, Lru::new(sizes.entries()));
        let (mut decode_hits, mut decode_lookups) = (0, 0);
        for (phase, layer, experts) in &events {
            let event = cache.event(*layer, experts);
            if *phase == 1 {
                decode_hits += event.hits.len();
                decode_lookups += event.hits.len() + event.misses.len();
            }
        }
        let total = 100.0 * cache.counts().hit_rate().unwrap();
        let decode = 100.0 * decode_hits as f64 / decode_lookups as f64;
        let read_mib = cache.counts().miss_bytes as f64 / f64::from(1 << 20);
        let ours = format!("{total:.3},{decode:.3},{read_mib:.1}");
        assert_eq!(ours, column[2..].join(","), "at {} MiB", column[0]);
        compared += 1;
    }
    assert_eq!(compared, 11);
}
