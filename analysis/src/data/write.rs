//! Typed rows into Parquet files.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::path::{Path, PathBuf};

use polars::prelude::*;
use serde_json::json;

use super::column::Row;
use super::read::RunMetadata;
use super::rows::{RouteRow, RunRow, RunTables, TokenRow};
use super::{LeftOut, SCHEMA_VERSION, Table};
use crate::atomic::{AtomicFile, Watched, WriteFailure};
use crate::error::{AnalysisError, Result};

/// Key of the schema version in a file's metadata.
pub(super) const KEY_VERSION: &str = "bmoe.schema_version";
/// Key of the table's name.
pub(super) const KEY_TABLE: &str = "bmoe.table";
/// Key of the runs' configurations, JSON.
pub(super) const KEY_RUNS: &str = "bmoe.runs";
/// Key of the traces that could not be used, JSON.
pub(super) const KEY_LEFT_OUT: &str = "bmoe.left_out";

/// Rows of a row group, at least; every group costs some KiB per file, so small runs share one.
const GROUP_ROWS: usize = 250_000;

/// Writes the files of one result folder. Memory holds one row group and one run at a time; the files
/// take their names in [`Self::finish`], all whole.
pub struct DataWriter {
    dir: PathBuf,
    description: Description,
    open: BTreeMap<Table, OpenTable>,
}

/// What the metadata of every file say.
struct Description {
    runs: String,
    left_out: String,
}

struct OpenTable {
    writer: BatchedWriter<Watched<File>>,
    /// The error that the encoder only alludes to.
    failure: WriteFailure,
    /// Rows that are not in the file yet.
    pending: DataFrame,
    file: AtomicFile,
    path: PathBuf,
}

