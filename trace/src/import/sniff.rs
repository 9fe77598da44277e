//! Which format an input is of, from its first bytes.

use std::io::{ErrorKind, Read};

use super::error::{ImportError, Result, quoted};
use crate::codec;

/// Enough for the longest preamble that anyone writes before a header.
const PREFIX_BYTES: usize = 64 << 10;

pub(super) enum Found {
    Binary,
    RouteCsv,
    TokenJsonl,
    CacheLab,
    Metrics,
    Device,
}

/// Reads the first bytes.
pub(super) fn prefix(input: &mut impl Read) -> Result<Vec<u8>> {
    let mut bytes = vec![0; PREFIX_BYTES];
    let mut got = 0;
    while got < bytes.len() {
        match input.read(&mut bytes[got..]) {
            Ok(0) => break,
            Ok(read) => got += read,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    bytes.truncate(got);
    Ok(bytes)
}

/// Tells what they are.
pub(super) fn format(prefix: &[u8]) -> Result<Found> {
    let unknown = |found: String| Err(ImportError::Unknown { found });
    if prefix.starts_with(&codec::MAGIC) {
        return Ok(Found::Binary);
    }
    if prefix.is_empty() {
        return unknown("nothing: it is empty".to_owned());
    }
    if prefix.starts_with(b"\xFF\xFE") || prefix.starts_with(b"\xFE\xFF") {
        return unknown("the byte-order mark of UTF-16 (text has to be UTF-8)".to_owned());
    }
    let text = prefix.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(prefix);
    let lines = || text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).filter(|l| !l.is_empty());
    // A preamble's name decides, then the first line that is not a preamble's.
    for line in lines().take_while(|line| line.starts_with(b"#")) {
        let name = line[1..].trim_ascii_start();
        if name.starts_with(b"route_trace ") {
            return Ok(Found::RouteCsv);
        }
        if name.starts_with(b"bmoe_metrics ") {
            return Ok(Found::Metrics);
        }
    }
    let Some(line) = lines().find(|line| !line.starts_with(b"#")) else {
        return unknown(quoted(lines().next().unwrap_or_default()));
    };
    if line.starts_with(b"{") {
        return json(line);
    }
    let names: Vec<&[u8]> = line.split(|b| *b == b',').map(<[u8]>::trim_ascii).collect();
    let has = |name: &str| names.contains(&name.as_bytes());
    if has("wall_ms") {
        return Ok(Found::Metrics);
    }
    if has("expert") && has("layer") {
        return Ok(Found::RouteCsv);
    }
    let key = |line: &[u8]| {
        line.iter().position(|b| *b == b'=').is_some_and(|at| at > 0 && is_word(&line[..at]))
    };
    if !text.contains(&0) && names.len() == 1 && lines().take(8).all(key) {
        return Ok(Found::Device);
    }
    unknown(quoted(line))
}

fn is_word(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(b))
}

/// A line longer than the prefix can't be parsed; its keys can be found all the same.
fn json(line: &[u8]) -> Result<Found> {
    let has = |key: &str| line.windows(key.len()).any(|w| w == key.as_bytes());
    if has("\"record_type\"") || has("\"moe-cache-lab.routing-jsonl\"") {
        return Ok(Found::CacheLab);
    }
    if has("\"tok\"") && has("\"layers\"") {
        return Ok(Found::TokenJsonl);
    }
    Err(ImportError::Unknown { found: quoted(line) })
}
