use std::fmt;
use std::str::FromStr;

use crate::policies::{
    AdaptiveReplacement, Fifo, Layered, Lfru, Lfu, LfuAged, Lru, Random, S3Fifo, Sieve,
};
use crate::{AnyPolicy, EntrySizes};

/// The cache policies, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum PolicyKind {
    /// [`Lru`].
    #[default]
    Lru,
    /// [`Lfu`].
    Lfu,
    /// [`LfuAged`].
    LfuAged,
    /// [`Lfru`].
    Lfru,
    /// [`Fifo`].
    Fifo,
    /// [`Sieve`].
    Sieve,
    /// [`S3Fifo`].
    S3Fifo,
    /// [`AdaptiveReplacement`].
    Arc,
    /// [`Layered`] [`Lru`].
    LayerLru,
    /// [`Layered`] [`Lfu`].
    LayerLfu,
    /// [`Random`].
    Random,
}

impl PolicyKind {
    /// All of them, in the order of lists and tables.
    pub const ALL: [Self; 11] = [
        Self::Lru,
        Self::Lfu,
        Self::LfuAged,
        Self::Lfru,
        Self::Fifo,
        Self::Sieve,
        Self::S3Fifo,
        Self::Arc,
        Self::LayerLru,
        Self::LayerLfu,
        Self::Random,
    ];

    /// The name on command lines, in configurations and in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Lfu => "lfu",
            Self::LfuAged => "lfu-aged",
            Self::Lfru => "lfru",
            Self::Fifo => "fifo",
            Self::Sieve => "sieve",
            Self::S3Fifo => "s3fifo",
            Self::Arc => "arc",
            Self::LayerLru => "layer-lru",
            Self::LayerLfu => "layer-lfu",
            Self::Random => "random",
        }
    }

    /// What goes first, in a line.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Lru => "least recently used",
            Self::Lfu => "fewest touches ever (counts outlive eviction), then least recently used",
            Self::LfuAged => {
                "LFU-DA: touches since it came in plus the cache's age then, lowest first"
            }
            Self::Lfru => "lowest touches / (tokens since the last use + 1)",
            Self::Fifo => "first in, first out",
            Self::Sieve => "first in among those not used since the hand came by",
            Self::S3Fifo => "small queue on probation, main queue, ghost queue",
            Self::Arc => "recency and frequency lists that adapt their sizes to what returns",
            Self::LayerLru => "lru in each layer, which owns an equal share of the budget",
            Self::LayerLfu => "lfu in each layer, which owns an equal share of the budget",
            Self::Random => "any, with equal probability (seeded)",
        }
    }

    /// Where it is from.
    #[must_use]
    pub const fn source(self) -> &'static str {
        match self {
            Self::Lru => "Mattson et al., IBM Systems Journal 9(2), 1970",
            Self::Lfu => "Coffman and Denning, Operating Systems Theory, 1973",
            Self::LfuAged => "Arlitt et al., SIGMETRICS PER 27(4), 2000",
            Self::Lfru => "published replays of expert routes, slots per layer",
            Self::Fifo => "Belady, IBM Systems Journal 5(2), 1966",
            Self::Sieve => "Zhang et al., NSDI 2024",
            Self::S3Fifo => "Yang et al., SOSP 2023",
            Self::Arc => "Megiddo and Modha, FAST 2003",
            Self::LayerLru | Self::LayerLfu => "BigMoeOnEdge, route replay of 2026-07-20",
            Self::Random => "Belady, IBM Systems Journal 5(2), 1966",
        }
    }

    /// The policy for all entries of `sizes`. Only `random` uses the seed.
    #[must_use]
    pub fn build(self, sizes: &EntrySizes, seed: u64) -> AnyPolicy {
        let entries = sizes.entries();
        match self {
            Self::Lru => AnyPolicy::Lru(Lru::new(entries)),
            Self::Lfu => AnyPolicy::Lfu(Lfu::new(entries)),
            Self::LfuAged => AnyPolicy::LfuAged(LfuAged::new(entries)),
            Self::Lfru => AnyPolicy::Lfru(Lfru::new(entries)),
            Self::Fifo => AnyPolicy::Fifo(Fifo::new(entries)),
            Self::Sieve => AnyPolicy::Sieve(Sieve::new(entries)),
            Self::S3Fifo => AnyPolicy::S3Fifo(S3Fifo::new(sizes)),
            Self::Arc => AnyPolicy::Arc(AdaptiveReplacement::new(sizes)),
            Self::LayerLru => {
                AnyPolicy::LayerLru(Layered::new(sizes, |layer, _| Lru::new(layer.entries())))
            }
            Self::LayerLfu => {
                AnyPolicy::LayerLfu(Layered::new(sizes, |layer, _| Lfu::new(layer.entries())))
            }
            Self::Random => AnyPolicy::Random(Random::new(entries, seed)),
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No policy has this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPolicy {
    /// What was asked for.
    pub name: String,
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown cache policy '{}'; choose one of", self.name)?;
        for (i, kind) in PolicyKind::ALL.into_iter().enumerate() {
            write!(f, "{} {kind}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownPolicy {}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| UnknownPolicy { name: name.to_owned() })
    }
}
