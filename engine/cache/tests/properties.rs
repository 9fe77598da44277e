//! What every policy promises, with events, prefetches, preloads and changing budgets in any order.

use std::collections::{BTreeSet, HashSet};

use bmoe_cache::{Admission, AnyPolicy, Cache, Counts, EntrySizes, Event, Key, Policy, PolicyKind};
use proptest::prelude::*;

const LAYERS: [u64; 3] = [7, 10, 4];
const EXPERTS: u16 = 6;

#[derive(Debug, Clone)]
enum Call {
    Event(usize, Vec<u16>),
    Prefetch(usize, u16),
    Warm(Vec<u32>),
    SetBudget(u64),
}

/// Mostly events; small budgets are frequent, so that all entries of an event don't always fit.
fn calls() -> impl Strategy<Value = Vec<Call>> {
    let layer = 0..LAYERS.len();
    let event = (layer.clone(), prop::collection::vec(0..EXPERTS, 1..9))
        .prop_map(|(layer, experts)| Call::Event(layer, experts));
    let prefetch = (layer, 0..EXPERTS).prop_map(|(layer, expert)| Call::Prefetch(layer, expert));
    let warm = prop::collection::vec(0u32..18, 1..8).prop_map(Call::Warm);
    let budget = (0u64..130).prop_map(Call::SetBudget);
    let call = prop_oneof![8 => event, 6 => prefetch, 1 => warm, 1 => budget];
    prop::collection::vec(call, 1..80)
}

fn kind() -> impl Strategy<Value = PolicyKind> {
    prop::sample::select(PolicyKind::ALL.to_vec())
}

fn sizes() -> EntrySizes {
    EntrySizes::new(&LAYERS, u32::from(EXPERTS))
}

fn cache(kind: PolicyKind, budget: u64) -> Cache {
    Cache::new(sizes(), budget, kind.build(&sizes(), 9))
}

fn keys() -> impl Iterator<Item = Key> {
    (0..sizes().entries() as u32).map(Key)
}

fn residents(cache: &Cache) -> BTreeSet<Key> {
    keys().filter(|key| cache.contains(*key)).collect()
}

/// All that a policy would give up, one by one.
fn drained(policy: &AnyPolicy) -> Vec<Key> {
    let mut policy = policy.clone();
    let mut all = Vec::new();
    for layer in 0..LAYERS.len() {
        while let Some(key) = policy.evict(layer, |_| false) {
            all.push(key);
        }
    }
    all
}

/// The entries that share a budget with a layer's.
fn shares_with(cache: &Cache, layer: usize, key: Key) -> bool {
    !cache.policy().per_layer() || sizes().layer(key) == layer
}

/// The cache told from its answers alone.
#[derive(Default)]
struct Model {
    residents: BTreeSet<Key>,
    unused_prefetches: BTreeSet<Key>,
    counts: Counts,
}

impl Model {
    fn leave(&mut self, key: Key) {
        assert!(self.residents.remove(&key), "{key:?} left without having been there");
        self.counts.evictions += 1;
        if self.unused_prefetches.remove(&key) {
            self.counts.prefetch_wasted += 1;
            self.counts.prefetch_wasted_bytes += sizes().bytes(key);
        }
    }

    fn event(&mut self, layer: usize, experts: &[u16], event: &Event) {
        let sizes = sizes();
        let mut seen = HashSet::new();
        let (mut hits, mut prefetch_hits, mut misses) = (Vec::new(), Vec::new(), Vec::new());
        for &expert in experts.iter().filter(|expert| seen.insert(**expert)) {
            let key = sizes.key(layer, expert);
            if self.residents.contains(&key) {
                hits.push(expert);
                self.counts.hits += 1;
                if self.unused_prefetches.remove(&key) {
                    prefetch_hits.push(expert);
                    self.counts.prefetch_useful += 1;
                    self.counts.prefetch_useful_bytes += sizes.bytes(key);
                }
            } else {
                misses.push(expert);
                self.counts.misses += 1;
                self.counts.miss_bytes += sizes.bytes(key);
            }
        }
        assert_eq!((&event.hits, &event.misses), (&hits, &misses));
        assert_eq!(event.prefetch_hits, prefetch_hits);
        for &key in &event.evicted {
            assert!(!(sizes.layer(key) == layer && seen.contains(&sizes.expert(key))));
            self.leave(key);
        }
        self.residents.extend(misses.iter().map(|expert| sizes.key(layer, *expert)));
        for &expert in &event.transient {
            self.leave(sizes.key(layer, expert));
        }
    }
}

