//! What is wrong with an input, and where.

use std::fmt;
use std::io;

use crate::codec::CodecError;

/// Results of this module.
pub type Result<T> = std::result::Result<T, ImportError>;

/// An input that can't be imported. The file's name is the caller's to add.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The storage failed.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// A binary trace that is damaged or of another version.
    #[error(transparent)]
    Trace(#[from] CodecError),
    /// No format that is known.
    #[error(
        "not a trace or log that can be imported: it begins with {found}; expected a bmoe trace, \
         `# route_trace v1`, JSON lines with \"tok\" and \"layers\" or of moe-cache-lab.routing-jsonl, a CSV \
         header with `wall_ms`, or key=value lines"
    )]
    Unknown {
        /// Its beginning, shortened.
        found: String,
    },
    /// A binary trace whose records do not fit together.
    #[error("the trace is damaged: {found}")]
    Damaged {
        /// Which record, and what is wrong with it.
        found: String,
    },
    /// A version of a format that is not known.
    #[error("line {line}: version {found} of {format} is not known; expected {expected}")]
    Version {
        /// Line, from 1.
        line: u64,
        /// The format.
        format: &'static str,
        /// What the file says.
        found: String,
        /// What can be read.
        expected: &'static str,
    },
    /// One value is wrong.
    #[error("line {line}, {place}: {value}; expected {expected}")]
    Value {
        /// Line, from 1.
        line: u64,
        /// Where in the line.
        place: Place,
        /// What stands there, shortened.
        value: String,
        /// What should.
        expected: String,
    },
    /// A line is wrong as a whole.
    #[error("line {line}: {found}; expected {expected}")]
    Line {
        /// Line, from 1.
        line: u64,
        /// What it is.
        found: String,
        /// What it should be.
        expected: String,
    },
}

/// A place in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A field of a CSV line.
    Column {
        /// Its number, from 1.
        number: usize,
        /// Its name in the header.
        name: String,
    },
    /// A key of a preamble or of a JSON object.
    Key(String),
    /// A byte of a JSON line.
    Byte(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Column { number, name } => write!(f, "column {number} ({name})"),
            Self::Key(name) => write!(f, "`{name}`"),
            Self::Byte(number) => write!(f, "column {number}"),
        }
    }
}

impl ImportError {
    pub(super) fn line(line: u64, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Line { line, found: found.into(), expected: expected.into() }
    }

    pub(super) fn key(
        line: u64,
        key: &str,
        value: impl fmt::Display,
        expected: impl Into<String>,
    ) -> Self {
        Self::Value {
            line,
            place: Place::Key(key.to_owned()),
            value: quoted(value.to_string().as_bytes()),
            expected: expected.into(),
        }
    }

    /// What a JSON parser says of a line that stands alone.
    pub(super) fn json(line: u64, error: &serde_json::Error, expected: &str) -> Self {
        // Its own "at line 1 column 7" would be a second line number.
        let text = error.to_string();
        let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        Self::Value {
            line,
            place: Place::Byte(error.column()),
            value: what.to_owned(),
            expected: expected.to_owned(),
        }
    }
}

/// A value as an error shows it: escaped, and cut where it gets long.
pub(super) fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 60;
    if bytes.is_empty() {
        return "nothing".to_owned();
    }
    let shown: String = bytes
        .iter()
        .take(SHOWN)
        .copied()
        .flat_map(std::ascii::escape_default)
        .map(char::from)
        .collect();
    let text = String::from_utf8(bytes.to_vec())
        .ok()
        .filter(|text| bytes.len() <= SHOWN && !text.chars().any(char::is_control))
        .unwrap_or(shown);
    if bytes.len() > SHOWN {
        format!("`{text}…` ({} bytes)", bytes.len())
    } else {
        format!("`{text}`")
    }
}
