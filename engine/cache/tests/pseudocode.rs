//! SIEVE, S3-FIFO and ARC against the papers' pseudocode written down plainly, one access after the other,
//! entries of one byte.

use std::collections::{BTreeSet, VecDeque};

use bmoe_cache::{Cache, EntrySizes, PolicyKind};
use proptest::prelude::*;

/// A queue, oldest first.
type Queue = VecDeque<u16>;

fn take(queue: &mut Queue, entry: u16) -> bool {
    let found = queue.iter().position(|e| *e == entry);
    found.and_then(|at| queue.remove(at)).is_some()
}

trait Pseudocode {
    /// One access; returns whether it hit.
    fn access(&mut self, x: u16) -> bool;
    fn residents(&self) -> BTreeSet<u16>;
}

struct Sieve {
    capacity: usize,
    /// (entry, visited), tail first.
    queue: Vec<(u16, bool)>,
    hand: Option<u16>,
}

impl Pseudocode for Sieve {
    fn access(&mut self, x: u16) -> bool {
        if let Some(found) = self.queue.iter_mut().find(|(e, _)| *e == x) {
            found.1 = true;
            return true;
        }
        if self.queue.len() == self.capacity {
            let mut at =
                self.hand.and_then(|h| self.queue.iter().position(|(e, _)| *e == h)).unwrap_or(0);
            while self.queue[at].1 {
                self.queue[at].1 = false;
                at = (at + 1) % self.queue.len();
            }
            self.hand = self.queue.get(at + 1).map(|(e, _)| *e);
            self.queue.remove(at);
        }
        self.queue.push((x, false));
        false
    }

    fn residents(&self) -> BTreeSet<u16> {
        self.queue.iter().map(|(e, _)| *e).collect()
    }
}

struct S3Fifo {
    capacity: usize,
    small: Queue,
    main: Queue,
    ghost: Queue,
    frequency: Vec<u8>,
}

impl S3Fifo {
    fn small_capacity(&self) -> usize {
        (self.capacity / 10).max(1)
    }

    fn evict_main(&mut self) {
        loop {
            let t = self.main.pop_front().unwrap();
            if self.frequency[usize::from(t)] == 0 {
                return;
            }
            self.frequency[usize::from(t)] -= 1;
            self.main.push_back(t);
        }
    }

    /// True when it evicted something.
    fn evict_small(&mut self) -> bool {
        while let Some(t) = self.small.pop_front() {
            if self.frequency[usize::from(t)] > 1 {
                self.frequency[usize::from(t)] = 0;
                self.main.push_back(t);
                if self.main.len() > self.capacity - self.small_capacity() {
                    self.evict_main();
                    return true;
                }
            } else {
                self.ghost.push_back(t);
                if self.ghost.len() > self.capacity - self.small_capacity() {
                    self.ghost.pop_front();
                }
                return true;
            }
        }
        false
    }
}

impl Pseudocode for S3Fifo {
    fn access(&mut self, x: u16) -> bool {
        if self.residents().contains(&x) {
            let frequency = &mut self.frequency[usize::from(x)];
            *frequency = (*frequency + 1).min(3);
            return true;
        }
        if self.small.len() + self.main.len() == self.capacity {
            let small = self.small.len() >= self.small_capacity();
            if !(small && self.evict_small()) {
                self.evict_main();
            }
        }
        self.frequency[usize::from(x)] = 0;
        if take(&mut self.ghost, x) {
            self.main.push_back(x);
        } else {
            self.small.push_back(x);
        }
        false
    }

    fn residents(&self) -> BTreeSet<u16> {
        self.small.iter().chain(&self.main).copied().collect()
    }
}

#[derive(Default)]
struct Arc {
    c: usize,
    p: f64,
    t1: Queue,
    t2: Queue,
    b1: Queue,
    b2: Queue,
}

impl Arc {
    fn replace(&mut self, in_b2: bool) {
        let t1 = self.t1.len() as f64;
        if !self.t1.is_empty() && ((in_b2 && t1 == self.p) || t1 > self.p) || self.t2.is_empty() {
            self.b1.push_back(self.t1.pop_front().unwrap());
        } else {
            self.b2.push_back(self.t2.pop_front().unwrap());
        }
    }
}

impl Pseudocode for Arc {
    fn access(&mut self, x: u16) -> bool {
        let full = self.t1.len() + self.t2.len() == self.c;
        let ratio = |a: usize, b: usize| (a as f64 / b as f64).max(1.0);
        // Case I
        if take(&mut self.t1, x) || take(&mut self.t2, x) {
            self.t2.push_back(x);
            return true;
        }
        // Case II
        if self.b1.contains(&x) {
            self.p = (self.p + ratio(self.b2.len(), self.b1.len())).min(self.c as f64);
            self.replace(false);
            take(&mut self.b1, x);
            self.t2.push_back(x);
            return false;
        }
        // Case III
        if self.b2.contains(&x) {
            self.p = (self.p - ratio(self.b1.len(), self.b2.len())).max(0.0);
            self.replace(true);
            take(&mut self.b2, x);
            self.t2.push_back(x);
            return false;
        }
        // Case IV
        if self.t1.len() + self.b1.len() == self.c {
            if self.t1.len() < self.c {
                self.b1.pop_front();
                if full {
                    self.replace(false);
                }
            } else {
                self.t1.pop_front();
            }
        } else {
            let all = self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len();
            if all >= self.c {
                if all == 2 * self.c {
                    self.b2.pop_front();
                }
                if full {
                    self.replace(false);
                }
            }
        }
        self.t1.push_back(x);
        false
    }

    fn residents(&self) -> BTreeSet<u16> {
        self.t1.iter().chain(&self.t2).copied().collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn equals_the_papers_pseudocode(
        capacity in 1usize..40,
        // The smaller of two draws, so that some entries are used often.
        accesses in prop::collection::vec((0u16..50, 0u16..50).prop_map(|(a, b)| a.min(b)), 1..600),
    ) {
        let sizes = EntrySizes::new(&[1], 50);
        let references: [(PolicyKind, Box<dyn Pseudocode>); 3] = [
            (PolicyKind::Sieve, Box::new(Sieve { capacity, queue: Vec::new(), hand: None })),
            (PolicyKind::S3Fifo, Box::new(S3Fifo {
                capacity,
                small: Queue::new(),
                main: Queue::new(),
                ghost: Queue::new(),
                frequency: vec![0; 50],
            })),
            (PolicyKind::Arc, Box::new(Arc { c: capacity, ..Arc::default() })),
        ];
        for (kind, mut reference) in references {
            let mut cache = Cache::new(sizes.clone(), capacity as u64, kind.build(&sizes, 0));
            for (i, &x) in accesses.iter().enumerate() {
                let hit = reference.access(x);
                prop_assert_eq!(cache.event(0, &[x]).hits.len(), usize::from(hit));
                let residents: BTreeSet<u16> =
                    (0..50).filter(|x| cache.contains(sizes.key(0, *x))).collect();
                prop_assert_eq!(residents, reference.residents(), "{} at access {}", kind, i);
            }
        }
    }
}
