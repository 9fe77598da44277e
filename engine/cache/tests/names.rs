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
    insta::assert_snapshot!(list.join("\n"), @"");
}
