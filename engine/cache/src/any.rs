use crate::policies::{
    AdaptiveReplacement, Fifo, Layered, Lfru, Lfu, LfuAged, Lru, Random, S3Fifo, Sieve,
};
use crate::{Key, Policy, PolicyKind};

/// A policy chosen at run time. Each call is one branch that is predicted after the first; made by
/// [`PolicyKind::build`].
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "each variant is the policy of the same name")]
pub enum AnyPolicy {
    Lru(Lru),
    Lfu(Lfu),
    LfuAged(LfuAged),
    Lfru(Lfru),
    Fifo(Fifo),
    Sieve(Sieve),
    S3Fifo(S3Fifo),
    Arc(AdaptiveReplacement),
    LayerLru(Layered<Lru>),
    LayerLfu(Layered<Lfu>),
    Random(Random),
}

/// The same call for whichever policy it is.
macro_rules! each {
    ($any:expr, $policy:ident => $call:expr) => {
        match $any {
            AnyPolicy::Lru($policy) => $call,
            AnyPolicy::Lfu($policy) => $call,
            AnyPolicy::LfuAged($policy) => $call,
            AnyPolicy::Lfru($policy) => $call,
            AnyPolicy::Fifo($policy) => $call,
            AnyPolicy::Sieve($policy) => $call,
            AnyPolicy::S3Fifo($policy) => $call,
            AnyPolicy::Arc($policy) => $call,
            AnyPolicy::LayerLru($policy) => $call,
            AnyPolicy::LayerLfu($policy) => $call,
            AnyPolicy::Random($policy) => $call,
        }
    };
}

impl AnyPolicy {
    /// Which one it is.
    #[must_use]
    pub const fn kind(&self) -> PolicyKind {
        match self {
            Self::Lru(_) => PolicyKind::Lru,
            Self::Lfu(_) => PolicyKind::Lfu,
            Self::LfuAged(_) => PolicyKind::LfuAged,
            Self::Lfru(_) => PolicyKind::Lfru,
            Self::Fifo(_) => PolicyKind::Fifo,
            Self::Sieve(_) => PolicyKind::Sieve,
            Self::S3Fifo(_) => PolicyKind::S3Fifo,
            Self::Arc(_) => PolicyKind::Arc,
            Self::LayerLru(_) => PolicyKind::LayerLru,
            Self::LayerLfu(_) => PolicyKind::LayerLfu,
            Self::Random(_) => PolicyKind::Random,
        }
    }
}

impl Policy for AnyPolicy {
    #[inline]
    fn per_layer(&self) -> bool {
        each!(self, policy => policy.per_layer())
    }

    fn set_budget(&mut self, bytes: u64) {
        each!(self, policy => policy.set_budget(bytes));
    }

    #[inline]
    fn begin_token(&mut self) {
        each!(self, policy => policy.begin_token());
    }

    #[inline]
    fn announce(&mut self, key: Key) {
        each!(self, policy => policy.announce(key));
    }

    #[inline]
    fn insert(&mut self, key: Key) {
        each!(self, policy => policy.insert(key));
    }

    #[inline]
    fn hit(&mut self, key: Key) {
        each!(self, policy => policy.hit(key));
    }

    #[inline]
    fn repeat(&mut self, key: Key) {
        each!(self, policy => policy.repeat(key));
    }

    #[inline]
    fn evict(&mut self, layer: usize, protected: impl Fn(Key) -> bool) -> Option<Key> {
        each!(self, policy => policy.evict(layer, protected))
    }
}
