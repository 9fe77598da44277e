//! Which experts stay in memory.
//!
//! A cache of (layer, expert) entries under a byte budget, replayed **event-atomically**: all experts
//! of one (micro-batch, layer) are looked up first, then the misses are inserted, then entries are
//! evicted until the budget holds again. Sequential replay of the same accesses inflates misses by 27
//! to 29 % and can invert rankings (arXiv 2608.07911).
//!
//! The crate decides and counts; it moves no bytes. The engine and the simulator both run it, so that
//! a simulated hit rate equals a measured one to the last access.
//!
//! ```
//! use bmoe_cache::{Cache, EntrySizes, Lru};
//!
//! // Two layers of four experts, 10 bytes an expert in layer 0 and 20 in layer 1; room for 40 bytes.
//! let sizes = EntrySizes::new(&[10, 20], 4);
//! let mut cache = Cache::new(sizes.clone(), 40, Lru::new(sizes.entries()));
//! assert_eq!(cache.event(0, &[1, 3]).misses, [1, 3]);
//! assert_eq!(cache.event(1, &[2]).misses, [2]);
//! // Expert 1 of layer 0 is back: a hit. Expert 0 is new; the oldest entry makes room.
//! let event = cache.event(0, &[1, 0]);
//! assert_eq!((event.hits.as_slice(), event.misses.as_slice()), ([1].as_slice(), [0].as_slice()));
//! assert_eq!(cache.resident_bytes(), 40);
//! ```

mod cache;
mod lru;
mod sizes;

pub use cache::{Cache, Counts, Event};
pub use lru::Lru;
pub use sizes::{EntrySizes, Key};

/// An eviction policy over dense keys `0..entries`.
///
/// The cache calls [`touch`](Self::touch) for every access in router order (token-major, duplicates
/// included) and [`evict`](Self::evict) only behind an event, when the budget is exceeded.
pub trait Policy {
    /// The name used on command lines and in tables.
    fn name(&self) -> &'static str;

    /// One access. `resident` says whether the entry was in the cache; if not, it is from now on.
    fn touch(&mut self, key: Key, resident: bool);

    /// Chooses an entry, forgets that it is resident and returns it; `None` when there is none.
    ///
    /// `protected` marks the entries of the event that just ran: they are given up only when nothing
    /// else is left, that is, when the event alone is larger than the budget.
    fn evict(&mut self, protected: &dyn Fn(Key) -> bool) -> Option<Key>;
}
