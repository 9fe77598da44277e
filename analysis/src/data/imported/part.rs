//! Columns of imported rows into Parquet files.

use std::fs::File;
use std::path::{Path, PathBuf};

use bmoe_trace::import::{
    LOG_COLUMNS, LogChunk, LogColumnKind, LogHeader, LogValues, RouteChunk, ScoreChunk,
};
use bmoe_trace::record::{Phase, Residency};
use polars::prelude::*;

use super::{IMPORT_VERSION, KEY_VERSION};
use crate::atomic::{AtomicFile, Watched, WriteFailure};
use crate::data::column::Named;
use crate::data::write::{KEY_TABLE, unwritable};
use crate::error::{AnalysisError, Result};

/// A Parquet file that gets its name when it is whole.
pub(super) struct Part {
    writer: BatchedWriter<Watched<File>>,
    failure: WriteFailure,
    file: AtomicFile,
    path: PathBuf,
}

impl Part {
    /// Starts a file with the columns of a frame.
    pub(super) fn create(path: PathBuf, table: &str, like: &DataFrame) -> Result<Self> {
        let file = AtomicFile::create(&path)?;
        let out = file.file().try_clone().map_err(AnalysisError::io("write", &path))?;
        let (out, failure) = Watched::new(out);
        let metadata = [(KEY_VERSION, IMPORT_VERSION.to_string()), (KEY_TABLE, table.to_owned())];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value)).to_vec();
        let writer = ParquetWriter::new(out)
            .with_key_value_metadata(Some(KeyValueMetadata::from_static(metadata)))
            .batched(like.schema())
            .map_err(|e| unwritable(&path, &failure, e))?;
        Ok(Self { writer, failure, file, path })
    }

    /// Appends the rows of a frame as one row group.
    pub(super) fn write(&mut self, frame: &DataFrame) -> Result<()> {
        self.writer.write_batch(frame).map_err(|e| unwritable(&self.path, &self.failure, e))
    }

    /// Puts the file in its place.
    pub(super) fn finish(self) -> Result<()> {
        self.writer.finish().map_err(|e| unwritable(&self.path, &self.failure, e))?;
        self.file.commit()
    }
}

/// An open part, or the place of one that has no rows yet.
pub(super) struct LazyPart {
    path: PathBuf,
    table: &'static str,
    part: Option<Part>,
}

impl LazyPart {
    pub(super) fn new(path: PathBuf, table: &'static str) -> Self {
        Self { path, table, part: None }
    }

    /// Appends rows.
    pub(super) fn write(&mut self, frame: PolarsResult<DataFrame>) -> Result<()> {
        let frame =
            frame.map_err(|e| AnalysisError::io("write", &self.path)(std::io::Error::other(e)))?;
        if frame.height() == 0 {
            return Ok(());
        }
        let part = match &mut self.part {
            Some(part) => part,
            none => none.insert(Part::create(self.path.clone(), self.table, &frame)?),
        };
        part.write(&frame)
    }

    pub(super) fn finish(self) -> Result<()> {
        self.part.map_or(Ok(()), Part::finish)
    }
}

/// Starts a folder's one small file and ends it.
pub(super) fn write_whole(path: &Path, table: &str, frame: &DataFrame) -> Result<()> {
    let mut part = Part::create(path.to_owned(), table, frame)?;
    part.write(frame)?;
    part.finish()
}

fn numbers(name: &str, values: Vec<u32>) -> Column {
    UInt32Chunked::from_vec(name.into(), values).into_series().into()
}

fn words<T: Named>(name: &str, values: &[T]) -> Column {
    // Most chunks are of one phase.
    match values.split_first() {
        Some((first, rest)) if rest.iter().all(|v| v == first) => Column::new_scalar(
            name.into(),
            Scalar::from(PlSmallStr::from_static(first.name())),
            values.len(),
        ),
        _ => StringChunked::from_iter_values(name.into(), values.iter().map(|v| v.name()))
            .into_series()
            .into(),
    }
}

/// NaN becomes null.
fn weights(name: &str, values: Vec<f32>) -> Column {
    let known = values.iter().all(|w| !w.is_nan());
    let column = if known {
        Float32Chunked::from_vec(name.into(), values)
    } else {
        Float32Chunked::from_iter_options(
            name.into(),
            values.into_iter().map(|w| Some(w).filter(|w| !w.is_nan())),
        )
    };
    column.into_series().into()
}

