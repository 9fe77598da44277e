//! Deterministic random streams: each row or chunk of each tensor has one of its own, so that the bytes
//! of a model depend on its seed alone and not on how the work was shared between threads.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A stream of random numbers.
pub(crate) struct Stream(Xoshiro256PlusPlus);

impl Stream {
    /// The stream number `index` of `key`, itself derived from the model's seed and a tensor's name.
    pub(crate) fn new(key: u64, index: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(key ^ index.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub(crate) fn fill_bytes(&mut self, bytes: &mut [u8]) {
        let mut words = bytes.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.0.next_u64().to_le_bytes());
        }
        let rest = words.into_remainder();
        let last = self.0.next_u64().to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }

    /// Fills `out` with values of mean 0 and standard deviation `std`, near enough to normal for weights
    /// (the sum of four uniform 16-bit numbers, so at most 3.46 standard deviations away).
    pub(crate) fn fill_normal(&mut self, std: f32, out: &mut [f32]) {
        // Variance of one uniform 16-bit number is 65536^2 / 12.
        let scale = std / (65_536.0 * (4.0f32 / 12.0).sqrt());
        for x in out {
            let word = self.0.next_u64();
            let sum =
                (word & 0xFFFF) + (word >> 16 & 0xFFFF) + (word >> 32 & 0xFFFF) + (word >> 48);
            *x = (sum as f32 - 131_070.0) * scale;
        }
    }
}

/// Mixes a string into a seed (FNV-1a, then a finaliser that spreads the low bits).
pub(crate) fn key(seed: u64, name: &str) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325 ^ seed.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_values_have_the_asked_mean_and_deviation() {
        let mut values = vec![0.0; 100_000];
        Stream::new(1, 2).fill_normal(0.25, &mut values);
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let var = values.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.004, "mean {mean}");
        assert!((var.sqrt() - 0.25).abs() < 0.004, "deviation {}", var.sqrt());
    }

    #[test]
    fn streams_differ_by_key_and_index() {
        let first = |k, i| Stream::new(k, i).next_u64();
        assert_ne!(first(key(1, "a"), 0), first(key(1, "b"), 0));
        assert_ne!(first(key(1, "a"), 0), first(key(2, "a"), 0));
        assert_ne!(first(key(1, "a"), 0), first(key(1, "a"), 1));
        assert_eq!(first(key(1, "a"), 7), first(key(1, "a"), 7));
    }
}
