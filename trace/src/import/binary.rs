//! Our own binary trace: routes and scores chunk by chunk, and the run's log beside them.

use std::io::Read;

use super::chunk::{RouteChunk, ScoreChunk};
use super::error::{ImportError, Result};
use super::keys::Keys;
use super::{CHUNK_ROWS, ImportedLayer, RouteHeader};
use crate::codec::{Tail, TraceReader};
use crate::csv::MetricsCsv;
use crate::record::{Record, RouteRecord, RunStart};

/// Reads a trace frame by frame.
#[derive(Debug)]
pub(super) struct BinaryRoutes<R: Read> {
    trace: TraceReader<R>,
    header: RouteHeader,
    log: MetricsCsv<Vec<u8>>,
    /// Decode steps in the log.
    steps: u64,
    frame: u64,
    event: u32,
    has_end: bool,
}

impl<R: Read> BinaryRoutes<R> {
    pub(super) fn open(input: R) -> Result<Self> {
        let mut trace = TraceReader::new(input)?;
        let record = trace.read()?;
        let Some(Record::Start(start)) = &record else {
            let found = if record.is_none() {
                "the trace ends before its first record"
            } else {
                "another record"
            };
            return Err(ImportError::line(1, found, "a trace that begins with what ran"));
        };
        let mut log = MetricsCsv::new(Vec::new());
        let header = header(start);
        if let Some(record) = &record {
            log.record(record)?;
        }
        Ok(Self { trace, header, log, steps: 0, frame: 0, event: 0, has_end: false })
    }

    pub(super) fn header(&self) -> &RouteHeader {
        &self.header
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let cut = match self.trace.tail() {
            Some(Tail::Truncated { lost_bytes }) => {
                Some(format!("its last record is cut off: {lost_bytes} bytes were left out"))
            }
            _ => None,
        };
        let ended = (self.trace.tail().is_some() && !self.has_end)
            .then(|| "it has no end: the run was ended from outside".to_owned());
        cut.into_iter().chain(ended).collect()
    }

    pub(super) fn log(&self) -> Option<&[u8]> {
        (self.steps > 0).then(|| self.log.written().as_slice())
    }

    pub(super) fn next(&mut self) -> Result<Option<RouteChunk>> {
        let mut rows = RouteChunk::default();
        while rows.len() < CHUNK_ROWS {
            let Some(record) = self.trace.read()? else { break };
            self.frame += 1;
            match &record {
                Record::Route(route) => {
                    push(&mut rows, self.event, route).ok_or_else(|| self.uneven())?;
                    self.event += 1;
                }
                Record::Start(_) => return Err(self.second_start()),
                record => {
                    self.steps += u64::from(matches!(record, Record::Token(_)));
                    self.has_end |= matches!(record, Record::End(_));
                    self.log.record(record)?;
                }
            }
        }
        Ok((!rows.is_empty()).then_some(rows))
    }

    fn uneven(&self) -> ImportError {
        let found =
            format!("frame {} is a route record whose vectors do not fit together", self.frame);
        ImportError::Damaged { found }
    }

    fn second_start(&self) -> ImportError {
        let found = format!("frame {} begins another run; expected one run in a trace", self.frame);
        ImportError::Damaged { found }
    }
}

fn header(start: &RunStart) -> RouteHeader {
    let RunStart { run_id, started_unix_ms, engine_version, llama_version, config, model } = start;
    let mut keys = Keys::default();
    let pairs = [
        ("run_id", run_id.clone()),
        ("started_unix_ms", started_unix_ms.to_string()),
        ("engine_version", engine_version.clone()),
        ("llama_version", llama_version.clone()),
        ("n_layer", model.n_layer.to_string()),
        ("file_bytes", model.file_bytes.to_string()),
        ("dense_bytes", model.dense_bytes.to_string()),
        ("config", serde_json::to_string(config).unwrap_or_default()),
    ];
    for (key, value) in pairs {
        keys.push(key, value);
    }
    let layer = |l: &crate::record::LayerShape| ImportedLayer {
        index: l.layer,
        expert_bytes: Some(l.expert_bytes).filter(|bytes| *bytes > 0),
    };
    RouteHeader {
        run_id: Some(run_id.clone()),
        model: config.model.file_name().map(|name| name.to_string_lossy().into_owned()),
        arch: Some(model.arch.clone()),
        n_expert: model.n_expert,
        n_expert_known: true,
        top_k: model.n_expert_used,
        layers: model.layers.iter().map(layer).collect(),
        keys,
        extra_columns: Vec::new(),
    }
}

/// One row per (token, slot); `None` when the record's vectors do not fit together.
fn push(rows: &mut RouteChunk, event: u32, route: &RouteRecord) -> Option<()> {
    let (top_k, tokens, distinct) = (route.top_k as usize, route.positions.len(), &route.distinct);
    let pairs = tokens.checked_mul(top_k)?;
    let known = !route.residency.is_empty();
    let fits = route.experts.len() == pairs
        && route.weights.len() == pairs
        && (!known
            || (route.residency.len() == distinct.len()
                && route.read_bytes.len() == distinct.len()));
    if !fits {
        return None;
    }
    let mut seen = vec![false; distinct.len()];
    for (pair, expert) in route.experts.iter().enumerate() {
        // The first row that names an expert is the one that caused its read.
        let (residency, read_bytes) = if known {
            let entry = distinct.iter().position(|d| d == expert)?;
            let first = !std::mem::replace(&mut seen[entry], true);
            (Some(route.residency[entry]), if first { route.read_bytes[entry] } else { 0 })
        } else {
            (None, 0)
        };
        rows.event.push(event);
        rows.turn.push(route.turn);
        rows.ubatch.push(route.ubatch);
        rows.phase.push(route.phase);
        rows.layer.push(route.layer);
        rows.position.push(route.positions[pair / top_k]);
        rows.slot.push(u32::try_from(pair % top_k).ok()?);
        rows.expert.push(u32::from(*expert));
        rows.weight.push(route.weights[pair]);
        rows.residency.push(residency);
        rows.read_bytes.push(read_bytes);
    }
    push_scores(&mut rows.scores, event, route)
}

fn push_scores(rows: &mut ScoreChunk, event: u32, route: &RouteRecord) -> Option<()> {
    let (scored, tokens) = (route.scored.len(), route.positions.len());
    if scored != route.scores.len() {
        return None;
    }
    if scored == 0 {
        return Some(());
    }
    let ranks = scored.checked_div(tokens).filter(|ranks| ranks * tokens == scored)?;
    for (index, (expert, score)) in route.scored.iter().zip(&route.scores).enumerate() {
        rows.event.push(event);
        rows.turn.push(route.turn);
        rows.ubatch.push(route.ubatch);
        rows.phase.push(route.phase);
        rows.layer.push(route.layer);
        rows.position.push(route.positions[index / ranks]);
        rows.rank.push(u32::try_from(index % ranks).ok()?);
        rows.expert.push(u32::from(*expert));
        rows.score.push(*score);
    }
    Some(())
}
