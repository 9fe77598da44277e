//! What a device was like during a run: `key=value` lines.

use std::io::Read;

use super::error::{ImportError, Result, quoted};
use super::keys::Keys;
use super::lines::{LONGEST_ROW, Lines};

/// The lines of a `.metrics` file, such as `peak_rss_kb=6107056`; units are in the names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceMetrics {
    /// All of them, in file order.
    pub keys: Keys,
    /// A last line without an end, which may have been cut off, was left out.
    pub unfinished_line: Option<u64>,
}

/// Most lines of such a file.
const MOST_LINES: u64 = 10_000;

pub(super) fn read(input: impl Read) -> Result<DeviceMetrics> {
    let mut lines = Lines::new(input, LONGEST_ROW);
    let mut metrics = DeviceMetrics::default();
    while let Some(line) = lines.next()? {
        if line.is_blank() || line.bytes.starts_with(b"#") {
            continue;
        }
        if !line.ended {
            metrics.unfinished_line = Some(line.number);
            break;
        }
        if line.number > MOST_LINES {
            let found = format!("more than {MOST_LINES} lines of key=value");
            return Err(ImportError::line(line.number, found, "a handful of device metrics"));
        }
        let Some((key, value)) = line.text()?.split_once('=').filter(|(key, _)| !key.is_empty())
        else {
            return Err(ImportError::line(line.number, quoted(line.bytes), "key=value"));
        };
        if metrics.keys.get(key).is_some() {
            return Err(ImportError::key(line.number, key, value, "each key once"));
        }
        metrics.keys.push(key.trim(), value.trim());
    }
    Ok(metrics)
}