/// Makes the calls, checks every promise, and returns what the events did.
fn run(kind: PolicyKind, budget: u64, calls: &[Call]) -> (Vec<Event>, Counts) {
    let sizes = sizes();
    let mut cache = cache(kind, budget);
    let mut model = Model::default();
    let mut events = Vec::new();
    let mut last: Option<(usize, Vec<u16>)> = None;
    for call in calls {
        match call {
            Call::Event(layer, experts) => {
                let event = cache.event(*layer, experts).clone();
                model.event(*layer, experts, &event);
                if !event.transient.is_empty() {
                    // The event's own entries go only when nothing else is left.
                    for key in residents(&cache) {
                        let of_event =
                            sizes.layer(key) == *layer && experts.contains(&sizes.expert(key));
                        assert!(of_event || !shares_with(&cache, *layer, key));
                    }
                }
                events.push(event);
                last = Some((*layer, experts.clone()));
            }
            Call::Prefetch(layer, expert) => {
                let key = sizes.key(*layer, *expert);
                let protected = |model: &Model, key: Key| {
                    model.unused_prefetches.contains(&key)
                        || last.as_ref().is_some_and(|(layer, experts)| {
                            sizes.layer(key) == *layer && experts.contains(&sizes.expert(key))
                        })
                };
                match cache.prefetch(*layer, *expert) {
                    Admission::Resident => assert!(model.residents.contains(&key)),
                    Admission::Admitted { evicted } => {
                        for &victim in evicted {
                            assert!(!protected(&model, victim));
                            model.leave(victim);
                        }
                        assert!(model.residents.insert(key));
                        model.unused_prefetches.insert(key);
                        model.counts.prefetched += 1;
                        model.counts.prefetched_bytes += sizes.bytes(key);
                    }
                    Admission::Refused => {
                        model.counts.prefetch_refused += 1;
                        let share = match cache.policy().per_layer() {
                            true => cache.budget_bytes() / LAYERS.len() as u64,
                            false => cache.budget_bytes(),
                        };
                        let taken: u64 = (model.residents.iter())
                            .filter(|key| shares_with(&cache, *layer, **key))
                            .filter(|key| protected(&model, **key))
                            .map(|key| sizes.bytes(*key))
                            .sum();
                        assert!(taken + sizes.bytes(key) > share);
                    }
                }
            }
            Call::Warm(keys) => {
                let keys: Vec<Key> = keys.iter().map(|key| Key(*key)).collect();
                for key in cache.warm(&keys) {
                    assert!(model.residents.insert(key));
                    model.counts.preloaded += 1;
                    model.counts.preloaded_bytes += sizes.bytes(key);
                }
            }
            Call::SetBudget(bytes) => {
                cache.set_budget(*bytes).to_vec().into_iter().for_each(|key| model.leave(key));
                assert_eq!(cache.budget_bytes(), *bytes);
            }
        }
        let held: u64 = model.residents.iter().map(|key| sizes.bytes(*key)).sum();
        assert_eq!(cache.resident_bytes(), held);
        assert!(held <= cache.budget_bytes());
        if cache.policy().per_layer() {
            for (layer, bytes) in LAYERS.into_iter().enumerate() {
                let of_layer = model.residents.iter().filter(|key| sizes.layer(**key) == layer);
                let held = of_layer.count() as u64 * bytes;
                assert!(held <= cache.budget_bytes() / LAYERS.len() as u64);
            }
        }
        assert_eq!(residents(&cache), model.residents);
        let drained = drained(cache.policy());
        assert_eq!(drained.len(), model.residents.len());
        assert_eq!(drained.into_iter().collect::<BTreeSet<_>>(), model.residents);
        assert_eq!(cache.counts(), model.counts);
        let pending = model.unused_prefetches.len() as u64;
        let counts = cache.counts();
        assert_eq!(counts.prefetched, counts.prefetch_useful + counts.prefetch_wasted + pending);
    }
    (events, cache.counts())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_promises_hold(kind in kind(), budget in 0u64..130, calls in calls()) {
        let first = run(kind, budget, &calls);
        prop_assert_eq!(&run(kind, budget, &calls), &first, "the same calls, another result");
    }

    #[test]
    fn refused_prefetches_leave_no_trace(kind in kind(), budget in 0u64..130, calls in calls()) {
        let mut whole = cache(kind, budget);
        let mut without = cache(kind, budget);
        for call in calls {
            match call {
                Call::Event(layer, experts) => {
                    prop_assert_eq!(whole.event(layer, &experts), without.event(layer, &experts));
                }
                Call::Prefetch(layer, expert) => {
                    if let Admission::Admitted { .. } = whole.prefetch(layer, expert) {
                        let admitted =
                            matches!(without.prefetch(layer, expert), Admission::Admitted { .. });
                        prop_assert!(admitted);
                    }
                }
                Call::Warm(keys) => {
                    let keys: Vec<Key> = keys.into_iter().map(Key).collect();
                    prop_assert_eq!(whole.warm(&keys), without.warm(&keys));
                }
                Call::SetBudget(bytes) => {
                    prop_assert_eq!(whole.set_budget(bytes), without.set_budget(bytes));
                }
            }
        }
    }

    #[test]
    fn a_bank_that_fits_has_cold_misses_only(
        kind in kind(),
        events in prop::collection::vec(
            (0..LAYERS.len(), prop::collection::vec(0..EXPERTS, 1..9)), 1..60),
    ) {
        // Shares are equal, so the largest layer decides what "fits" is.
        let budget = 10 * u64::from(EXPERTS) * LAYERS.len() as u64;
        let mut cache = cache(kind, budget);
        let mut seen = BTreeSet::new();
        for (layer, experts) in events {
            let cold = experts.iter().filter(|e| seen.insert((layer, **e))).count();
            prop_assert_eq!(cache.event(layer, &experts).misses.len(), cold);
        }
        prop_assert_eq!(cache.counts().evictions, 0);
    }

    #[test]
    fn protected_entries_are_never_given_up(
        kind in kind(),
        inserted in prop::collection::btree_set(0u32..18, 1..18),
        protected in prop::collection::btree_set(0u32..18, 0..18),
        hits in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
    ) {
        let mut policy = kind.build(&sizes(), 3);
        policy.set_budget(60);
        let inserted: Vec<u32> = inserted.into_iter().collect();
        for &key in &inserted {
            policy.announce(Key(key));
            policy.insert(Key(key));
        }
        for hit in hits {
            policy.begin_token();
            policy.hit(Key(inserted[hit.index(inserted.len())]));
        }
        let mut left: BTreeSet<u32> = inserted.into_iter().collect();
        for layer in 0..LAYERS.len() {
            while let Some(victim) = policy.evict(layer, |key| protected.contains(&key.0)) {
                prop_assert!(!protected.contains(&victim.0));
                prop_assert!(left.remove(&victim.0));
            }
        }
        prop_assert!(left.iter().all(|key| protected.contains(key)), "unprotected ones are left");
    }
}
