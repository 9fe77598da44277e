//! What a tune has done so far: `tune.jsonl`, append-only, synced line by line.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The file.
pub const FILE: &str = "tune.jsonl";

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Entry {
    /// A step is done.
    Done {
        /// Which: `probe`, `disk`, `lossy`.
        step: String,
        /// What it took.
        seconds: f64,
    },
    /// A round of measurements begins: these cells, each so often in all rounds together.
    Round {
        /// Its matrix.
        matrix: String,
        /// Repetitions of each cell.
        repetitions: u32,
    },
    /// The round that was begun last is done.
    RoundDone {
        /// What it took.
        seconds: f64,
    },
}

/// The entries; a last line that was never completed is passed over.
///
/// # Errors
/// The file can't be read, or holds something else.
pub fn read(folder: &Path) -> io::Result<Vec<Entry>> {
    let text = match fs::read_to_string(folder.join(FILE)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let parse = |line: &str| serde_json::from_str(line).map_err(io::Error::from);
    whole.lines().map(parse).collect()
}

/// Appends an entry.
///
/// # Errors
/// It can't be written.
pub fn append(folder: &Path, entry: &Entry) -> io::Result<()> {
    let path = folder.join(FILE);
    // A line that was cut off gets its end, so that the next one stands alone.
    let torn = fs::read(&path).is_ok_and(|bytes| bytes.last().is_some_and(|b| *b != b'\n'));
    if torn {
        let bytes = fs::read(&path)?;
        let end = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        OpenOptions::new().write(true).open(&path)?.set_len(end as u64)?;
    }
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    let mut file = OpenOptions::new().append(true).create(true).open(&path)?;
    file.write_all(&line)?;
    file.sync_data()
}

/// Seconds spent so far.
#[must_use]
pub fn spent_s(entries: &[Entry]) -> f64 {
    entries
        .iter()
        .map(|entry| match entry {
            Entry::Done { seconds, .. } | Entry::RoundDone { seconds } => *seconds,
            Entry::Round { .. } => 0.0,
        })
        .sum()
}

/// Whether a step is done.
#[must_use]
pub fn is_done(entries: &[Entry], wanted: &str) -> bool {
    entries.iter().any(|entry| matches!(entry, Entry::Done { step, .. } if step == wanted))
}

/// The round that was begun last, and whether it is done.
#[must_use]
pub fn last_round(entries: &[Entry]) -> Option<(&str, u32, bool)> {
    let at = entries.iter().rposition(|entry| matches!(entry, Entry::Round { .. }))?;
    let Entry::Round { matrix, repetitions } = &entries[at] else { return None };
    let done = entries[at..].iter().any(|entry| matches!(entry, Entry::RoundDone { .. }));
    Some((matrix, *repetitions, done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_is_taken_back_and_the_rest_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let round = Entry::Round { matrix: "name = \"x\"\n".into(), repetitions: 2 };
        append(dir.path(), &Entry::Done { step: "probe".into(), seconds: 2.5 }).unwrap();
        append(dir.path(), &round).unwrap();
        let path = dir.path().join(FILE);
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("{\"event\":\"round_do");
        fs::write(&path, text).unwrap();
        assert_eq!(read(dir.path()).unwrap().len(), 2);
        assert_eq!(last_round(&read(dir.path()).unwrap()), Some(("name = \"x\"\n", 2, false)));
        append(dir.path(), &Entry::RoundDone { seconds: 7.0 }).unwrap();
        let entries = read(dir.path()).unwrap();
        assert_eq!((entries.len(), spent_s(&entries), is_done(&entries, "probe")), (3, 9.5, true));
        assert_eq!(last_round(&entries).map(|(.., done)| done), Some(true));
    }
}
