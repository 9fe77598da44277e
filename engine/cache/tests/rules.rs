//! Policies against their rule read aloud: sort all residents at every eviction.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bmoe_cache::{Cache, EntrySizes, Key, Lfru, Policy, PolicyKind};
use proptest::prelude::*;

/// What is known of an entry, all of it.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    resident: bool,
    /// Tick of the last access, of the insertion.
    tick: u64,
    inserted: u64,
    token: u64,
    touches_ever: u64,
    /// LFU-DA.
    touches_since: u64,
    value: u64,
}

/// The lowest goes first.
fn order(kind: PolicyKind, token: u64, (a, x): (Key, Entry), (b, y): (Key, Entry)) -> Ordering {
    let ticks = x.tick.cmp(&y.tick);
    match kind {
        PolicyKind::Lru | PolicyKind::LayerLru => ticks,
        PolicyKind::Lfu | PolicyKind::LayerLfu => x.touches_ever.cmp(&y.touches_ever).then(ticks),
        PolicyKind::LfuAged => x.value.cmp(&y.value).then(ticks),
        PolicyKind::Fifo => x.inserted.cmp(&y.inserted),
        PolicyKind::Lfru => {
            let (age_x, age_y) = (token - x.token + 1, token - y.token + 1);
            (x.touches_ever * age_y).cmp(&(y.touches_ever * age_x)).then(a.cmp(&b))
        }
        _ => unreachable!("not among the tested"),
    }
}

struct Naive {
    kind: PolicyKind,
    sizes: EntrySizes,
    /// Of the cache, or of each layer.
    share: u64,
    entries: BTreeMap<Key, Entry>,
    tick: u64,
    token: u64,
    age: u64,
    last_layer: usize,
}

impl Naive {
    fn evict_down_to(&mut self, room: u64, layer: usize, spared: &[u16]) {
        let per_layer = matches!(self.kind, PolicyKind::LayerLru | PolicyKind::LayerLfu);
        loop {
            let residents: Vec<(Key, Entry)> = (self.entries.iter())
                .filter(|(key, entry)| {
                    entry.resident && (!per_layer || self.sizes.layer(**key) == layer)
                })
                .map(|(key, entry)| (*key, *entry))
                .collect();
            if residents.iter().map(|(key, _)| self.sizes.bytes(*key)).sum::<u64>() <= room {
                return;
            }
            let spare = |key: Key| {
                self.sizes.layer(key) == layer && spared.contains(&self.sizes.expert(key))
            };
            let victim = (residents.into_iter())
                .filter(|(key, _)| !spare(*key))
                .min_by(|x, y| order(self.kind, self.token, *x, *y));
            let Some((victim, entry)) = victim else { return };
            self.entries.get_mut(&victim).unwrap().resident = false;
            self.age = self.age.max(entry.value);
        }
    }

