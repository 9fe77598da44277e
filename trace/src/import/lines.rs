//! Lines of an input of any size, one at a time.

use std::io::{ErrorKind, Read};

use super::error::{ImportError, Result};

/// The longest line of JSON that is read: a token of 256 layers at top-64 takes 100 KiB.
pub(super) const LONGEST_JSON: usize = 16 << 20;

/// The longest line of anything else: a row takes some hundred bytes.
pub(super) const LONGEST_ROW: usize = 1 << 20;

/// How much is read at once.
const STEP: usize = 256 << 10;

/// One line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    /// Its number, from 1.
    pub(super) number: u64,
    /// Its bytes, without its end and without a byte-order mark.
    pub(super) bytes: &'a [u8],
    /// It has an end; only the last line of a file can be without.
    pub(super) ended: bool,
}

/// Reads lines that end in `\n` or `\r\n`.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    longest: usize,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    number: u64,
    at_end: bool,
}

impl<R: Read> Lines<R> {
    /// Lines of at most so many bytes.
    pub(super) fn new(input: R, longest: usize) -> Self {
        Self { input, longest, buffer: vec![0; STEP], start: 0, end: 0, number: 0, at_end: false }
    }

    /// The next line; `None` at the end.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<Line<'_>>> {
        let mut looked = 0;
        let (from, to, ended) = loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(length) = memchr::memchr(b'\n', &unread[looked..]) {
                let from = self.start;
                self.start += looked + length + 1;
                break (from, from + looked + length, true);
            }
            looked = unread.len();
            if self.at_end {
                let from = self.start;
                self.start = self.end;
                if looked == 0 {
                    return Ok(None);
                }
                break (from, self.end, false);
            }
            if looked > self.longest {
                let found = format!("longer than {} MiB", self.longest >> 20);
                return Err(ImportError::line(self.number + 1, found, "lines of text"));
            }
            self.fill()?;
        };
        self.number += 1;
        let mut bytes = &self.buffer[from..to];
        if ended {
            bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        }
        if self.number == 1 {
            bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
            // The whole of a file with the line ends of old Macs.
            if memchr::memchr(b'\r', bytes).is_some() {
                let expected = "lines that end in LF or CRLF (`tr '\\r' '\\n'` makes such)";
                return Err(ImportError::line(1, "lines that end in CR alone", expected));
            }
        }
        Ok(Some(Line { number: self.number, bytes, ended }))
    }

    fn fill(&mut self) -> Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() < self.end + STEP {
            self.buffer.resize((self.end + STEP).max(2 * self.end), 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.at_end = true,
                Ok(read) => self.end += read,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e.into()),
            }
            return Ok(());
        }
    }
}

/// Refuses a header with more columns than any program writes.
pub(super) fn too_many_columns(header: &Line<'_>) -> Result<()> {
    const MOST: usize = 1024;
    let columns = header.bytes.split(|b| *b == b',').count();
    if columns <= MOST {
        return Ok(());
    }
    Err(ImportError::line(header.number, format!("{columns} columns"), format!("at most {MOST}")))
}

impl Line<'_> {
    pub(super) fn is_blank(&self) -> bool {
        self.bytes.iter().all(u8::is_ascii_whitespace)
    }

    /// The line as text.
    ///
    /// # Errors
    /// It is not UTF-8, or holds NUL bytes.
    pub(super) fn text(&self) -> Result<&str> {
        let wrong = |at: usize, what: &str| {
            ImportError::line(self.number, format!("byte {} is {what}", at + 1), "text in UTF-8")
        };
        if let Some(at) = memchr::memchr(0, self.bytes) {
            return Err(wrong(at, "NUL"));
        }
        std::str::from_utf8(self.bytes).map_err(|e| wrong(e.valid_up_to(), "not UTF-8"))
    }
}
