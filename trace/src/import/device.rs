//! What a device was like during a run: `key=value` lines.

use std::io::Read;
use std::ops::RangeInclusive;

use super::error::{ImportError, Result, quoted};
use super::fields::real_64;
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

/// What figures can be, by the unit at the end of their name.
const UNITS: [(&str, RangeInclusive<f64>); 4] = [
    // Up to a pebibyte.
    ("_kb", 0.0..=1_099_511_627_776.0),
    ("_mib", 0.0..=1_073_741_824.0),
    // Temperatures, in thousandths and tenths of a degree Celsius.
    ("_mC", -100_000.0..=300_000.0),
    ("_dC", -1_000.0..=3_000.0),
];

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
        let (key, value) = (key.trim(), value.trim());
        if metrics.keys.get(key).is_some() {
            return Err(ImportError::key(line.number, key, value, "each key once"));
        }
        if let Some((_, range)) = UNITS.iter().find(|(unit, _)| key.ends_with(unit)) {
            let number = real_64(value.as_bytes());
            if !number.is_some_and(|number| range.contains(&number) || number == -1.0) {
                let (low, high) = (range.start(), range.end());
                let expected = format!("a number, {low} to {high}, or -1 (not measured)");
                return Err(ImportError::key(line.number, key, value, expected));
            }
        }
        metrics.keys.push(key, value);
    }
    Ok(metrics)
}
