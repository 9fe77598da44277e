//! A byte-level BPE vocabulary (GPT-2's kind) whose filler tokens are short pronounceable words.
//!
//! Ids: 256 bytes, then the tokens that merges make (syllables `ko`, then words with a leading space:
//! ` ko`, ` kore`, ` koreta`), then three special tokens. A word is always its shorter prefix plus a
//! syllable, so that merging has one way to go and every filler token can be reached from text.

const CONSONANTS: &[u8] = b"bdfghjklmnprstvwyz";
const VOWELS: &[u8] = b"aeiou";
const SYLLABLES: u32 = (CONSONANTS.len() * VOWELS.len()) as u32;
const BYTES: u32 = 256;
/// Id of the first filler token that is a word with a leading space.
const FIRST_WORD: u32 = BYTES + SYLLABLES;
const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// Bytes, syllables, one-syllable words and special tokens: fewer would leave nothing to generate.
pub(crate) const MIN_VOCAB: u32 = BYTES + 2 * SYLLABLES + SPECIAL.len() as u32;
/// Room for all words of up to three syllables.
pub(crate) const MAX_VOCAB: u32 =
    MIN_VOCAB + SYLLABLES * SYLLABLES + SYLLABLES * SYLLABLES * SYLLABLES;

/// Multiplier that scatters the three-syllable words that are used over all that exist.
const SCATTER: u64 = 450_533;

/// A simple ChatML template, the one that Qwen's models made common.
pub(crate) const CHAT_TEMPLATE: &str = "{% for message in messages %}\
{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}\
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// A vocabulary as GGUF stores it.
pub(crate) struct Vocabulary {
    /// Token texts in GPT-2's byte alphabet, by id.
    pub tokens: Vec<String>,
    /// `left right` pairs in order of rank.
    pub merges: Vec<String>,
    /// 1 for normal tokens, 3 for special ones, by id.
    pub token_types: Vec<i32>,
    pub bos_id: u32,
    pub eos_id: u32,
}

/// Which ids are words: the tokens that a model generates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WordRange {
    pub first: u32,
    pub count: u32,
}

pub(crate) fn words(vocab: u32) -> WordRange {
    WordRange { first: FIRST_WORD, count: vocab - FIRST_WORD - SPECIAL.len() as u32 }
}

/// The character that stands for `byte` in GPT-2's alphabet: itself when it is printable, else one
/// from U+0100 on, in order.
fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(0x100 + rank).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn syllable(index: u32) -> String {
    let (c, v) = (index / VOWELS.len() as u32, index % VOWELS.len() as u32);
    [CONSONANTS[c as usize], VOWELS[v as usize]].map(char::from).iter().collect()
}

/// Word number `index` as its prefix (in GPT-2's alphabet) and last syllable.
fn word(index: u32) -> (String, String) {
    let space = byte_char(b' ').to_string();
    let two = SYLLABLES * SYLLABLES;
    if index < SYLLABLES {
        (space, syllable(index))
    } else if index < SYLLABLES + two {
        let i = index - SYLLABLES;
        (space + &syllable(i / SYLLABLES), syllable(i % SYLLABLES))
    } else {
        let all = u64::from(two * SYLLABLES);
        let i = (u64::from(index - SYLLABLES - two) * SCATTER % all) as u32;
        let (a, b, c) = (i / two, i / SYLLABLES % SYLLABLES, i % SYLLABLES);
        (space + &syllable(a) + &syllable(b), syllable(c))
    }
}

/// A vocabulary of `vocab` tokens (at least [`MIN_VOCAB`], at most [`MAX_VOCAB`]).
pub(crate) fn build(vocab: u32) -> Vocabulary {
    let mut tokens: Vec<String> = (0..=255).map(|b| byte_char(b).to_string()).collect();
    let mut merges = Vec::with_capacity((vocab - BYTES) as usize);
    for i in 0..SYLLABLES {
        let s = syllable(i);
        merges.push(format!("{} {}", &s[..1], &s[1..]));
        tokens.push(s);
    }
    for i in 0..words(vocab).count {
        let (prefix, last) = word(i);
        merges.push(format!("{prefix} {last}"));
        tokens.push(prefix + &last);
    }
    let mut token_types = vec![1; tokens.len()];
    tokens.extend(SPECIAL.map(String::from));
    token_types.extend([3; SPECIAL.len()]);
    Vocabulary { tokens, merges, token_types, bos_id: vocab - 3, eos_id: vocab - 1 }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_vocabulary_has_the_asked_size_and_no_duplicates() {
        for vocab in [MIN_VOCAB, 1000, 32_768, 262_144] {
            let v = build(vocab);
            assert_eq!(v.tokens.len(), vocab as usize);
            assert_eq!(v.token_types.len(), vocab as usize);
            assert_eq!(v.tokens.iter().collect::<HashSet<_>>().len(), vocab as usize);
        }
    }

    #[test]
    fn every_merge_joins_two_tokens_into_a_third() {
        let v = build(20_000);
        let known: HashSet<&str> = v.tokens.iter().map(String::as_str).collect();
        for merge in &v.merges {
            let (a, b) = merge.split_once(' ').unwrap();
            assert!(known.contains(a) && known.contains(b), "{merge}");
            assert!(known.contains(format!("{a}{b}").as_str()), "{merge}");
        }
    }

    #[test]
    fn the_byte_alphabet_is_gpt2s() {
        assert_eq!(byte_char(b' '), 'Ġ');
        assert_eq!(byte_char(b'\n'), 'Ċ');
        assert_eq!(byte_char(b'a'), 'a');
        assert_eq!((0..=255).map(byte_char).collect::<HashSet<_>>().len(), 256);
    }

    #[test]
    fn words_are_readable() {
        let v = build(151_936);
        let first = words(151_936).first as usize;
        assert_eq!(&v.tokens[first..first + 3], ["Ġba", "Ġbe", "Ġbi"]);
        assert_eq!(v.tokens[first + 5_000], "Ġpupa");
        assert_eq!(v.tokens[first + 100_000].chars().count(), 7);
    }
}
