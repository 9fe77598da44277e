//! Which tokens may follow which: a ring of all words, on which every step goes forward.
//!
//! Greedy decoding of random weights runs into a loop within a few tokens. Here the output head prefers,
//! after a word, the words a few places further on the ring; the context decides which of them. As steps
//! only go forward, nothing repeats before the ring has been run through.

use crate::tokenizer::{self, WordRange};

/// Steps on the ring. Their differences are all different (a Mian-Chowla sequence, times four), so that two
/// words share few predecessors. All are 1 modulo 4, so that two, three or four steps never make one: else a
/// word that several of the last tokens point to would always win.
const STEPS: [u64; 16] = [1, 5, 13, 29, 49, 81, 121, 177, 261, 321, 385, 489, 589, 725, 813, 1005];

/// The ring of words.
#[derive(Debug, Clone)]
pub(crate) struct Ring {
    words: WordRange,
    /// Place on the ring to word: multiply modulo the number of words.
    stride: u64,
    /// Word to place.
    inverse: u64,
    steps: Vec<u64>,
}

impl Ring {
    pub(crate) fn new(vocab: u32, successors: u32) -> Self {
        let words = tokenizer::words(vocab);
        let n = u64::from(words.count);
        // Near the golden section neighbours on the ring lie far apart in the alphabet.
        let stride = (n * 618 / 1000..n).find(|&s| gcd(s, n) == 1).unwrap_or(1).max(1);
        let inverse = (0..n).scan(0, |x, i| {
            let here = (i, *x);
            *x = (*x + stride) % n;
            Some(here)
        });
        let inverse = inverse.into_iter().find(|&(_, x)| x == 1 % n).map_or(1, |(i, _)| i);
        let steps = STEPS.iter().take(successors as usize).map(|s| s % n).collect();
        Self { words, stride, inverse, steps }
    }

    /// The tokens after which `token` may come; none when it is no word.
    pub(crate) fn predecessors(&self, token: u32) -> impl Iterator<Item = u32> + '_ {
        let n = u64::from(self.words.count);
        let word = token.checked_sub(self.words.first).filter(|&w| w < self.words.count);
        let place = word.map(|w| u64::from(w) * self.inverse % n);
        place.into_iter().flat_map(move |p| {
            self.steps.iter().map(move |s| {
                let at = (p + n - s % n) % n;
                self.words.first + (at * self.stride % n) as u32
            })
        })
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_distinct_predecessors_and_the_ring_closes() {
        for vocab in [1000, 32_768] {
            let ring = Ring::new(vocab, 4);
            let first = ring.words.first;
            let mut token = first + 5;
            let mut seen = 0;
            loop {
                let before: Vec<u32> = ring.predecessors(token).collect();
                assert_eq!(before.len(), 4);
                assert!(before.iter().all(|t| (first..first + ring.words.count).contains(t)));
                token = before[0];
                seen += 1;
                if token == first + 5 {
                    break;
                }
            }
            assert_eq!(seen, ring.words.count, "the step of 1 visits every word once");
        }
    }

    #[test]
    fn steps_have_distinct_differences_and_do_not_add_up() {
        let differences: Vec<u64> =
            (0..STEPS.len()).flat_map(|i| (0..i).map(move |j| STEPS[i] - STEPS[j])).collect();
        let distinct: std::collections::HashSet<_> = differences.iter().collect();
        assert_eq!(distinct.len(), differences.len());
        assert!(STEPS.iter().all(|s| s % 4 == 1));
    }

    #[test]
    fn bytes_and_special_tokens_follow_nothing() {
        let ring = Ring::new(1000, 4);
        assert_eq!(ring.predecessors(65).count(), 0);
        assert_eq!(ring.predecessors(999).count(), 0);
    }
}
