//! Typed rows into Parquet files.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use polars::prelude::*;
use serde_json::json;

use super::column::Row;
use super::read::RunMetadata;
use super::rows::{RouteRow, RunRow, TokenRow};
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

/// Writes the three files of one result folder. Memory holds one row group and one run at a time; the
/// files take their names in [`Self::finish`], all whole.
pub struct DataWriter {
    runs: OpenTable,
    tokens: OpenTable,
    routes: OpenTable,
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
        f.debug_struct("DataWriter").field("runs", &self.runs.path).finish_non_exhaustive()
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
        Ok(Self {
            runs: OpenTable::create::<RunRow>(dir, Table::Runs, runs, left_out)?,
            tokens: OpenTable::create::<TokenRow>(dir, Table::Tokens, runs, left_out)?,
            routes: OpenTable::create::<RouteRow>(dir, Table::Routes, runs, left_out)?,
        })
    }

    /// Appends one run.
    ///
    /// # Errors
    /// The folder can't be written.
    pub fn write_run(
        &mut self,
        run_id: &str,
        run: &RunRow,
        tokens: &[TokenRow],
        routes: &[RouteRow],
    ) -> Result<()> {
        self.runs.append(run_id, std::slice::from_ref(run))?;
        self.tokens.append(run_id, tokens)?;
        self.routes.append(run_id, routes)
    }

    /// Puts the files in their places.
    ///
    /// # Errors
    /// The folder can't be written.
    pub fn finish(self) -> Result<()> {
        // Footers first: a full disk must not replace one file and leave the others old.
        let mut tables = [self.runs, self.tokens, self.routes];
        for table in &mut tables {
            let finished = table.flush().and_then(|()| table.writer.finish());
            finished.map_err(|e| table.failed(e))?;
        }
        tables.into_iter().try_for_each(|table| table.file.commit())
    }
}

impl OpenTable {
    fn create<T: Row>(
        dir: &Path,
        table: Table,
        runs: &BTreeMap<String, RunMetadata>,
        left_out: &[LeftOut],
    ) -> Result<Self> {
        let path = table.path(dir);
        let file = AtomicFile::create(&path)?;
        let out = file.file().try_clone().map_err(AnalysisError::io("write", &path))?;
        Self::over::<T>(out, file, path, table, runs, left_out)
    }

    fn over<T: Row>(
        out: File,
        file: AtomicFile,
        path: PathBuf,
        table: Table,
        runs: &BTreeMap<String, RunMetadata>,
        left_out: &[LeftOut],
    ) -> Result<Self> {
        let metadata = [
            (KEY_VERSION, SCHEMA_VERSION.to_string()),
            (KEY_TABLE, table.as_str().to_owned()),
            (KEY_RUNS, json!(runs).to_string()),
            (KEY_LEFT_OUT, json!(left_out).to_string()),
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
        if rows.is_empty() {
            return Ok(());
        }
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
fn unwritable(path: &Path, failure: &WriteFailure, error: PolarsError) -> AnalysisError {
    let source = failure.take().unwrap_or_else(|| std::io::Error::other(error));
    AnalysisError::io("write", path)(source)
}

fn frame<T: Row>(run_id: &str, rows: &[T]) -> PolarsResult<DataFrame> {
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
        let none = BTreeMap::new();
        let table = OpenTable::over::<TokenRow>(full, file, path, Table::Tokens, &none, &[]);
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
