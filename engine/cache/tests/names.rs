//! What people read and type.

use bmoe_cache::{EntrySizes, PolicyKind};

#[test]
fn every_name_is_understood_and_builds_its_policy() {
    let sizes = EntrySizes::new(&[1, 2], 4);
    for kind in PolicyKind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
        assert_eq!(kind.build(&sizes, 0).kind(), kind);
    }
}

#[test]
fn a_wrong_name_is_answered_with_the_right_ones() {
    let error = "lur".parse::<PolicyKind>().unwrap_err();
    insta::assert_snapshot!(
        error,
        @"unknown cache policy 'lur'; choose one of lru, lfu, lfu-aged, lfru, fifo, sieve, s3fifo, arc, layer-lru, layer-lfu, random"
    );
}

#[test]
fn the_list_of_policies() {
    let list: Vec<String> = (PolicyKind::ALL.iter())
        .map(|kind| format!("{kind:<10} {}; {}", kind.description(), kind.source()))
        .collect();
    insta::assert_snapshot!(list.join("\n"), @r"
    lru        least recently used; Mattson et al., IBM Systems Journal 9(2), 1970
    lfu        fewest touches ever (counts outlive eviction), then least recently used; Coffman and Denning, Operating Systems Theory, 1973
    lfu-aged   LFU-DA: touches since it came in plus the cache's age then, lowest first; Arlitt et al., SIGMETRICS PER 27(4), 2000
    lfru       lowest touches / (tokens since the last use + 1); published replays of expert routes, slots per layer
    fifo       first in, first out; Belady, IBM Systems Journal 5(2), 1966
    sieve      first in among those not used since the hand came by; Zhang et al., NSDI 2024
    s3fifo     small queue on probation, main queue, ghost queue; Yang et al., SOSP 2023
    arc        recency and frequency lists that adapt their sizes to what returns; Megiddo and Modha, FAST 2003
    layer-lru  lru in each layer, which owns an equal share of the budget; BigMoeOnEdge, route replay of 2026-07-20
    layer-lfu  lfu in each layer, which owns an equal share of the budget; BigMoeOnEdge, route replay of 2026-07-20
    random     any, with equal probability (seeded); Belady, IBM Systems Journal 5(2), 1966
    ");
}
