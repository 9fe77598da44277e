//! The values that settings of a run can have.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Declares an enum whose names on the command line, in files and in tables are one list.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The names of [`Self::ALL`].
            pub const NAMES: &[&'static str] = &[$($text),*];

            /// The name used on command lines, in files and in tables.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::ALL
                    .iter()
                    .copied()
                    .find(|v| v.as_str() == text)
                    .ok_or_else(|| format!("\"{text}\" is none of {}", Self::NAMES.join(", ")))
            }
        }
    };
}

named! {
    /// How the expert weights reach the CPU.
    Mode {
        /// Experts are read from flash when a token routes to them, into a cache of `cache_mib`.
        #[default]
        Stream = "stream",
        /// Stock llama.cpp over a memory map of the whole file: the kernel pages experts in and out.
        Mmap = "mmap",
        /// Stock llama.cpp with every weight in anonymous memory: the reference for losslessness.
        Resident = "resident",
    }
}

named! {
    /// How reads are handed to the kernel.
    IoEngine {
        /// Threads that read with `pread`, one read each at a time.
        #[default]
        Pread = "pread",
        /// One io_uring with as many reads in flight as there are lanes.
        Uring = "uring",
    }
}

named! {
    /// Where the weights outside the experts are in `stream` mode.
    DenseWeights {
        /// Read into anonymous memory: the kernel never drops them.
        #[default]
        Anon = "anon",
        /// Mapped, and touched once while loading.
        Warm = "warm",
        /// Mapped; the kernel brings them in when they are used.
        Mmap = "mmap",
    }
}

named! {
    /// What is measured inside the graph beyond the totals. Both kinds take time of their own, so a run
    /// with them is marked as perturbed.
    ComputeTrace {
        /// Nothing.
        #[default]
        Off = "off",
        /// The parts of each layer.
        Layers = "layers",
        /// Every node.
        Nodes = "nodes",
    }
}

named! {
    /// Whether the model is to think before it answers, where its chat template knows the difference.
    Think {
        /// What the template does by itself.
        #[default]
        Default = "default",
        /// Think.
        On = "on",
        /// Answer at once.
        Off = "off",
    }
}

/// A budget for the expert cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheBudget {
    /// So many MiB; 0 = no cache.
    Mib(u64),
    /// Sized from the memory that is available when the model is loaded, and made smaller when the system
    /// runs short.
    Auto,
}

/// How binary formats, which have no words, write [`CacheBudget::Auto`].
const AUTO: u64 = u64::MAX;

impl CacheBudget {
    /// No cache.
    pub const OFF: Self = Self::Mib(0);

    /// Whether there is a cache at all.
    #[must_use]
    pub fn is_on(self) -> bool {
        self != Self::OFF
    }

    /// The fixed budget; `None` when it is sized by the engine.
    #[must_use]
    pub const fn mib(self) -> Option<u64> {
        match self {
            Self::Mib(mib) => Some(mib),
            Self::Auto => None,
        }
    }
}

impl Default for CacheBudget {
    fn default() -> Self {
        Self::OFF
    }
}

impl fmt::Display for CacheBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mib(mib) => mib.fmt(f),
            Self::Auto => f.pad("auto"),
        }
    }
}

impl FromStr for CacheBudget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => text
                .parse()
                .ok()
                .filter(|mib| *mib != AUTO)
                .map(Self::Mib)
                .ok_or_else(|| format!("\"{text}\" is neither a number of MiB nor auto")),
        }
    }
}

impl Serialize for CacheBudget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Mib(mib) => serializer.serialize_u64(*mib),
            Self::Auto if serializer.is_human_readable() => serializer.serialize_str("auto"),
            Self::Auto => serializer.serialize_u64(AUTO),
        }
    }
}

impl<'de> Deserialize<'de> for CacheBudget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Budget;

        impl Visitor<'_> for Budget {
            type Value = CacheBudget;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of MiB or \"auto\"")
            }

            fn visit_u64<E: de::Error>(self, mib: u64) -> Result<CacheBudget, E> {
                Ok(CacheBudget::Mib(mib))
            }

            fn visit_i64<E: de::Error>(self, mib: i64) -> Result<CacheBudget, E> {
                u64::try_from(mib)
                    .map(CacheBudget::Mib)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(mib), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<CacheBudget, E> {
                match text {
                    "auto" => Ok(CacheBudget::Auto),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }

        if deserializer.is_human_readable() {
            deserializer.deserialize_any(Budget)
        } else {
            Ok(match u64::deserialize(deserializer)? {
                AUTO => Self::Auto,
                mib => Self::Mib(mib),
            })
        }
    }
}

/// How the next token is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sampling {
    /// 0 = greedy: the most probable token, the smallest of equals; everything below is then unused.
    pub temperature: f32,
    /// Only the so many most probable tokens; 0 = all. (Tokens, not experts.)
    pub top_k: u32,
    /// Only the most probable tokens that together have this probability; 1 = all.
    pub top_p: f32,
    /// Only tokens with at least this share of the most probable one's probability; 0 = all.
    pub min_p: f32,
    /// Seed of the random choice.
    pub seed: u32,
}

impl Sampling {
    /// Whether there is no random choice.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature <= 0.0
    }
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 40, top_p: 0.95, min_p: 0.05, seed: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Budgets {
        budgets: Vec<CacheBudget>,
    }

    #[test]
    fn budgets_round_trip_in_words_and_in_binary() {
        let budgets = Budgets { budgets: vec![CacheBudget::Mib(1500), CacheBudget::Auto] };
        let text = toml::to_string(&budgets).unwrap();
        assert_eq!(text.trim(), "budgets = [1500, \"auto\"]");
        assert_eq!(toml::from_str::<Budgets>(&text).unwrap(), budgets);
        let config = bincode::config::standard();
        let bytes = bincode::serde::encode_to_vec(&budgets, config).unwrap();
        let (back, _): (Budgets, _) = bincode::serde::decode_from_slice(&bytes, config).unwrap();
        assert_eq!(back, budgets);
        let json = serde_json::to_string(&budgets).unwrap();
        assert_eq!(serde_json::from_str::<Budgets>(&json).unwrap(), budgets);
    }

    #[test]
    fn what_is_no_budget_is_named() {
        let error = toml::from_str::<Budgets>("budgets = [\"all\"]").unwrap_err().to_string();
        assert!(error.contains("\"all\"") && error.contains("\"auto\""), "{error}");
        assert!(toml::from_str::<Budgets>("budgets = [-1]").is_err());
        assert!("1e3".parse::<CacheBudget>().unwrap_err().contains("1e3"));
        assert_eq!("auto".parse(), Ok(CacheBudget::Auto));
        let error = "fast".parse::<IoEngine>().unwrap_err();
        assert_eq!(error, "\"fast\" is none of pread, uring");
    }
}