    fn event(&mut self, layer: usize, experts: &[u16]) -> usize {
        if layer <= self.last_layer {
            self.token += 1;
        }
        self.last_layer = layer;
        let mut distinct = experts.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let there = |e: &&u16| {
            self.entries.get(&self.sizes.key(layer, **e)).is_some_and(|entry| entry.resident)
        };
        let hits = distinct.iter().filter(there).count();
        let incoming = (distinct.len() - hits) as u64 * self.sizes.layer_bytes(layer);
        // Room for the missing ones; when even an empty cache hasn't that much, all others go.
        self.evict_down_to(self.share.saturating_sub(incoming), layer, experts);
        for (i, &expert) in experts.iter().enumerate() {
            self.tick += 1;
            let entry = self.entries.entry(self.sizes.key(layer, expert)).or_default();
            entry.tick = self.tick;
            entry.token = self.token;
            if !entry.resident {
                (entry.resident, entry.inserted, entry.touches_since) = (true, self.tick, 0);
            }
            if !experts[..i].contains(&expert) {
                entry.touches_ever += 1;
                entry.touches_since += 1;
                entry.value = entry.touches_since + self.age;
            }
        }
        self.evict_down_to(self.share, layer, &[]);
        hits
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn equals_the_rule_read_aloud(
        kind in prop::sample::select(vec![
            PolicyKind::Lru, PolicyKind::Lfu, PolicyKind::LfuAged, PolicyKind::Lfru,
            PolicyKind::Fifo, PolicyKind::LayerLru, PolicyKind::LayerLfu,
        ]),
        budget in 0u64..160,
        events in prop::collection::vec((0usize..3, prop::collection::vec(0u16..6, 1..9)), 1..80),
    ) {
        let sizes = EntrySizes::new(&[7, 10, 4], 6);
        let mut cache = Cache::new(sizes.clone(), budget, kind.build(&sizes, 0));
        let shares = if kind.name().starts_with("layer-") { 3 } else { 1 };
        let mut naive = Naive {
            kind, sizes: sizes.clone(), share: budget / shares, entries: BTreeMap::new(),
            tick: 0, token: 0, age: 0, last_layer: usize::MAX,
        };
        for (layer, experts) in events {
            let hits = naive.event(layer, &experts);
            prop_assert_eq!(cache.event(layer, &experts).hits.len(), hits);
            for key in (0..sizes.entries() as u32).map(Key) {
                let there = naive.entries.get(&key).is_some_and(|entry| entry.resident);
                prop_assert_eq!(cache.contains(key), there, "{:?} under {}", key, kind);
            }
        }
    }
}

#[test]
fn no_budget_keeps_nothing() {
    let sizes = EntrySizes::new(&[5], 4);
    for kind in PolicyKind::ALL {
        let mut cache = Cache::new(sizes.clone(), 0, kind.build(&sizes, 0));
        for _ in 0..2 {
            let event = cache.event(0, &[3, 1, 3]);
            assert_eq!((event.hits.len(), event.misses.as_slice()), (0, [3, 1].as_slice()));
            assert_eq!(event.transient.len(), 2, "{kind}");
        }
        assert_eq!(cache.counts().hit_rate(), Some(0.0));
    }
}

#[test]
fn a_large_cache_finds_the_same_victims_as_the_rule() {
    // Several blocks of residents, several evictions an event, and ratios of counts and ages close together.
    let sizes = EntrySizes::new(&[1; 4], 128);
    let mut state = 1u64;
    let mut random = move |n: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for kind in [PolicyKind::Lfru, PolicyKind::LfuAged, PolicyKind::Lfu] {
        let mut cache = Cache::new(sizes.clone(), 200, kind.build(&sizes, 0));
        let mut naive = Naive {
            kind,
            sizes: sizes.clone(),
            share: 200,
            entries: BTreeMap::new(),
            tick: 0,
            token: 0,
            age: 0,
            last_layer: usize::MAX,
        };
        for i in 0..2000 {
            let experts: Vec<u16> = (0..12).map(|_| (random(12) * random(11)) as u16).collect();
            let hits = naive.event(i % 4, &experts);
            assert_eq!(cache.event(i % 4, &experts).hits.len(), hits, "event {i} under {kind}");
        }
    }
}

#[test]
fn lfru_gives_up_a_thousand_entries_in_the_order_of_its_rule() {
    let mut policy = Lfru::new(1000);
    let mut state = 5u64;
    let mut entries: Vec<(Key, u64, u64)> = Vec::new();
    for key in (0..1000).map(Key) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let touches = 1 + (state >> 33) % 40;
        policy.begin_token();
        policy.insert(key);
        (1..touches).for_each(|_| policy.hit(key));
        entries.push((key, touches, 1000 - u64::from(key.0)));
    }
    entries.sort_by(|(a, x, age_x), (b, y, age_y)| (x * age_y).cmp(&(y * age_x)).then(a.cmp(b)));
    let order: Vec<Key> = entries.into_iter().map(|(key, ..)| key).collect();
    let given_up: Vec<Key> = std::iter::from_fn(|| policy.evict(0, |_| false)).collect();
    assert_eq!(given_up, order);
}
