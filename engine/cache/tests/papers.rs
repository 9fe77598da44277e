//! SIEVE, S3-FIFO and ARC on examples worked out by hand from the papers' algorithms. One layer, entries of
//! one byte, one expert an event: then the event rules add nothing to the papers'.

use bmoe_cache::{Cache, EntrySizes, PolicyKind};

struct Toy(Cache);

impl Toy {
    fn new(kind: PolicyKind, entries: u64) -> Self {
        let sizes = EntrySizes::new(&[1], 26);
        Self(Cache::new(sizes.clone(), entries, kind.build(&sizes, 0)))
    }

    /// Uses an entry; returns the one that made room, or "hit", or "room".
    fn uses(&mut self, entry: char) -> String {
        let event = self.0.event(0, &[u16::from(entry as u8 - b'a')]);
        match event.evicted.as_slice() {
            [] if event.misses.is_empty() => "hit".into(),
            [] => "room".into(),
            [key] => char::from(b'a' + key.0 as u8).to_string(),
            _ => panic!("one expert took the room of several: {event:?}"),
        }
    }

    fn all(&mut self, entries: &str) -> Vec<String> {
        entries.chars().map(|entry| self.uses(entry)).collect()
    }
}

#[test]
fn sieve() {
    let mut toy = Toy::new(PolicyKind::Sieve, 3);
    assert_eq!(toy.all("abca"), ["room", "room", "room", "hit"]);
    // From the oldest: a has a mark and loses it, b goes. The hand stays between a and c.
    assert_eq!(toy.uses('d'), "b");
    // c has no mark; a, older, is behind the hand.
    assert_eq!(toy.uses('e'), "c");
    // d is used, so it loses its mark and the youngest goes; the hand is at the end.
    assert_eq!(toy.all("df"), ["hit", "e"]);
    // Around again: a lost its mark in the first round.
    assert_eq!(toy.uses('g'), "a");
    assert_eq!(toy.uses('h'), "d");
}

#[test]
fn s3_fifo() {
    // Ten entries: one for the small queue, nine for the main one and for the ghosts.
    let mut toy = Toy::new(PolicyKind::S3Fifo, 10);
    assert!(toy.all("abcdefghij").iter().all(|answer| answer == "room"));
    assert_eq!(toy.all("aab"), ["hit"; 3]);
    // a was used more than once and moves to the main queue, b goes and is remembered.
    assert_eq!(toy.uses('k'), "b");
    // b comes back: to the main queue. c is the small queue's oldest.
    assert_eq!(toy.uses('b'), "c");
    // All of the small queue (d to k) was used twice and moves on; with the last of them the main queue is
    // too long and gives up its oldest, a, whose uses were forgotten when it moved.
    assert_eq!(toy.all("ddeeffgghhiijjkk"), ["hit"; 16]);
    assert_eq!(toy.uses('l'), "a");
    // The small queue (l) is as long as it should be and l was not used again.
    assert_eq!(toy.uses('m'), "l");
    // l is remembered and goes to the main queue: now the small queue is empty.
    assert_eq!(toy.uses('l'), "m");
    // So the main queue has to give: b was used and goes around, d goes.
    assert_eq!(toy.all("bn"), ["hit", "d"]);
    // Leaving the main queue is not remembered: d starts in the small queue, in n's place.
    assert_eq!(toy.uses('d'), "n");
    assert_eq!(toy.uses('o'), "d");
}

#[test]
fn arc() {
    let mut toy = Toy::new(PolicyKind::Arc, 2);
    // T1 = b, T2 = a.
    assert_eq!(toy.all("aba"), ["room", "room", "hit"]);
    // p = 0, so T1 gives: T1 = c, T2 = a, B1 = b.
    assert_eq!(toy.uses('c'), "b");
    // From B1: p = 1, T1 is not above it, T2 gives: T1 = c, T2 = b, B2 = a.
    assert_eq!(toy.uses('b'), "a");
    // From B2: p = 0, T1 gives: T2 = b a, B1 = c.
    assert_eq!(toy.uses('a'), "c");
    // T1 is empty: T1 = d, T2 = a, B1 = c, B2 = b.
    assert_eq!(toy.uses('d'), "b");
    // T1 and B1 are full: c is forgotten. T1 = e, T2 = a, B1 = d, B2 = b.
    assert_eq!(toy.uses('e'), "d");
    // c is as new: T1 = c, T2 = a, B1 = e.
    assert_eq!(toy.uses('c'), "e");
    // From B2: p stays 0, T1 gives. Had c been remembered, it would be in T2 and a would go.
    assert_eq!(toy.uses('b'), "c");
}

#[test]
fn arc_shifts_its_target_by_the_ratio_of_the_memories() {
    let mut toy = Toy::new(PolicyKind::Arc, 4);
    // T2 = a b c d. The target of T1 is 0, so each new one takes the place of the one before it: T1 = h,
    // T2 = b c d, B1 = e f g, B2 = a.
    assert_eq!(toy.all("abcdabcd")[4..], ["hit"; 4]);
    assert_eq!(toy.all("efgh"), ["a", "e", "f", "g"]);
    // a returns from B2: p would fall by |B1| / |B2| = 3, but is 0. T1 (h) gives: T2 = b c d a, B1 = e f g h.
    assert_eq!(toy.uses('a'), "h");
    // h returns from B1: p = 1. T1 is empty: T2 (b) gives; T2 = c d a h.
    assert_eq!(toy.uses('h'), "b");
    // A new one takes c's place, T1 = i. With p = 1 it is not above its target, so d goes next, then i:
    // T1 = j k, T2 = a h, B1 = g i, B2 = c d.
    assert_eq!(toy.all("ijk"), ["c", "d", "i"]);
    // Both return from B1: p = 2 (1 more), then 4 (|B2| / |B1| = 3 more, at most all). T1 = j k, T2 = g i,
    // B2 = c d a h.
    assert_eq!(toy.all("gi"), ["a", "h"]);
    // From B2: p = 3, so T1 is below it. Had p grown by 1, it would be 2 here and j would go.
    assert_eq!(toy.uses('a'), "g");
}
