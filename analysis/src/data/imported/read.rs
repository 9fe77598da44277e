//! Imported folders back into rows.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use bmoe_trace::import::{LOG_COLUMNS, RouteChunk, ScoreChunk};
use bmoe_trace::record::{Phase, Residency};
use polars::prelude::*;

use super::run::ImportedRun;
use super::{IMPORT_VERSION, KEY_VERSION, Partitioned, index_path};
use crate::data::column::{Cell, Row, read_column};
use crate::error::{AnalysisError, Result};

/// Rows that are in memory at once while routes are read.
const ROWS_AT_ONCE: usize = 1 << 20;

/// The known columns of a log, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogColumns {
    /// Decode steps.
    pub rows: usize,
    columns: HashMap<String, Vec<Option<f64>>>,
}

impl LogColumns {
    /// The values of a column; `None` inside = not measured, and empty when the log has no such column.
    #[must_use]
    pub fn get(&self, name: &str) -> &[Option<f64>] {
        self.columns.get(name).map_or(&[], Vec::as_slice)
    }
}

/// Reads an imported folder.
#[derive(Debug, Clone)]
pub struct ImportedReader {
    dir: PathBuf,
}

impl ImportedReader {
    /// A reader of a folder; nothing is opened yet.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The runs with their ids, in the order in which they were imported.
    ///
    /// # Errors
    /// The file is missing or damaged.
    pub fn runs(&self) -> Result<Vec<(String, ImportedRun)>> {
        let path = index_path(&self.dir);
        let frame = read(&path, None, None)?;
        let rows = || -> PolarsResult<Vec<(String, ImportedRun)>> {
            let ids = read_column::<String>(&frame, "run_id")?;
            Ok(ids.into_iter().zip(ImportedRun::from_frame(&frame)?).collect())
        };
        rows().map_err(unreadable(&path))
    }

    /// Gives the routes of a run, some rows at a time.
    ///
    /// # Errors
    /// The file is missing or damaged, or the caller's error.
    pub fn routes(
        &self,
        run_id: &str,
        mut take: impl FnMut(RouteChunk) -> Result<()>,
    ) -> Result<()> {
        let path = Partitioned::Routes.path(&self.dir, run_id);
        for offset in (0..).step_by(ROWS_AT_ONCE) {
            let frame = read(&path, Some((offset, ROWS_AT_ONCE)), None)?;
            let rows = frame.height();
            if rows > 0 {
                take(route_chunk(&frame).map_err(unreadable(&path))?)?;
            }
            if rows < ROWS_AT_ONCE {
                break;
            }
        }
        Ok(())
    }

    /// The scores of a run; empty when its trace has none.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn scores(&self, run_id: &str) -> Result<ScoreChunk> {
        let path = Partitioned::Scores.path(&self.dir, run_id);
        if !path.is_file() {
            return Ok(ScoreChunk::default());
        }
        let frame = read(&path, None, None)?;
        score_chunk(&frame).map_err(unreadable(&path))
    }

    /// The log of a run; empty when it has none.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn log(&self, run_id: &str) -> Result<LogColumns> {
        let path = Partitioned::Logs.path(&self.dir, run_id);
        if !path.is_file() {
            return Ok(LogColumns::default());
        }
        let known = LOG_COLUMNS.iter().map(|(name, _)| (*name).to_owned()).collect();
        let frame = read(&path, None, Some(known))?;
        let mut log = LogColumns { rows: frame.height(), columns: HashMap::new() };
        for column in frame.columns() {
            let values = column.cast(&DataType::Float64).map_err(unreadable(&path))?;
            let values =
                Option::<f64>::read(values.as_materialized_series()).map_err(unreadable(&path))?;
            log.columns.insert(column.name().to_string(), values);
        }
        Ok(log)
    }
}

fn read(
    path: &Path,
    slice: Option<(usize, usize)>,
    columns: Option<Vec<String>>,
) -> Result<DataFrame> {
    let file = File::open(path).map_err(AnalysisError::io("open", path))?;
    let mut reader = ParquetReader::new(file);
    let footer = reader.get_metadata().map_err(unreadable(path))?.clone();
    let mut pairs = footer.key_value_metadata().iter().flatten();
    let version = pairs.find(|kv| kv.key == KEY_VERSION).and_then(|kv| kv.value.as_deref());
    if version != Some(IMPORT_VERSION.to_string().as_str()) {
        let message = match version {
            Some(found) => format!(
                "is of import version {found}; expected {IMPORT_VERSION} (import the traces again)"
            ),
            None => "was not made by `bmoe import`".to_owned(),
        };
        return Err(AnalysisError::ImportRefused { path: path.to_owned(), message });
    }
    reader.with_slice(slice).with_columns(columns).finish().map_err(unreadable(path))
}

fn unreadable(path: &Path) -> impl Fn(PolarsError) -> AnalysisError + use<> {
    let path = path.to_owned();
    move |e| AnalysisError::ImportRefused {
        path: path.clone(),
        message: format!("damaged, or not made by `bmoe import`: {e} (import the traces again)"),
    }
}

fn route_chunk(frame: &DataFrame) -> PolarsResult<RouteChunk> {
    let numbers = |name: &str| read_column::<u32>(frame, name);
    let read_bytes = read_column::<Option<u64>>(frame, "read_bytes")?;
    let weights = read_column::<Option<f32>>(frame, "weight")?;
    Ok(RouteChunk {
        event: numbers("event")?,
        turn: numbers("turn")?,
        ubatch: numbers("ubatch")?,
        phase: read_column::<Phase>(frame, "phase")?,
        layer: numbers("layer")?,
        position: numbers("position")?,
        slot: numbers("slot")?,
        expert: numbers("expert")?,
        weight: weights.into_iter().map(|w| w.unwrap_or(f32::NAN)).collect(),
        residency: read_column::<Option<Residency>>(frame, "residency")?,
        read_bytes: read_bytes.into_iter().map(Option::unwrap_or_default).collect(),
        ..RouteChunk::default()
    })
}

fn score_chunk(frame: &DataFrame) -> PolarsResult<ScoreChunk> {
    let numbers = |name: &str| read_column::<u32>(frame, name);
    Ok(ScoreChunk {
        event: numbers("event")?,
        turn: numbers("turn")?,
        ubatch: numbers("ubatch")?,
        phase: read_column::<Phase>(frame, "phase")?,
        layer: numbers("layer")?,
        position: numbers("position")?,
        rank: numbers("rank")?,
        expert: numbers("expert")?,
        score: read_column::<f32>(frame, "score")?,
    })
}
