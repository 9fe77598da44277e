//! From the traces of a result folder to its Parquet files.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::earlier::Earlier;
use super::read::{DataReader, RunMetadata};
use super::rows::{RunRow, RunTables};
use super::trace::read_trace;
use super::write::DataWriter;
use super::{Table, TraceProblem};
use crate::error::{AnalysisError, Result};
use crate::journal::Journal;
use crate::result_set::{CellRecord, Verdict};

/// File name of a trace within `runs/`.
const TRACE_FILE: &str = "trace.bin";

/// What [`ingest`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ingested {
    /// Runs in the Parquet files.
    pub runs: usize,
    /// Of those, the ones whose trace ends in an unfinished record.
    pub truncated: usize,
    /// Of those, the ones taken over from the earlier Parquet files because their traces are gone or
    /// were cut off since.
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
    Earlier,
}

/// Builds `DIR/data/*.parquet` from `DIR/runs/**/trace.bin` and the journal.
///
/// Runs whose traces were deleted, or hold less than they once did, are taken over from the Parquet files
/// that are there already. A trace of which nothing can be used is left out and named in the result and
/// in the files' metadata.
///
/// # Errors
/// The folder is no result folder, can't be read or written, holds neither data nor traces, or rows would
/// be lost because an earlier Parquet file is missing or can't be read. Nothing is written then.
pub fn ingest(dir: &Path) -> Result<Ingested> {
    let journal = Journal::read(dir)?;
    let cells: HashMap<&str, &CellRecord> =
        journal.records.iter().filter_map(|c| Some((c.run_id.as_deref()?, c))).collect();
    let mut done = Ingested::default();
    let mut rows: BTreeMap<String, RunRow> = BTreeMap::new();
    let mut sources: BTreeMap<String, Source> = BTreeMap::new();
    for path in find_traces(&dir.join("runs"))? {
        match read_trace(&path) {
            Ok(run) if rows.contains_key(&run.start.run_id) => {
                let reason = format!("another trace is of the same run {}", run.start.run_id);
                done.left_out.push(LeftOut::new(dir, &path, reason));
            }
            Ok(run) => {
                let run_id = run.start.run_id.clone();
                rows.insert(run_id.clone(), RunRow::new(&run, cells.get(&*run_id).copied()));
                sources.insert(run_id, Source::Trace(path));
            }
            Err(problem) => done.left_out.push(LeftOut::new(dir, &path, problem.to_string())),
        }
    }
    if rows.is_empty()
        && done.left_out.is_empty()
        && !cells.is_empty()
        && Table::ALWAYS.iter().all(|t| !t.path(dir).is_file())
    {
        let (data, runs) = (Table::Runs.path(dir), dir.join("runs"));
        return Err(AnalysisError::NoData { data, runs });
    }
    // A valid run came to its end, so a trace of it without one was cut off later.
    let covered = |run_id: &str| {
        let valid = cells.get(run_id).is_some_and(|c| c.verdict == Verdict::Valid);
        rows.get(run_id).is_some_and(|row| row.outcome.is_some() || !valid)
    };
    let mut earlier = Earlier::read(dir, &rows, cells.keys().copied(), covered)?;
    for (run_id, row) in std::mem::take(&mut earlier.runs) {
        if let Some(Source::Trace(path)) = sources.insert(run_id.clone(), Source::Earlier) {
            let tokens = rows.get(&run_id).map_or(0, |row| row.tokens);
            let reason = format!(
                "it was cut off after {tokens} of {} tokens; the rows of its run {run_id} made from it \
                 before are kept",
                row.tokens
            );
            done.left_out.push(LeftOut::new(dir, &path, reason));
        }
        rows.insert(run_id, row);
    }
    done.left_out.sort_by(|a, b| a.trace.cmp(&b.trace));
    let metadata = rows
        .iter()
        .map(|(run_id, row)| Ok((run_id.clone(), metadata_of(dir, row)?)))
        .collect::<Result<_>>()?;
    // The runner's order; runs that the journal doesn't know come last, oldest first.
    let mut planned: Vec<(&String, &RunRow)> = rows.iter().collect();
    planned.sort_by_key(|(run_id, row)| {
        (row.run_order.unwrap_or(u32::MAX), row.started_unix_ms, *run_id)
    });
    let mut writer = DataWriter::create(dir, &metadata, &done.left_out)?;
    for (run_id, row) in &planned {
        match &sources[*run_id] {
            Source::Trace(path) => {
                let run = read_trace(path).map_err(|e| changed(path, &e))?;
                writer.write_run(run_id, row, &run.tables)?;
            }
            Source::Earlier => {
                let tokens = earlier.tokens.remove(*run_id).unwrap_or_default();
                let tables = RunTables { tokens, ..DataReader::new(dir).recorded_of(run_id)? };
                writer.write_run(run_id, row, &tables)?;
                done.kept += 1;
            }
        }
        done.truncated += usize::from(row.truncated_bytes > 0);
    }
    writer.finish()?;
    done.runs = planned.len();
    Ok(done)
}

impl LeftOut {
    fn new(dir: &Path, path: &Path, reason: String) -> Self {
        let trace = path.strip_prefix(dir).unwrap_or(path).display().to_string();
        Self { trace, reason }
    }
}

fn metadata_of(dir: &Path, row: &RunRow) -> Result<RunMetadata> {
    let damaged = |e: serde_json::Error| AnalysisError::Parquet {
        path: Table::Runs.path(dir),
        message: format!("the configuration or model of a run is damaged: {e}"),
    };
    Ok(RunMetadata {
        cell: row.cell_name.clone(),
        model: row.model.clone(),
        truncated_bytes: row.truncated_bytes,
        config: serde_json::from_str(&row.config_json).map_err(damaged)?,
        shape: serde_json::from_str(&row.model_shape_json).map_err(damaged)?,
    })
}

/// A trace that could be read a moment ago.
fn changed(path: &Path, problem: &TraceProblem) -> AnalysisError {
    AnalysisError::io("read", path)(std::io::Error::other(format!(
        "it changed while it was being read: {problem}"
    )))
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
