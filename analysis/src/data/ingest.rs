//! From the traces of a result folder to its Parquet files.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::read::{DataReader, RunMetadata};
use super::rows::{RunRow, TokenRow};
use super::trace::{Run, read_trace};
use super::write::DataWriter;
use super::{Table, TraceProblem};
use crate::error::{AnalysisError, Result};
use crate::journal::Journal;
use crate::result_set::CellRecord;

/// File name of a trace within `runs/`.
const TRACE_FILE: &str = "trace.bin";

/// What [`ingest`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ingested {
    /// Runs in the Parquet files.
    pub runs: usize,
    /// Of those, the ones whose trace ends in an unfinished record.
    pub truncated: usize,
    /// Of those, the ones taken over from the earlier Parquet files because their traces are gone.
    pub kept: usize,
    /// Traces that could not be used.
    pub left_out: Vec<LeftOut>,
}

/// A trace that could not be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The file, relative to the result folder.
    pub trace: String,
    /// Why.
    pub reason: String,
}

/// Where a run's rows come from.
enum Source {
    Trace(PathBuf),
    Kept,
}

struct Planned {
    run_id: String,
    row: RunRow,
    source: Source,
}

/// Builds `DIR/data/*.parquet` from `DIR/runs/**/trace.bin` and the journal.
///
/// Runs whose traces were deleted are taken over from the Parquet files that are there already. A trace
/// of which nothing can be used is left out and named in the result and in the files' metadata.
///
/// # Errors
/// The folder is no result folder, can't be read or written, or runs would be lost because the earlier
/// Parquet files can't be read.
pub fn ingest(dir: &Path) -> Result<Ingested> {
    let journal = Journal::read(dir)?;
    let cells: HashMap<&str, &CellRecord> =
        journal.records.iter().filter_map(|c| Some((c.run_id.as_deref()?, c))).collect();
    let mut done = Ingested::default();
    let mut planned: Vec<Planned> = Vec::new();
    let mut metadata = BTreeMap::new();
    for path in find_traces(&dir.join("runs"))? {
        let relative = path.strip_prefix(dir).unwrap_or(&path).display().to_string();
        let run = match read_trace(&path) {
            Ok(run) if metadata.contains_key(&run.start.run_id) => {
                let reason = format!("another trace is of the same run {}", run.start.run_id);
                done.left_out.push(LeftOut { trace: relative, reason });
                continue;
            }
            Ok(run) => run,
            Err(problem) => {
                done.left_out.push(LeftOut { trace: relative, reason: problem.to_string() });
                continue;
            }
        };
        let run_id = run.start.run_id.clone();
        let row = RunRow::new(&run, cells.get(run_id.as_str()).copied());
        metadata.insert(run_id.clone(), metadata_of(&row, &run));
        planned.push(Planned { run_id, row, source: Source::Trace(path) });
    }
    let mut kept = Kept::default();
    let missing = cells.keys().any(|id| !metadata.contains_key(*id));
    if missing && DataReader::new(dir).exists() {
        kept = Kept::read(dir)?;
        for (run_id, row) in std::mem::take(&mut kept.runs) {
            if let (false, Some(about)) =
                (metadata.contains_key(&run_id), kept.metadata.remove(&run_id))
            {
                metadata.insert(run_id.clone(), about);
                planned.push(Planned { run_id, row, source: Source::Kept });
            }
        }
    }
    // The runner's order; runs that the journal doesn't know come last, oldest first.
    planned.sort_by(|a, b| {
        let key = |p: &Planned| (p.row.run_order.unwrap_or(u32::MAX), p.row.started_unix_ms);
        key(a).cmp(&key(b)).then_with(|| a.run_id.cmp(&b.run_id))
    });
    let mut writer = DataWriter::create(dir, &metadata, &done.left_out)?;
    for Planned { run_id, row, source } in &planned {
        match source {
            Source::Trace(path) => {
                let run = read_trace(path).map_err(|e| changed(path, &e))?;
                writer.write_run(run_id, row, &run.tokens, &run.routes)?;
            }
            Source::Kept => {
                let tokens = kept.tokens.remove(run_id).unwrap_or_default();
                let routes = DataReader::new(dir).routes_of(run_id)?;
                writer.write_run(run_id, row, &tokens, &routes)?;
                done.kept += 1;
            }
        }
        done.truncated += usize::from(row.truncated_bytes > 0);
    }
    writer.finish()?;
    done.runs = planned.len();
    Ok(done)
}

fn metadata_of(row: &RunRow, run: &Run) -> RunMetadata {
    RunMetadata {
        cell: row.cell_name.clone(),
        model: row.model.clone(),
        truncated_bytes: row.truncated_bytes,
        config: serde_json::to_value(&run.start.config).unwrap_or_default(),
        shape: run.start.model.clone(),
    }
}

/// A trace that could be read a moment ago.
fn changed(path: &Path, problem: &TraceProblem) -> AnalysisError {
    AnalysisError::io("read", path)(std::io::Error::other(format!(
        "it changed while it was being read: {problem}"
    )))
}

/// Rows of the earlier files.
#[derive(Default)]
struct Kept {
    runs: Vec<(String, RunRow)>,
    metadata: BTreeMap<String, RunMetadata>,
    tokens: BTreeMap<String, Vec<TokenRow>>,
}

impl Kept {
    fn read(dir: &Path) -> Result<Self> {
        let reader = DataReader::new(dir);
        Ok(Self {
            runs: reader.runs()?,
            metadata: reader.metadata(Table::Runs)?.runs,
            tokens: reader.tokens()?,
        })
    }
}

/// All traces below a folder, in path order; none when the folder is missing.
fn find_traces(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(AnalysisError::io("read", &folder)(e)),
        };
        for entry in entries {
            let entry = entry.map_err(AnalysisError::io("read", &folder))?;
            let kind = entry.file_type().map_err(AnalysisError::io("read", &folder))?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if entry.file_name() == TRACE_FILE {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}
