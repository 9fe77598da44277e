//! Entries that come in before they are used, and budgets that change, by example.

use bmoe_cache::{Admission, Cache, Counts, EntrySizes, Key, PolicyKind};

/// Two layers of eight experts, 10 and 20 bytes an expert.
fn cache(kind: PolicyKind, budget: u64) -> Cache {
    let sizes = EntrySizes::new(&[10, 20], 8);
    Cache::new(sizes.clone(), budget, kind.build(&sizes, 0))
}

#[test]
fn a_prefetch_is_no_look_up_and_its_first_use_is_a_hit_of_its_own() {
    let mut cache = cache(PolicyKind::Lru, 60);
    assert_eq!(cache.prefetch(1, 3), Admission::Admitted { evicted: &[] });
    assert_eq!(cache.prefetch(1, 3), Admission::Resident);
    assert_eq!((cache.resident_bytes(), cache.counts().hit_rate()), (20, None));

    let event = cache.event(1, &[3, 4, 3]);
    assert_eq!((event.hits.as_slice(), event.misses.as_slice()), ([3].as_slice(), [4].as_slice()));
    assert_eq!(event.prefetch_hits, [3]);
    let event = cache.event(1, &[3]);
    assert_eq!(
        (event.hits.as_slice(), event.prefetch_hits.as_slice()),
        ([3].as_slice(), [].as_slice())
    );

    let expected = Counts {
        hits: 2,
        misses: 1,
        miss_bytes: 20,
        prefetched: 1,
        prefetched_bytes: 20,
        prefetch_useful: 1,
        prefetch_useful_bytes: 20,
        ..Counts::default()
    };
    assert_eq!(cache.counts(), expected);
}

#[test]
fn a_prefetch_takes_the_policys_victim_but_no_running_or_waiting_one() {
    let mut cache = cache(PolicyKind::Lru, 60);
    let sizes = cache.sizes().clone();
    cache.event(0, &[0, 1, 2]);
    cache.event(1, &[5]);
    // 50 bytes are taken. The oldest ones go, as many as needed.
    assert_eq!(cache.prefetch(1, 6), Admission::Admitted { evicted: &[sizes.key(0, 0)] });
    assert_eq!(
        cache.prefetch(1, 7),
        Admission::Admitted { evicted: &[sizes.key(0, 1), sizes.key(0, 2)] }
    );
    // Left are the running event's expert and two that wait.
    assert_eq!(cache.prefetch(0, 0), Admission::Refused);
    assert_eq!(cache.counts().prefetch_refused, 1);
    // A token that needs the room takes it: the older one of the waiting is wasted.
    let event = cache.event(0, &[4]);
    assert_eq!(event.evicted, [sizes.key(1, 5)]);
    let event = cache.event(1, &[0]);
    assert_eq!(event.evicted, [sizes.key(1, 6)]);
    let counts = cache.counts();
    assert_eq!((counts.prefetch_wasted, counts.prefetch_wasted_bytes), (1, 20));
    assert_eq!((counts.prefetched, counts.prefetch_useful), (2, 0));
}

#[test]
fn what_the_running_event_had_no_room_for_is_prefetched_when_there_is_some() {
    let mut cache = cache(PolicyKind::Lru, 20);
    assert_eq!(cache.event(0, &[0, 1, 2]).transient, [0]);
    assert_eq!(cache.prefetch(0, 0), Admission::Refused);
    // With more room it is.
    cache.set_budget(30);
    assert_eq!(cache.prefetch(0, 0), Admission::Admitted { evicted: &[] });
    assert_eq!(cache.event(0, &[0, 1]).prefetch_hits, [0]);
    // More than the whole budget.
    cache.set_budget(15);
    assert_eq!(cache.prefetch(1, 0), Admission::Refused);
}

#[test]
fn warming_fills_free_room_and_ranks_the_first_highest() {
    let mut cache = cache(PolicyKind::Lru, 50);
    let sizes = cache.sizes().clone();
    let wanted = [(0, 7), (1, 7), (0, 7), (1, 6), (0, 6)];
    let keys = wanted.map(|(layer, expert)| sizes.key(layer, expert));
    // 10 + 20 + 20 bytes; nothing is left for the last one.
    assert_eq!(cache.warm(&keys), [keys[0], keys[1], keys[3]]);
    assert_eq!((cache.counts().preloaded, cache.counts().preloaded_bytes), (3, 50));
    assert_eq!(cache.warm(&keys), []);
    // The least valuable goes first.
    assert_eq!(cache.event(0, &[0]).evicted, [keys[3]]);
    let event = cache.event(1, &[7]);
    assert_eq!(
        (event.hits.as_slice(), event.prefetch_hits.as_slice()),
        ([7].as_slice(), [].as_slice())
    );
    assert_eq!(cache.counts().prefetched, 0);
}

#[test]
fn a_smaller_budget_evicts_in_the_policys_order_and_the_last_event_at_the_end() {
    let mut cache = cache(PolicyKind::Lru, 100);
    let sizes = cache.sizes().clone();
    cache.event(0, &[0, 1]);
    cache.event(1, &[0]);
    cache.event(0, &[0]);
    assert_eq!(cache.set_budget(200), []);
    assert_eq!(cache.set_budget(39), [sizes.key(0, 1)]);
    assert_eq!(cache.set_budget(9), [sizes.key(1, 0), sizes.key(0, 0)]);
    assert_eq!(cache.resident_bytes(), 0);
    assert_eq!(cache.counts().evictions, 3);
}

#[test]
fn shares_follow_the_budget() {
    let mut cache = cache(PolicyKind::LayerLru, 80);
    let sizes = cache.sizes().clone();
    cache.event(0, &[0, 1, 2, 3]);
    cache.event(1, &[0, 1]);
    // Both layers are full: a fifth expert of layer 0 takes the room of its own oldest.
    assert_eq!(cache.event(0, &[4]).evicted, [sizes.key(0, 0)]);
    assert_eq!(cache.prefetch(1, 5), Admission::Admitted { evicted: &[sizes.key(1, 0)] });
    assert_eq!(
        cache.set_budget(45),
        [sizes.key(0, 1), sizes.key(0, 2), sizes.key(1, 1)],
        "22 bytes a layer"
    );
    // Growing gives both layers room again.
    cache.set_budget(60);
    assert_eq!(cache.event(0, &[6]).evicted, []);
    assert_eq!(cache.event(1, &[6]).evicted, [sizes.key(1, 5)]);
    assert_eq!(cache.counts().prefetch_wasted, 1);
}

#[test]
fn keys_say_their_layer_and_expert() {
    let sizes = EntrySizes::new(&[10, 20], 8);
    let key = Key(11);
    assert_eq!((sizes.layer(key), sizes.expert(key), sizes.bytes(key)), (1, 3, 20));
    assert_eq!(sizes.key(1, 3), key);
}
