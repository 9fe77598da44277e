//! The tokens whose state the context holds, with the text that they are.

/// What the model has read and written, token by token.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    /// Bytes of the text before and with each token. Tokens are not needed: they are only ever kept.
    ends: Vec<usize>,
    text: Vec<u8>,
}

impl Transcript {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Adds a token with its text, marks by their names.
    pub(super) fn push(&mut self, source: &[u8]) {
        self.text.extend_from_slice(source);
        self.ends.push(self.text.len());
    }

    /// Keeps the first `tokens`.
    pub(super) fn truncate(&mut self, tokens: usize) {
        self.ends.truncate(tokens);
        self.text.truncate(self.text_bytes(tokens));
    }

    /// Bytes of the text that the first `tokens` are.
    pub(super) fn text_bytes(&self, tokens: usize) -> usize {
        tokens.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// How many of the tokens, from the first on, are a beginning of `text` that ends between two of its
    /// characters.
    pub(super) fn common(&self, text: &str) -> usize {
        let same = self.text.iter().zip(text.as_bytes()).take_while(|(a, b)| a == b).count();
        let mut tokens = self.ends.partition_point(|end| *end <= same);
        while !text.is_char_boundary(self.text_bytes(tokens)) {
            tokens -= 1;
        }
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript(sources: &[&[u8]]) -> Transcript {
        let mut transcript = Transcript::default();
        for source in sources {
            transcript.push(source);
        }
        transcript
    }

    #[test]
    fn whole_tokens_and_whole_characters_are_common() {
        let text = transcript(&[b"<s>", b"He", b"llo", b"\xE2\x82", b"\xAC", b"!"]);
        assert_eq!(text.common("<s>Hello€! And"), 6);
        assert_eq!(text.common("<s>Hello€"), 5);
        // The fourth token ends within a character.
        assert_eq!(text.common("<s>Hello₭"), 3);
        assert_eq!(text.common("<s>Help"), 2);
        assert_eq!(text.common("Hello"), 0);
        assert_eq!(Transcript::default().common("a"), 0);
    }

    #[test]
    fn cutting_takes_text_along() {
        let mut text = transcript(&[b"", b"one", b" two"]);
        assert_eq!((text.common("one three"), text.text_bytes(2)), (2, 3));
        text.truncate(2);
        text.push(b" three");
        assert_eq!((text.len(), text.common("one three")), (3, 3));
        text.truncate(0);
        assert_eq!((text.len(), text.common("one")), (0, 0));
    }
}
