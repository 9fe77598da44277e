//! Parquet files back into typed rows.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use bmoe_trace::record::ModelShape;
use polars::prelude::*;
use serde::{Deserialize, Serialize};

use super::column::Row;
use super::rows::{
    BudgetRow, ComputeRow, ReadRow, RouteRow, RunRow, RunTables, ScoreRow, TokenRow,
};
use super::write::{KEY_LEFT_OUT, KEY_RUNS, KEY_TABLE, KEY_VERSION};
use super::{LeftOut, OLDEST_SCHEMA_VERSION, SCHEMA_VERSION, Table};
use crate::error::{AnalysisError, Result};

/// What a file's metadata say about one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunMetadata {
    /// The cell's name, when the journal knows the run.
    pub cell: Option<String>,
    /// The model's name within the matrix, when the journal knows the run.
    pub model: Option<String>,
    /// Bytes of an unfinished last record that were left out; 0 = the trace is whole.
    pub truncated_bytes: u64,
    /// The configuration with every default resolved: a `RunConfig`, kept as it was written, because that
    /// type refuses keys that it does not know and a later engine may have more.
    pub config: serde_json::Value,
    /// The model's shape.
    pub shape: ModelShape,
}

/// The key-value metadata of a Parquet file of ours.
#[derive(Debug, Clone, PartialEq)]
pub struct FileMetadata {
    /// Which table the file holds, by name.
    pub table: String,
    /// The runs, by `run_id`.
    pub runs: BTreeMap<String, RunMetadata>,
    /// Traces that could not be used.
    pub left_out: Vec<LeftOut>,
}

/// Reads the files of one result folder.
///
/// Earlier writers left zeros where a mode measures nothing; those come back as nulls.
#[derive(Debug, Clone)]
pub struct DataReader {
    dir: PathBuf,
}

impl DataReader {
    /// A reader of `DIR/data`; nothing is opened yet.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Whether the files are there that every folder has.
    #[must_use]
    pub fn exists(&self) -> bool {
        Table::ALWAYS.iter().all(|t| t.path(&self.dir).is_file())
    }

    /// The metadata of a file.
    ///
    /// # Errors
    /// The file is missing, damaged, not ours, or of another schema version.
    pub fn metadata(&self, table: Table) -> Result<FileMetadata> {
        self.open(table).map(|(_, metadata)| metadata)
    }

    /// All runs with their `run_id`, in file order.
    ///
    /// # Errors
    /// As for [`Self::metadata`].
    pub fn runs(&self) -> Result<Vec<(String, RunRow)>> {
        let by_run = self.rows::<RunRow>(Table::Runs)?;
        Ok(by_run
            .into_iter()
            .flat_map(|(id, rows)| {
                rows.into_iter().map(move |row: RunRow| (id.clone(), row.only_measured()))
            })
            .collect())
    }

    /// The decode steps of each run, by `run_id`; a run without any has no entry.
    ///
    /// # Errors
    /// As for [`Self::metadata`].
    pub fn tokens(&self) -> Result<BTreeMap<String, Vec<TokenRow>>> {
        let runs = self.metadata(Table::Tokens)?.runs;
        let mode_of = |id: &str| runs.get(id).and_then(|run| run.config.get("mode")?.as_str());
        let by_run = self.rows::<TokenRow>(Table::Tokens)?.into_iter();
        Ok(by_run
            .map(|(id, mut rows)| {
                if let Some(mode) = mode_of(&id) {
                    rows = rows.into_iter().map(|row| row.only_measured(mode)).collect();
                }
                (id, rows)
            })
            .collect())
    }

    /// The routed experts of one run, in the order of the engine's cache decisions.
    ///
    /// # Errors
    /// As for [`Self::metadata`].
    pub fn routes_of(&self, run_id: &str) -> Result<Vec<RouteRow>> {
        let rows = self.rows_of(Table::Routes, run_id)?;
        Ok(rows.into_iter().map(RouteRow::only_measured).collect())
    }

    /// The router's best experts of one run; empty when no run recorded them.
    ///
    /// # Errors
    /// As for [`Self::metadata`].
    pub fn scores_of(&self, run_id: &str) -> Result<Vec<ScoreRow>> {
        self.rows_when_recorded(Table::Scores, run_id)
    }

    /// The reads of one run; empty when no run recorded them.
    ///
    /// # Errors
    /// As for [`Self::metadata`].
    pub fn reads_of(&self, run_id: &str) -> Result<Vec<ReadRow>> {
        self.rows_when_recorded(Table::Reads, run_id)
    }

    /// The stretches of computation of one run; empty when no run recorded them.
    ///
    /// # Errors
    /// As for [`Self::metadata`].
    pub fn compute_of(&self, run_id: &str) -> Result<Vec<ComputeRow>> {
        self.rows_when_recorded(Table::Compute, run_id)
    }

