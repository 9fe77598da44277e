use crate::Key;

/// An eviction policy over dense keys `0..entries`.
///
/// [`Cache`](crate::Cache) calls it in one order only, so that the engine and a simulator that make the
/// same calls to the cache get the same victims. For every event:
///
/// 1. [`begin_token`](Self::begin_token), if the event is the first one of a token (or micro-batch);
/// 2. [`announce`](Self::announce) for every distinct expert that is missing, in order of first use;
/// 3. [`evict`](Self::evict) until the missing ones fit;
/// 4. for every access in router order (token-major) [`insert`](Self::insert) or [`hit`](Self::hit) if
///    it is the event's first to the entry, [`repeat`](Self::repeat) otherwise;
/// 5. `evict` again, should the event alone be larger than the budget.
///
/// So the victims of an event are chosen by what was known before it, and room is made before anything
/// comes in, as in the papers. A prefetch and a preload are 2, 3 and 4 for one entry.
pub trait Policy {
    /// Whether each layer owns an equal share of the budget. Such a policy is asked for a victim of the
    /// layer that is over its share; any other one for a victim of the whole cache.
    #[inline]
    fn per_layer(&self) -> bool {
        false
    }

    /// The bytes that the policy's entries may take: the budget, or one layer's share of it. Called
    /// before anything else and whenever the budget changes; `evict` follows when it shrank.
    fn set_budget(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// A token begins; in prefill, a micro-batch.
    #[inline]
    fn begin_token(&mut self) {}

    /// The entry is going to be inserted, after room has been made for it.
    #[inline]
    fn announce(&mut self, key: Key) {
        let _ = key;
    }

    /// The entry comes in. It was announced and is not resident.
    fn insert(&mut self, key: Key);

    /// A resident entry is used.
    fn hit(&mut self, key: Key);

    /// An entry that the running event has used already is used again by another token of the same
    /// micro-batch. An event is one use, however many tokens share it; only recency is new.
    #[inline]
    fn repeat(&mut self, key: Key) {
        let _ = key;
    }

    /// Chooses a resident entry that is not protected, forgets that it is resident and returns it;
    /// `None` exactly if all resident entries (of the layer) are protected.
    ///
    /// `layer` is the one in need of room, for policies with [`per_layer`](Self::per_layer).
    fn evict(&mut self, layer: usize, protected: impl Fn(Key) -> bool) -> Option<Key>;
}