impl std::fmt::Debug for DataWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataWriter").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl DataWriter {
    /// Starts the files of a folder. `runs` describes every run that will be written, by `run_id`.
    ///
    /// # Errors
    /// The folder can't be written.
    pub fn create(
        dir: &Path,
        runs: &BTreeMap<String, RunMetadata>,
        left_out: &[LeftOut],
    ) -> Result<Self> {
        let mut writer = Self {
            dir: dir.to_owned(),
            description: Description::new(runs, left_out),
            open: BTreeMap::new(),
        };
        writer.table::<RunRow>(Table::Runs)?;
        writer.table::<TokenRow>(Table::Tokens)?;
        writer.table::<RouteRow>(Table::Routes)?;
        Ok(writer)
    }

    /// Appends one run.
    ///
    /// # Errors
    /// The folder can't be written.
    pub fn write_run(&mut self, run_id: &str, run: &RunRow, tables: &RunTables) -> Result<()> {
        let RunTables { tokens, routes, scores, reads, compute, budgets } = tables;
        self.append(Table::Runs, run_id, std::slice::from_ref(run))?;
        self.append(Table::Tokens, run_id, tokens)?;
        self.append(Table::Routes, run_id, routes)?;
        self.append(Table::Scores, run_id, scores)?;
        self.append(Table::Reads, run_id, reads)?;
        self.append(Table::Compute, run_id, compute)?;
        self.append(Table::Budgets, run_id, budgets)
    }

    /// Puts the files in their places, and removes those of which no run has anything any more.
    ///
    /// # Errors
    /// The folder can't be written.
    pub fn finish(mut self) -> Result<()> {
        // Footers first: a full disk must not replace one file and leave the others old.
        for table in self.open.values_mut() {
            let finished = table.flush().and_then(|()| table.writer.finish());
            finished.map_err(|e| table.failed(e))?;
        }
        let stale = Table::WHEN_RECORDED.into_iter().filter(|t| !self.open.contains_key(t));
        let stale: Vec<PathBuf> = stale.map(|t| t.path(&self.dir)).collect();
        self.open.into_values().try_for_each(|table| table.file.commit())?;
        for path in stale {
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(AnalysisError::io("remove", &path)(e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn append<T: Row>(&mut self, table: Table, run_id: &str, rows: &[T]) -> Result<()> {
        if rows.is_empty() { Ok(()) } else { self.table::<T>(table)?.append(run_id, rows) }
    }

    /// The table's file, which begins with its first row.
    fn table<T: Row>(&mut self, table: Table) -> Result<&mut OpenTable> {
        Ok(match self.open.entry(table) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(none) => {
                none.insert(OpenTable::create::<T>(&self.dir, table, &self.description)?)
            }
        })
    }
}

impl Description {
    fn new(runs: &BTreeMap<String, RunMetadata>, left_out: &[LeftOut]) -> Self {
        Self { runs: json!(runs).to_string(), left_out: json!(left_out).to_string() }
    }
}

impl OpenTable {
    fn create<T: Row>(dir: &Path, table: Table, description: &Description) -> Result<Self> {
        let path = table.path(dir);
        let file = AtomicFile::create(&path)?;
        let out = file.file().try_clone().map_err(AnalysisError::io("write", &path))?;
        Self::over::<T>(out, file, path, table, description)
    }

    fn over<T: Row>(
        out: File,
        file: AtomicFile,
        path: PathBuf,
        table: Table,
        description: &Description,
    ) -> Result<Self> {
        let metadata = [
            (KEY_VERSION, SCHEMA_VERSION.to_string()),
            (KEY_TABLE, table.as_str().to_owned()),
            (KEY_RUNS, description.runs.clone()),
            (KEY_LEFT_OUT, description.left_out.clone()),
        ]
        .map(|(key, value)| (key.to_owned(), value));
        let (out, failure) = Watched::new(out);
        let failed = |e| unwritable(&path, &failure, e);
        let pending = frame::<T>("", &[]).map_err(failed)?;
        let writer = ParquetWriter::new(out)
            .with_key_value_metadata(Some(KeyValueMetadata::from_static(metadata.to_vec())))
            .batched(pending.schema())
            .map_err(failed)?;
        Ok(Self { writer, failure, pending, file, path })
    }

    fn append<T: Row>(&mut self, run_id: &str, rows: &[T]) -> Result<()> {
        let mut add = || -> PolarsResult<()> {
            self.pending.vstack_mut_owned(frame(run_id, rows)?)?;
            if self.pending.height() >= GROUP_ROWS { self.flush() } else { Ok(()) }
        };
        add().map_err(|e| self.failed(e))
    }

    fn flush(&mut self) -> PolarsResult<()> {
        if self.pending.height() > 0 {
            // One chunk becomes one row group.
            self.pending.rechunk_mut();
            self.writer.write_batch(&self.pending)?;
            self.pending = self.pending.clear();
        }
        Ok(())
    }

    fn failed(&self, error: PolarsError) -> AnalysisError {
        unwritable(&self.path, &self.failure, error)
    }
}

/// What the system said, or else the encoder.
pub(super) fn unwritable(path: &Path, failure: &WriteFailure, error: PolarsError) -> AnalysisError {
    let source = failure.take().unwrap_or_else(|| std::io::Error::other(error));
    AnalysisError::io("write", path)(source)
}

pub(super) fn frame<T: Row>(run_id: &str, rows: &[T]) -> PolarsResult<DataFrame> {
    let mut columns = vec![Column::new("run_id".into(), vec![run_id; rows.len()])];
    columns.extend(T::columns(rows));
    DataFrame::new(rows.len(), columns)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_said_to_be_full() {
        let dir = tempfile::tempdir().unwrap();
        let path = Table::Tokens.path(dir.path());
        let full = File::options().write(true).open("/dev/full").unwrap();
        let file = AtomicFile::create(&path).unwrap();
        let none = Description::new(&BTreeMap::new(), &[]);
        let table = OpenTable::over::<TokenRow>(full, file, path, Table::Tokens, &none);
        let error = match table {
            Err(error) => error,
            Ok(table) => {
                let finished = table.writer.finish();
                table.failed(finished.expect_err("nothing fits on /dev/full"))
            }
        };
        let text = error.to_string();
        assert!(text.contains("cannot write ") && text.contains("tokens.parquet: "), "{text}");
        assert!(text.contains("No space left on device"), "{text}");
    }
}
