//! The policies that can be simulated, by name.

use std::fmt;
use std::str::FromStr;

use bmoe_cache::PolicyKind;

/// A policy of the engine, or one that only a simulation can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SimPolicy {
    /// [`Belady`](super::Belady)
    Belady,
    /// [`BeladyBypass`](super::BeladyBypass)
    BeladyBypass,
    /// One of the engine's own.
    Online(PolicyKind),
    /// [`LayerStatic`](super::LayerStatic)
    LayerStatic,
    /// [`PinnedLru`](super::PinnedLru)
    PinnedLru,
    /// [`Unbounded`](super::Unbounded)
    Unbounded,
}

impl SimPolicy {
    /// All of them, in the order of lists and tables.
    pub const ALL: [Self; 16] = [
        Self::Belady,
        Self::BeladyBypass,
        Self::Online(PolicyKind::Lru),
        Self::Online(PolicyKind::Lfu),
        Self::Online(PolicyKind::LfuAged),
        Self::Online(PolicyKind::Lfru),
        Self::Online(PolicyKind::Fifo),
        Self::Online(PolicyKind::Sieve),
        Self::Online(PolicyKind::S3Fifo),
        Self::Online(PolicyKind::Arc),
        Self::Online(PolicyKind::Random),
        Self::Online(PolicyKind::LayerLru),
        Self::Online(PolicyKind::LayerLfu),
        Self::LayerStatic,
        Self::PinnedLru,
        Self::Unbounded,
    ];

    /// The name on command lines and in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Belady => "belady",
            Self::BeladyBypass => "belady-bypass",
            Self::Online(kind) => kind.name(),
            Self::LayerStatic => "layer-static",
            Self::PinnedLru => "pinned-lru",
            Self::Unbounded => "unbounded",
        }
    }

    /// What goes first, in a line.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Belady => "next use farthest away; what is read must come in (offline)",
            Self::BeladyBypass => "next use farthest away; may refuse to keep (offline)",
            Self::Online(kind) => kind.description(),
            Self::LayerStatic => "never: the run's hottest experts of each layer stay (offline)",
            Self::PinnedLru => "lru, but for the run's hottest in half of the budget (offline)",
            Self::Unbounded => "nothing: room for everything",
        }
    }
}

impl fmt::Display for SimPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No policy has this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownSimPolicy {
    /// What was asked for.
    pub name: String,
}

impl fmt::Display for UnknownSimPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown policy '{}'; choose 'all' or some of", self.name)?;
        for (i, policy) in SimPolicy::ALL.into_iter().enumerate() {
            write!(f, "{} {policy}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownSimPolicy {}

impl FromStr for SimPolicy {
    type Err = UnknownSimPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownSimPolicy> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.name() == name)
            .ok_or_else(|| UnknownSimPolicy { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_of_the_engine_can_be_simulated_and_named() {
        for kind in PolicyKind::ALL {
            assert!(SimPolicy::ALL.contains(&SimPolicy::Online(kind)), "{kind}");
        }
        for policy in SimPolicy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        let error = "clock".parse::<SimPolicy>().unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown policy 'clock'; choose 'all' or some of belady, belady-bypass, lru, lfu, lfu-aged, \
             lfru, fifo, sieve, s3fifo, arc, random, layer-lru, layer-lfu, layer-static, pinned-lru, \
             unbounded"
        );
    }
}