    /// The changes of one run's cache budget; empty when no run had any.
    ///
    /// # Errors
    /// As for [`Self::metadata`].
    pub fn budgets_of(&self, run_id: &str) -> Result<Vec<BudgetRow>> {
        self.rows_when_recorded(Table::Budgets, run_id)
    }

    /// Everything that one run recorded except its decode steps.
    pub(super) fn recorded_of(&self, run_id: &str) -> Result<RunTables> {
        Ok(RunTables {
            tokens: Vec::new(),
            routes: self.routes_of(run_id)?,
            scores: self.scores_of(run_id)?,
            reads: self.reads_of(run_id)?,
            compute: self.compute_of(run_id)?,
            budgets: self.budgets_of(run_id)?,
        })
    }

    fn rows_when_recorded<T: Row>(&self, table: Table, run_id: &str) -> Result<Vec<T>> {
        if table.path(&self.dir).is_file() { self.rows_of(table, run_id) } else { Ok(Vec::new()) }
    }

    /// The rows of one run.
    fn rows_of<T: Row>(&self, table: Table, run_id: &str) -> Result<Vec<T>> {
        let frame = self.frame::<T>(table)?;
        run_ids(&frame)
            .and_then(|ids| frame.filter(&ids.equal(run_id)))
            .and_then(|frame| T::from_frame(&frame))
            .map_err(self.unreadable(table))
    }

    fn open(&self, table: Table) -> Result<(ParquetReader<File>, FileMetadata)> {
        let path = table.path(&self.dir);
        let file = File::open(&path).map_err(AnalysisError::io("open", &path))?;
        let mut reader = ParquetReader::new(file);
        let damaged = |message: String| AnalysisError::Parquet { path: path.clone(), message };
        let footer = reader
            .get_metadata()
            .map_err(|e| damaged(format!("damaged or not a Parquet file: {e}")))?;
        let pairs: BTreeMap<&str, &str> = footer
            .key_value_metadata()
            .iter()
            .flatten()
            .map(|kv| (kv.key.as_str(), kv.value.as_deref().unwrap_or_default()))
            .collect();
        let value = |key: &str| {
            pairs.get(key).copied().ok_or_else(|| {
                damaged(format!("not written by bmoe (its metadata have no `{key}`)"))
            })
        };
        let version = value(KEY_VERSION)?;
        let readable = OLDEST_SCHEMA_VERSION..=SCHEMA_VERSION;
        if !version.parse().is_ok_and(|version: u32| readable.contains(&version)) {
            return Err(AnalysisError::SchemaVersion {
                path: path.clone(),
                found: version.to_owned(),
                supported: SCHEMA_VERSION,
            });
        }
        let bad_json = |e: serde_json::Error| damaged(format!("its metadata are damaged: {e}"));
        let metadata = FileMetadata {
            table: value(KEY_TABLE)?.to_owned(),
            runs: serde_json::from_str(value(KEY_RUNS)?).map_err(bad_json)?,
            left_out: serde_json::from_str(value(KEY_LEFT_OUT)?).map_err(bad_json)?,
        };
        if metadata.table != table.as_str() {
            return Err(damaged(format!("it holds the table `{}`", metadata.table)));
        }
        Ok((reader, metadata))
    }

    /// The rows of each run, in file order.
    fn rows<T: Row>(&self, table: Table) -> Result<Vec<(String, Vec<T>)>> {
        let frame = self.frame::<T>(table)?;
        let unreadable = self.unreadable(table);
        let rows = T::from_frame(&frame).map_err(&unreadable)?;
        let mut by_run: Vec<(String, Vec<T>)> = Vec::new();
        for (row, run_id) in rows.into_iter().zip(run_ids(&frame).map_err(&unreadable)?.iter()) {
            let run_id = run_id.unwrap_or_default();
            match by_run.last_mut() {
                Some((last, rows)) if last == run_id => rows.push(row),
                _ => by_run.push((run_id.to_owned(), vec![row])),
            }
        }
        Ok(by_run)
    }

    /// The columns that this version knows, so that a newer file's further ones cost nothing.
    fn frame<T: Row>(&self, table: Table) -> Result<DataFrame> {
        let (mut reader, _) = self.open(table)?;
        let unreadable = self.unreadable(table);
        let there = reader.schema().map_err(&unreadable)?;
        let wanted = std::iter::once("run_id")
            .chain(T::COLUMNS.iter().copied())
            .filter(|name| there.contains(name))
            .map(str::to_owned)
            .collect();
        reader.with_columns(Some(wanted)).finish().map_err(&unreadable)
    }

    fn unreadable(&self, table: Table) -> impl Fn(PolarsError) -> AnalysisError + use<> {
        let path = table.path(&self.dir);
        move |e| AnalysisError::Parquet {
            path: path.clone(),
            message: format!("cannot be read: {e}"),
        }
    }
}

fn run_ids(frame: &DataFrame) -> PolarsResult<&StringChunked> {
    frame.column("run_id")?.as_materialized_series().str()
}
