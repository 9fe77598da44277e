//! Which experts stay in memory.
//!
//! A cache of (layer, expert) entries under a byte budget, replayed **event-atomically**: all experts
//! of one (micro-batch, layer) are looked up first, then entries of earlier events are evicted until
//! the misses fit, then the misses come in. Sequential replay of the same accesses inflates misses by 27
//! to 29 % and can invert rankings (arXiv 2608.07911).
//!
//! The crate decides and counts; it moves no bytes. The engine and the simulator both run it, so that
//! a simulated hit rate equals a measured one to the last access.
//!
//! ```
//! use bmoe_cache::{Cache, EntrySizes, PolicyKind};
//!
//! // Two layers of four experts, 10 bytes an expert in layer 0 and 20 in layer 1; room for 40 bytes.
//! let sizes = EntrySizes::new(&[10, 20], 4);
//! let policy = "lru".parse::<PolicyKind>()?.build(&sizes, 0);
//! let mut cache = Cache::new(sizes, 40, policy);
//! assert_eq!(cache.event(0, &[1, 3]).misses, [1, 3]);
//! assert_eq!(cache.event(1, &[2]).misses, [2]);
//! // Expert 1 of layer 0 is back: a hit. Expert 0 is new; the oldest entry makes room.
//! let event = cache.event(0, &[1, 0]);
//! assert_eq!((event.hits.as_slice(), event.misses.as_slice()), ([1].as_slice(), [0].as_slice()));
//! assert_eq!(cache.resident_bytes(), 40);
//! # Ok::<(), bmoe_cache::UnknownPolicy>(())
//! ```

mod any;
mod cache;
mod kind;
mod outcome;
mod policies;
mod policy;
mod sizes;

pub use any::AnyPolicy;
pub use cache::{Cache, Overshoot};
pub use kind::{PolicyKind, UnknownPolicy};
pub use outcome::{Admission, Counts, Event};
pub use policies::{
    AdaptiveReplacement, Fifo, Layered, Lfru, Lfu, LfuAged, Lru, Random, S3Fifo, Sieve,
};
pub use policy::Policy;
pub use sizes::{EntrySizes, Key};
