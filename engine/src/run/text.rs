/// Puts tokens' bytes together to text: a character may be split over tokens.
#[derive(Debug, Default)]
pub(super) struct TextStream {
    pending: Vec<u8>,
}

impl TextStream {
    /// Adds a token's bytes; returns the text that became complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        let mut text = String::new();
        self.pending.extend_from_slice(bytes);
        loop {
            match std::str::from_utf8(&self.pending) {
                Ok(valid) => {
                    text.push_str(valid);
                    self.pending.clear();
                    return text;
                }
                Err(e) => {
                    let (valid, rest) = self.pending.split_at(e.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    match e.error_len() {
                        // Never going to be a character.
                        Some(bad) => {
                            text.push(char::REPLACEMENT_CHARACTER);
                            self.pending = rest[bad..].to_vec();
                        }
                        // The rest may come with the next token.
                        None => {
                            self.pending = rest.to_vec();
                            return text;
                        }
                    }
                }
            }
        }
    }

    /// What never became a character, as U+FFFD.
    pub(super) fn take_rest(&mut self) -> String {
        let rest = std::mem::take(&mut self.pending);
        if rest.is_empty() { String::new() } else { char::REPLACEMENT_CHARACTER.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_over_token_borders_come_once_and_whole() {
        let mut stream = TextStream::default();
        assert_eq!(stream.push(b"a\xE2\x82"), "a");
        assert_eq!(stream.push(b"\xACb\xFFc"), "\u{20AC}b\u{FFFD}c");
        assert_eq!(stream.push(b"\xE2"), "");
        assert_eq!((stream.take_rest().as_str(), stream.take_rest().as_str()), ("\u{FFFD}", ""));
    }
}