/// The columns of `routes`; `extra` names those that only this trace has.
pub(super) fn routes(chunk: RouteChunk, extra: &[String]) -> PolarsResult<DataFrame> {
    let rows = chunk.len();
    let known = chunk.residency.iter().all(Option::is_some);
    let read_bytes: Column = if known {
        UInt64Chunked::from_vec("read_bytes".into(), chunk.read_bytes).into_series().into()
    } else {
        let both = chunk.read_bytes.into_iter().zip(&chunk.residency);
        let values = both.map(|(bytes, residency)| residency.map(|_| bytes));
        UInt64Chunked::from_iter_options("read_bytes".into(), values).into_series().into()
    };
    let residency = chunk.residency.iter().map(|r| r.map(Residency::name));
    let mut columns = vec![
        numbers("event", chunk.event),
        numbers("turn", chunk.turn),
        numbers("ubatch", chunk.ubatch),
        words::<Phase>("phase", &chunk.phase),
        numbers("layer", chunk.layer),
        numbers("position", chunk.position),
        numbers("slot", chunk.slot),
        numbers("expert", chunk.expert),
        weights("weight", chunk.weight),
        StringChunked::from_iter_options("residency".into(), residency).into_series().into(),
        read_bytes,
    ];
    let mut taken: Vec<String> = columns.iter().map(|c| c.name().to_string()).collect();
    for (name, values) in extra.iter().zip(chunk.extra) {
        let name = free_name(name, &taken);
        columns.push(Column::new(name.as_str().into(), values));
        taken.push(name);
    }
    DataFrame::new(rows, columns)
}

/// The columns of `scores`.
pub(super) fn scores(chunk: ScoreChunk) -> PolarsResult<DataFrame> {
    let rows = chunk.expert.len();
    let columns = vec![
        numbers("event", chunk.event),
        numbers("turn", chunk.turn),
        numbers("ubatch", chunk.ubatch),
        words::<Phase>("phase", &chunk.phase),
        numbers("layer", chunk.layer),
        numbers("position", chunk.position),
        numbers("rank", chunk.rank),
        numbers("expert", chunk.expert),
        Float32Chunked::from_vec("score".into(), chunk.score).into_series().into(),
    ];
    DataFrame::new(rows, columns)
}

/// The columns of `logs`: all that are known, so that every run has them, then those of this log alone.
pub(super) fn log(header: &LogHeader, chunk: LogChunk) -> PolarsResult<DataFrame> {
    let rows = chunk.rows;
    let (mut known, mut others) = (Vec::new(), Vec::new());
    for ((name, kind), values) in header.columns.iter().zip(chunk.columns) {
        let column = match values {
            LogValues::Count(values) => Column::new(name.into(), values),
            LogValues::Real(values) => Column::new(name.into(), values),
            LogValues::Text(values) => Column::new(free_name(name, &[]).into(), values),
        };
        if *kind == LogColumnKind::Text { others.push(column) } else { known.push(column) }
    }
    let mut columns: Vec<Column> = LOG_COLUMNS
        .iter()
        .map(|(name, kind)| {
            let there = known.iter().find(|c| c.name() == name).cloned();
            there.unwrap_or_else(|| match kind {
                LogColumnKind::Count => Column::new((*name).into(), vec![None::<u64>; rows]),
                LogColumnKind::Real | LogColumnKind::Text => {
                    Column::new((*name).into(), vec![None::<f64>; rows])
                }
            })
        })
        .collect();
    columns.extend(others);
    DataFrame::new(rows, columns)
}

/// A name that no column has.
fn free_name(name: &str, taken: &[String]) -> String {
    let mut free = name.to_owned();
    // The partition brings a column of this name.
    while free == "run_id" || taken.contains(&free) {
        free.insert_str(0, "file_");
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_columns_do_not_take_the_names_of_ours() {
        let mut chunk = RouteChunk { expert: vec![1], ..RouteChunk::default() };
        for column in [
            &mut chunk.event,
            &mut chunk.turn,
            &mut chunk.ubatch,
            &mut chunk.layer,
            &mut chunk.position,
            &mut chunk.slot,
        ] {
            column.push(0);
        }
        chunk.phase.push(Phase::Decode);
        chunk.weight.push(f32::NAN);
        chunk.residency.push(None);
        chunk.read_bytes.push(0);
        let extra = ["event", "file_event", "run_id", "mood"].map(str::to_owned);
        chunk.extra = vec![vec!["x".to_owned()]; extra.len()];
        let frame = routes(chunk, &extra).unwrap();
        let names: Vec<&str> = frame.columns()[11..].iter().map(|c| c.name().as_str()).collect();
        assert_eq!(names, ["file_event", "file_file_event", "file_run_id", "mood"]);
        assert_eq!(frame.column("weight").unwrap().null_count(), 1);
    }
}
