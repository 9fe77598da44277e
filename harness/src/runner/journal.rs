//! What has happened in a result folder, so that it can go on after anything.
//!
//! `journal.jsonl` says what was begun, `cells.jsonl` what came of it. Both are only ever appended to, a line
//! at a time, and a line is on the disk before what it says is acted upon. A runner holds the journal's
//! lock as long as it lives.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bmoe_analysis::result_set::{CellRecord, Gate, State};
use bmoe_supervise::Lock;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

const RECORDS: &str = "cells.jsonl";
const EVENTS: &str = "journal.jsonl";
const LOCK: &str = "runner.lock";

/// Something that happened, a line of `journal.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum JournalEvent {
    /// A runner began to work here.
    Begun {
        /// Milliseconds since the Unix epoch.
        unix_ms: u64,
        /// Its version.
        bmoe: String,
        /// Its process.
        pid: u32,
    },
    /// How the target was before the first run.
    Baseline {
        /// Milliseconds since the Unix epoch.
        unix_ms: u64,
        /// Its state.
        state: State,
    },
    /// An attempt is about to be started.
    Started(Box<Started>),
}

/// An attempt, as far as it is known before it starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// The cell.
    pub id: String,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Attempt at it, from 1.
    pub attempt: u32,
    /// Position in the order in which attempts were started, from 0.
    pub order: u32,
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// The target's folder of the attempt.
    pub place: PathBuf,
    /// The target before it.
    pub entry: State,
    /// What was waited for.
    pub gate: Option<Gate>,
}

/// A journal that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The storage.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done, a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another runner works in the folder.
    #[error(
        "another runner works in {}: {by}; wait for its end, or stop it first",
        folder.display()
    )]
    Held {
        /// The result folder.
        folder: PathBuf,
        /// Who.
        by: String,
    },
    /// A line that is whole and not understood.
    #[error("{} line {line} is damaged: {message}; without it nobody knows what is done", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
}

impl JournalError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

/// The journal of a result folder, held by this process.
#[derive(Debug)]
pub struct Journal {
    records: Lines,
    events: Lines,
    _lock: Lock,
}

/// What a journal says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Past {
    /// Attempts that ended, in that order.
    pub records: Vec<CellRecord>,
    /// What happened, in that order.
    pub events: Vec<JournalEvent>,
    /// Files that ended in the middle of a line, which was removed.
    pub torn: Vec<PathBuf>,
}

impl Journal {
    /// Takes a folder's journal, which is made when there is none, and reads it.
    ///
    /// # Errors
    /// Another runner has it, or it can't be read or written.
    pub fn open(folder: &Path) -> Result<(Self, Past), JournalError> {
        let path = folder.join(LOCK);
        let owner = format!("process {}", std::process::id());
        let lock = Lock::take(&path, &owner, Duration::ZERO)
            .map_err(JournalError::io("lock", &path))?
            .map_err(|held| JournalError::Held { folder: folder.to_owned(), by: held.by })?;
        let mut past = Past::default();
        let events = Lines::open(folder.join(EVENTS), &mut past.events, &mut past.torn)?;
        let records = Lines::open(folder.join(RECORDS), &mut past.records, &mut past.torn)?;
        // The names must survive a crash as well as what is written under them.
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(JournalError::io("write", folder))?;
        Ok((Self { records, events, _lock: lock }, past))
    }

    /// Appends an attempt that ended. It is on the disk when this returns.
    ///
    /// # Errors
    /// The write failed.
    pub fn record(&mut self, record: &CellRecord) -> Result<(), JournalError> {
        self.records.append(record)
    }

    /// Appends something that happened, or is about to. It is on the disk when this returns.
    ///
    /// # Errors
    /// The write failed.
    pub fn event(&mut self, event: &JournalEvent) -> Result<(), JournalError> {
        self.events.append(event)
    }
}

/// A file of JSON lines.
#[derive(Debug)]
struct Lines {
    path: PathBuf,
    file: File,
}

impl Lines {
    fn open<T: DeserializeOwned>(
        path: PathBuf,
        found: &mut Vec<T>,
        torn: &mut Vec<PathBuf>,
    ) -> Result<Self, JournalError> {
        let file = OpenOptions::new().create(true).append(true).read(true).open(&path);
        let file = file.map_err(JournalError::io("open", &path))?;
        let bytes = std::fs::read(&path).map_err(JournalError::io("read", &path))?;
        // What a runner was killed in the middle of writing never happened.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(JournalError::io("mend", &path))?;
            torn.push(path.clone());
        }
        for (index, line) in bytes[..whole].split_inclusive(|byte| *byte == b'\n').enumerate() {
            let one = serde_json::from_slice(line).map_err(|e| JournalError::Damaged {
                path: path.clone(),
                line: index + 1,
                message: e.to_string(),
            })?;
            found.push(one);
        }
        Ok(Self { path, file })
    }

    fn append(&mut self, value: &impl Serialize) -> Result<(), JournalError> {
        let written = serde_json::to_vec(value).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            self.file.write_all(&line)?;
            self.file.sync_data()
        });
        written.map_err(JournalError::io("write", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(pid: u32) -> JournalEvent {
        JournalEvent::Begun { unix_ms: 1, bmoe: "0".into(), pid }
    }

    #[test]
    fn a_torn_line_is_removed_and_told_and_the_next_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(EVENTS);
        let (mut journal, past) = Journal::open(folder.path()).unwrap();
        assert_eq!(past, Past::default());
        journal.event(&begun(1)).unwrap();
        drop(journal);
        let mut bytes = std::fs::read(&path).unwrap();
        let whole = bytes.len();
        bytes.extend_from_slice(b"{\"event\":\"beg");
        std::fs::write(&path, bytes).unwrap();
        let (mut journal, past) = Journal::open(folder.path()).unwrap();
        assert_eq!(
            (past.events.as_slice(), past.torn),
            ([begun(1)].as_slice(), vec![path.clone()])
        );
        assert_eq!(std::fs::metadata(&path).unwrap().len(), whole as u64);
        journal.event(&begun(2)).unwrap();
        drop(journal);
        assert_eq!(Journal::open(folder.path()).unwrap().1.events, [begun(1), begun(2)]);
    }

    #[test]
    fn a_second_runner_is_refused_and_a_damaged_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let first = Journal::open(folder.path()).unwrap();
        let error = Journal::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("another runner works in"), "{error}");
        drop(first);
        std::fs::write(folder.path().join(RECORDS), "nonsense\n").unwrap();
        let error = Journal::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("cells.jsonl line 1 is damaged"), "{error}");
    }
}
