//! Text of one JSON record a line.

use std::io::Read;

use serde::de::DeserializeOwned;

use super::error::{ImportError, Result};
use super::lines::{LONGEST_JSON, Lines};

/// Reads records; blank lines are passed over, and a last line that was cut off is left out and noted.
#[derive(Debug)]
pub(super) struct JsonLines<R> {
    lines: Lines<R>,
    unfinished_line: Option<u64>,
    at_end: bool,
}

impl<R: Read> JsonLines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { lines: Lines::new(input, LONGEST_JSON), unfinished_line: None, at_end: false }
    }

    /// Whether all records were read.
    pub(super) const fn at_end(&self) -> bool {
        self.at_end
    }

    /// The next record with the number of its line; `expected` is what a line should be.
    ///
    /// # Errors
    /// The line is no such record.
    pub(super) fn next<T: DeserializeOwned>(&mut self, expected: &str) -> Result<Option<(u64, T)>> {
        while !self.at_end {
            let Some(line) = self.lines.next()? else { break };
            if line.is_blank() {
                continue;
            }
            match serde_json::from_slice(line.bytes) {
                Ok(record) => return Ok(Some((line.number, record))),
                Err(e) if !line.ended && e.is_eof() => {
                    self.unfinished_line = Some(line.number);
                    break;
                }
                Err(e) => return Err(ImportError::json(line.number, &e, expected)),
            }
        }
        self.at_end = true;
        Ok(None)
    }

    /// What was left out.
    pub(super) fn note(&self) -> Option<String> {
        self.unfinished_line.map(|line| {
            format!("line {line}, the last, is not complete and was left out: it was cut off")
        })
    }
}
