//! `key=value` pairs of preambles, summaries and device files.

use serde::{Deserialize, Serialize};

use super::error::{ImportError, Result};

/// More than a preamble with 65 536 layers has.
const MOST_KEYS: usize = 500_000;

/// Pairs in the order in which they were written; nothing that a reader does not know is dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Keys(pub Vec<(String, String)>);

impl Keys {
    /// The first value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// The first value of a key, as a number or whatever it should be; `None` also when it is not.
    #[must_use]
    pub fn parsed<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.get(key)?.parse().ok()
    }

    /// Refuses more pairs than any program writes, at the line that brings them.
    pub(super) fn bounded(&self, line: u64) -> Result<()> {
        if self.0.len() <= MOST_KEYS {
            return Ok(());
        }
        let found = format!("more than {MOST_KEYS} pairs of key and value");
        Err(ImportError::line(line, found, "a preamble"))
    }

    pub(super) fn push(&mut self, key: &str, value: impl Into<String>) {
        self.0.push((key.to_owned(), value.into()));
    }

    /// Adds the pairs of a line. What is not of the form belongs to the value before it, since some writers
    /// leave blanks in values as they are; words before the first pair are returned.
    pub(super) fn add_line<'a>(&mut self, line: &'a str) -> Vec<&'a str> {
        let mut words = Vec::new();
        let before = self.0.len();
        for word in line.split_ascii_whitespace() {
            match word.split_once('=').filter(|(key, _)| !key.is_empty()) {
                Some((key, value)) => self.0.push((key.to_owned(), decoded(value))),
                None if self.0.len() > before => {
                    if let Some((_, value)) = self.0.last_mut() {
                        value.push(' ');
                        value.push_str(&decoded(word));
                    }
                }
                None => words.push(word),
            }
        }
        words
    }
}

/// `%20` and its like undone; what is no such code stays.
fn decoded(value: &str) -> String {
    let bytes = value.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%')
            .then(|| value.get(at + 1..at + 3))
            .flatten()
            .filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| value.to_owned())
}
