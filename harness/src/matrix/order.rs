//! The order in which cells run. What a device does over time must not look like what a cell does.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::cells::Planned;

/// An order of the runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// All cells once, then all of them again: a drift of the device reaches every cell alike.
    #[default]
    Interleaved,
    /// Shuffled, each round of repetitions by itself.
    Random,
    /// The interleaved order backwards: what moves when it is reversed was the device.
    Reversed,
    /// All repetitions of a cell one after the other.
    AsWritten,
}

impl Order {
    /// The names, as in matrices and on the command line.
    pub const NAMES: [&'static str; 4] = ["interleaved", "random", "reversed", "as-written"];

    /// The runs of so many cells.
    #[must_use]
    pub fn runs(self, cells: usize, repetitions: u32, seed: u64) -> Vec<Planned> {
        let round = |repetition| (0..cells).map(move |cell| Planned { cell, repetition });
        let mut runs: Vec<Planned> = (0..repetitions).flat_map(round).collect();
        match self {
            Self::Interleaved => {}
            Self::Reversed => runs.reverse(),
            Self::AsWritten => runs.sort_by_key(|run| (run.cell, run.repetition)),
            Self::Random => {
                let mut random = SplitMix64(seed);
                runs.chunks_mut(cells.max(1)).for_each(|round| random.shuffle(round));
            }
        }
        runs
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "interleaved" => Ok(Self::Interleaved),
            "random" => Ok(Self::Random),
            "reversed" => Ok(Self::Reversed),
            "as-written" => Ok(Self::AsWritten),
            _ => Err(format!("expected one of {}", Self::NAMES.join(", "))),
        }
    }
}

/// Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (2014). The same seed gives the same
/// order on every machine and in every version.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Fisher and Yates; the bias of the remainder is far below one in a million.
    fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            let bound = u64::try_from(end + 1).unwrap_or(u64::MAX);
            items.swap(end, usize::try_from(self.next() % bound).unwrap_or(end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(order: Order, seed: u64) -> Vec<(usize, u32)> {
        order.runs(3, 2, seed).iter().map(|r| (r.cell, r.repetition)).collect()
    }

    #[test]
    fn orders_are_what_they_say() {
        let interleaved = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)];
        assert_eq!(runs(Order::Interleaved, 0), interleaved);
        let mut reversed = interleaved;
        reversed.reverse();
        assert_eq!(runs(Order::Reversed, 0), reversed);
        let written = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)];
        assert_eq!(runs(Order::AsWritten, 0), written);
        assert_eq!(Order::Random.runs(0, 3, 0), []);
    }

    #[test]
    fn a_random_order_is_that_of_its_seed_and_keeps_rounds_together() {
        let ten = |seed| Order::Random.runs(10, 2, seed);
        assert_eq!(ten(7), ten(7));
        assert_ne!(ten(7), ten(8));
        for (round, repetition) in ten(7).chunks(10).zip([0, 1]) {
            let mut cells: Vec<usize> = round.iter().map(|r| r.cell).collect();
            assert!(round.iter().all(|r| r.repetition == repetition));
            cells.sort_unstable();
            assert_eq!(cells, (0..10).collect::<Vec<_>>());
        }
        // Published orders must stay what they are.
        let first: Vec<usize> = ten(7)[..10].iter().map(|r| r.cell).collect();
        assert_eq!(first, [8, 1, 5, 9, 0, 4, 3, 2, 6, 7]);
    }
}
