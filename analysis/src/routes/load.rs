//! Routes from wherever they are: a raw trace, an imported folder, a result folder.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use bmoe_trace::import::{self, Import, RouteChunk, ScoreChunk};

use super::build::{Builder, LoadOptions};
use super::{RouteLayer, RouteTrace};
use crate::data::imported::{ImportedReader, base, is_imported};
use crate::data::{DataReader, RouteRow, RunRow, ScoreRow};
use crate::error::{AnalysisError, Result};
use crate::journal::Journal;
use crate::result_set::Verdict;

/// Loads the routes of one run.
///
/// `source` is a raw file of any format that `bmoe import` reads, a folder that it made, or a result folder; of a
/// folder `DIR:NAME` means the run or cell of that name. Without a name a result folder gives its baseline (or else
/// its first valid run with routes: every lossless cell routes alike), and an imported one its only run with routes.
///
/// Weights of which none is known, and residencies of which some are not, are left out of the trace.
///
/// # Errors
/// Nothing is there, it has no routes or several runs to choose from, or it is damaged; the error says which.
pub fn load(source: &Path, options: LoadOptions) -> Result<RouteTrace> {
    let (path, name) = split(source);
    let mut loaded = find(&path, name.as_deref(), options, false)?;
    match loaded.len() {
        1 => Ok(loaded.remove(0)),
        0 => Err(no_routes(&path, name.as_deref())),
        _ => {
            let names: Vec<&str> = loaded.iter().map(|t| t.name.as_str()).collect();
            let message = format!(
                "holds the routes of {} runs; choose one: {}:NAME, where NAME is {}",
                names.len(),
                path.display(),
                names.join(" or ")
            );
            Err(AnalysisError::ImportRefused { path, message })
        }
    }
}

/// Loads the routes of every run of a source, in their order; those of a result folder are its valid runs'.
///
/// # Errors
/// As for [`load`], but that several runs are what is wanted.
pub fn load_all(source: &Path, options: LoadOptions) -> Result<Vec<RouteTrace>> {
    let (path, name) = split(source);
    let loaded = find(&path, name.as_deref(), options, true)?;
    if loaded.is_empty() { Err(no_routes(&path, name.as_deref())) } else { Ok(loaded) }
}

/// `DIR:NAME` taken apart, unless there is something of the whole name.
fn split(source: &Path) -> (PathBuf, Option<String>) {
    let text = source.to_string_lossy();
    if !source.exists() {
        for (at, _) in text.match_indices(':') {
            let (dir, name) = (Path::new(&text[..at]), &text[at + 1..]);
            if dir.is_dir() && !name.is_empty() {
                return (dir.to_owned(), Some(name.to_owned()));
            }
        }
    }
    (source.to_owned(), None)
}

fn no_routes(path: &Path, name: Option<&str>) -> AnalysisError {
    let message = match name {
        Some(name) => format!("has no run or cell with routes that is called `{name}`"),
        None => "holds no routes".to_owned(),
    };
    AnalysisError::ImportRefused { path: path.to_owned(), message }
}

fn find(
    path: &Path,
    name: Option<&str>,
    options: LoadOptions,
    all: bool,
) -> Result<Vec<RouteTrace>> {
    if !path.is_dir() {
        Ok(vec![from_file(path, options)?])
    } else if is_imported(path) {
        from_imported(path, name, options)
    } else {
        from_results(path, name, options, all)
    }
}

fn from_file(path: &Path, options: LoadOptions) -> Result<RouteTrace> {
    let file = File::open(path).map_err(AnalysisError::io("open", path))?;
    let opened = import::open(BufReader::new(file)).map_err(AnalysisError::import(path))?;
    let Import::Routes(mut reader) = opened else {
        let message = "is a log of tokens or a device; expected a trace of routes".to_owned();
        return Err(AnalysisError::ImportRefused { path: path.to_owned(), message });
    };
    let mut builder = Builder::new(options);
    let unfit = |message: String| unfit(path, &message);
    while let Some(chunk) = reader.next().map_err(AnalysisError::import(path))? {
        builder.push(&chunk).map_err(unfit)?;
    }
    let header = reader.header();
    let layers = header
        .layers
        .iter()
        .map(|l| RouteLayer { index: l.index, expert_bytes: l.expert_bytes.unwrap_or(0) })
        .collect();
    let name = base(path);
    let trace = builder
        .finish(name, header.arch.clone().unwrap_or_default(), layers, header.n_expert)
        .map_err(unfit)?;
    if trace.rows() == 0 { Err(no_routes(path, None)) } else { Ok(trace) }
}

