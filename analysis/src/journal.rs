//! The JSON files of a result folder: `cells.jsonl`, `environment.json` and `groups.json`.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::error::{AnalysisError, Result};
use crate::result_set::{CellRecord, Environment, NamedGroup, PublishedSet};

/// What `cells.jsonl` holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Journal {
    /// The attempts, in the order in which they ended.
    pub records: Vec<CellRecord>,
    /// The file ends in a line that was never completed; it is not among the records.
    pub unfinished_line: bool,
}

impl Journal {
    /// A later line about the same attempt takes the place of the earlier one: it was judged again.
    fn take(&mut self, record: CellRecord) {
        let key = |r: &CellRecord| (r.repetition, r.attempt, r.order);
        let same = |r: &&mut CellRecord| r.id == record.id && key(r) == key(&record);
        match self.records.iter_mut().find(same) {
            Some(earlier) => *earlier = record,
            None => self.records.push(record),
        }
    }

    /// Reads `DIR/cells.jsonl`. A last line without its line end, as a killed runner leaves, is passed
    /// over and told.
    ///
    /// # Errors
    /// The file is missing, or a completed line is not a cell record.
    pub fn read(dir: &Path) -> Result<Self> {
        let path = dir.join("cells.jsonl");
        let text = fs::read_to_string(&path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => AnalysisError::NotAResultFolder { path: dir.to_owned() },
            _ => AnalysisError::io("read", &path)(e),
        })?;
        let mut journal = Self::default();
        for (index, line) in text.split_inclusive('\n').enumerate() {
            match serde_json::from_str(line) {
                Ok(record) => journal.take(record),
                Err(_) if line.trim().is_empty() => {}
                Err(_) if !line.ends_with('\n') => journal.unfinished_line = true,
                Err(e) => {
                    return Err(AnalysisError::Json {
                        path,
                        line: index + 1,
                        message: format!("not a cell record: {e}"),
                    });
                }
            }
        }
        Ok(journal)
    }
}

/// Reads `DIR/environment.json`.
///
/// # Errors
/// The file is missing or is not an environment.
pub fn read_environment(dir: &Path) -> Result<Environment> {
    let path = dir.join("environment.json");
    let text = fs::read_to_string(&path).map_err(AnalysisError::io("read", &path))?;
    serde_json::from_str(&text).map_err(|e| AnalysisError::Json {
        line: e.line(),
        message: format!("not an environment: {e}"),
        path,
    })
}

/// Reads the cells that the matrix wants compared; none when it names none.
///
/// # Errors
/// The file can't be read or holds something else.
pub fn read_groups(dir: &Path) -> Result<Vec<NamedGroup>> {
    Ok(optional(dir, "groups.json", "a list of groups")?.unwrap_or_default())
}

/// Reads the figures that others have published of the matrix's cells; `None` when it has none.
///
/// # Errors
/// The file can't be read or holds something else.
pub fn read_published(dir: &Path) -> Result<Option<PublishedSet>> {
    optional(dir, "published.json", "a set of published figures")
}

/// A file of JSON that need not be there.
fn optional<T: serde::de::DeserializeOwned>(
    dir: &Path,
    name: &str,
    what: &str,
) -> Result<Option<T>> {
    let path = dir.join(name);
    let text = match fs::read_to_string(&path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(AnalysisError::io("read", &path))?,
    };
    serde_json::from_str(&text).map(Some).map_err(|e| AnalysisError::Json {
        line: e.line(),
        message: format!("not {what}: {e}"),
        path,
    })
}