pub(crate) fn from_imported(
    dir: &Path,
    name: Option<&str>,
    options: LoadOptions,
) -> Result<Vec<RouteTrace>> {
    let reader = ImportedReader::new(dir);
    let unfit = |message: String| unfit(dir, &message);
    let mut traces = Vec::new();
    for (run_id, run) in reader.runs()? {
        let wanted =
            name.is_none_or(|name| [&run_id, &run.name, &run.cell].iter().any(|n| *n == name));
        if !wanted || run.route_rows == 0 {
            continue;
        }
        let mut builder = Builder::new(options);
        reader.routes(&run_id, |chunk| builder.push(&chunk).map_err(unfit))?;
        if options.scores {
            builder.scores(&reader.scores(&run_id)?);
        }
        let (layers, n_expert) = (run.layers(), run.n_expert.unwrap_or(0));
        let arch = run.arch.clone().unwrap_or_default();
        traces.push(builder.finish(run.name, arch, layers, n_expert).map_err(unfit)?);
    }
    Ok(traces)
}

fn from_results(
    dir: &Path,
    name: Option<&str>,
    options: LoadOptions,
    all: bool,
) -> Result<Vec<RouteTrace>> {
    let journal = Journal::read(dir)?;
    let reader = DataReader::new(dir);
    if !reader.exists() {
        crate::data::ingest(dir)?;
    }
    let rows: std::collections::BTreeMap<String, RunRow> = reader.runs()?.into_iter().collect();
    let mut records: Vec<_> =
        journal.records.iter().filter(|r| r.verdict == Verdict::Valid).collect();
    records.sort_by_key(|r| (!r.baseline && !all, r.order));
    let mut traces = Vec::new();
    for record in records {
        let Some((run_id, row)) = record.run_id.as_deref().and_then(|id| Some((id, rows.get(id)?)))
        else {
            continue;
        };
        let wanted = name
            .is_none_or(|name| [record.name.as_str(), record.id.as_str(), run_id].contains(&name));
        if !wanted {
            continue;
        }
        let mut chunk = route_chunk(reader.routes_of(run_id)?);
        if chunk.is_empty() {
            continue;
        }
        if options.scores {
            chunk.scores = score_chunk(&reader.scores_of(run_id)?);
        }
        let unfit = |message: String| unfit(dir, &message);
        let mut builder = Builder::new(options);
        builder.push(&chunk).map_err(unfit)?;
        let shape: bmoe_trace::record::ModelShape = serde_json::from_str(&row.model_shape_json)
            .map_err(|e| unfit(format!("the model's shape of run {run_id} is damaged: {e}")))?;
        let layer = |l: &bmoe_trace::record::LayerShape| RouteLayer {
            index: l.layer,
            expert_bytes: l.expert_bytes,
        };
        let layers = shape.layers.iter().map(layer).collect();
        let trace = builder
            .finish(record.name.clone(), row.arch.clone(), layers, row.n_expert)
            .map_err(unfit)?;
        traces.push(trace);
        if !all {
            break;
        }
    }
    Ok(traces)
}

fn unfit(path: &Path, message: &str) -> AnalysisError {
    AnalysisError::ImportRefused {
        path: path.to_owned(),
        message: format!("is damaged: {message}"),
    }
}

/// Routes that have been read already, of a model of which only the number of experts is known.
pub(crate) fn from_rows(
    rows: Vec<RouteRow>,
    n_expert: u32,
) -> std::result::Result<RouteTrace, String> {
    let mut builder = Builder::new(LoadOptions::default());
    builder.push(&route_chunk(rows))?;
    builder.finish(String::new(), String::new(), Vec::new(), n_expert)
}

fn route_chunk(rows: Vec<RouteRow>) -> RouteChunk {
    let mut chunk = RouteChunk::default();
    for row in rows {
        chunk.event.push(row.event);
        chunk.turn.push(row.turn);
        chunk.ubatch.push(row.ubatch);
        chunk.phase.push(row.phase);
        chunk.layer.push(row.layer);
        chunk.position.push(row.position);
        chunk.slot.push(row.slot);
        chunk.expert.push(row.expert);
        chunk.weight.push(row.weight.unwrap_or(f32::NAN));
        chunk.residency.push(row.residency);
        chunk.read_bytes.push(row.read_bytes.unwrap_or(0));
    }
    chunk
}

fn score_chunk(rows: &[ScoreRow]) -> ScoreChunk {
    ScoreChunk {
        event: rows.iter().map(|r| r.event).collect(),
        expert: rows.iter().map(|r| r.expert).collect(),
        score: rows.iter().map(|r| r.score).collect(),
        ..ScoreChunk::default()
    }
}
