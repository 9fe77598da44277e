//! One binary trace, read whole.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use bmoe_trace::Record;
use bmoe_trace::codec::{CodecError, Tail, TraceReader};
use bmoe_trace::record::{LoadRecord, PrefillRecord, RouteRecord, RunEnd, RunStart};

use super::rows::{BudgetRow, ComputeRow, ReadRow, RouteRow, RunTables, ScoreRow, TokenRow};

/// What one trace holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// What ran.
    pub start: RunStart,
    /// `None` when the run did not get so far; so for the others.
    pub load: Option<LoadRecord>,
    /// The prompt; of a session, that of the first turn.
    pub prefill: Option<PrefillRecord>,
    /// The end.
    pub end: Option<RunEnd>,
    /// Turns; 1 for a run that is no session.
    pub turns: u32,
    /// What it recorded step by step.
    pub tables: RunTables,
    /// Bytes of an unfinished last record that were left out.
    pub truncated_bytes: u64,
}

/// A trace of which nothing can be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceProblem {
    /// The file can't be opened.
    #[error("cannot open it: {0}")]
    Open(#[from] std::io::Error),
    /// It is no trace, or a damaged one.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// It ends before it says what ran.
    #[error("it ends before its first record (the engine stopped before it began)")]
    Empty,
    /// Something stands before the start record, or a second start.
    #[error("frame {frame} is out of order: a trace begins with one start record")]
    OutOfOrder {
        /// Number of the frame, from 0.
        frame: u64,
    },
    /// A route record whose vectors do not belong together.
    #[error("frame {frame} is a route record whose vectors do not fit together")]
    Uneven {
        /// Number of the frame, from 0.
        frame: u64,
    },
}

/// Reads a trace. One that was cut off gives what it holds, and [`Run::truncated_bytes`] says so.
///
/// # Errors
/// The file can't be read, is damaged before its last record, or holds not even a start record.
pub fn read_trace(path: &Path) -> Result<Run, TraceProblem> {
    let mut reader = TraceReader::new(BufReader::new(File::open(path)?))?;
    let start = match reader.read()? {
        Some(Record::Start(start)) => *start,
        Some(_) => return Err(TraceProblem::OutOfOrder { frame: 0 }),
        None => return Err(TraceProblem::Empty),
    };
    let mut run = Run {
        start,
        load: None,
        prefill: None,
        end: None,
        turns: 1,
        tables: RunTables::default(),
        truncated_bytes: 0,
    };
    let mode = run.start.config.mode.as_str();
    let (mut frame, mut event, mut turn) = (0, 0, 0);
    while let Some(record) = reader.read()? {
        frame += 1;
        match record {
            Record::Start(_) => return Err(TraceProblem::OutOfOrder { frame }),
            Record::Load(load) => run.load = Some(load),
            Record::Turn(record) => {
                turn = record.turn;
                run.turns = run.turns.max(turn.saturating_add(1));
            }
            Record::Route(route) => {
                push_route(&mut run.tables.routes, event, &route)
                    .and_then(|()| push_scores(&mut run.tables.scores, event, &route))
                    .ok_or(TraceProblem::Uneven { frame })?;
                event += 1;
            }
            Record::Read(read) => run.tables.reads.push(ReadRow::from(&read)),
            Record::Compute(compute) => run.tables.compute.push(ComputeRow::from(compute)),
            Record::Budget(budget) => run.tables.budgets.push(BudgetRow::new(&budget, turn)),
            Record::Prefill(prefill) => {
                run.prefill.get_or_insert(prefill);
            }
            Record::Token(token) => run.tables.tokens.push(TokenRow::new(&token, turn, mode)),
            Record::End(end) => run.end = Some(*end),
        }
    }
    if let Some(Tail::Truncated { lost_bytes }) = reader.tail() {
        run.truncated_bytes = lost_bytes;
    }
    Ok(run)
}

/// One row per (token, slot); `None` when the record's vectors do not fit together.
fn push_route(rows: &mut Vec<RouteRow>, event: u32, route: &RouteRecord) -> Option<()> {
    let top_k = route.top_k as usize;
    let pairs = route.positions.len() * top_k;
    let known = !route.residency.is_empty();
    let distinct = &route.distinct;
    if route.experts.len() != pairs
        || route.weights.len() != pairs
        || (known
            && (route.residency.len() != distinct.len()
                || route.read_bytes.len() != distinct.len()))
    {
        return None;
    }
    let mut seen = vec![false; distinct.len()];
    for pair in 0..pairs {
        let expert = route.experts[pair];
        // The first row that names an expert is the one that caused its read.
        let (residency, read_bytes) = if known {
            let entry = distinct.iter().position(|d| *d == expert)?;
            let first = !std::mem::replace(&mut seen[entry], true);
            (Some(route.residency[entry]), Some(if first { route.read_bytes[entry] } else { 0 }))
        } else {
            (None, None)
        };
        rows.push(RouteRow {
            event,
            turn: route.turn,
            ubatch: route.ubatch,
            phase: route.phase,
            layer: route.layer,
            position: route.positions[pair / top_k],
            slot: u32::try_from(pair % top_k).ok()?,
            expert: u32::from(expert),
            weight: Some(route.weights[pair]).filter(|w| !w.is_nan()),
            residency,
            read_bytes,
        });
    }
    Some(())
}

/// One row per (token, rank); `None` when the record's vectors do not fit together.
fn push_scores(rows: &mut Vec<ScoreRow>, event: u32, route: &RouteRecord) -> Option<()> {
    let (scored, tokens) = (route.scored.len(), route.positions.len());
    if scored != route.scores.len() {
        return None;
    }
    if scored == 0 {
        return Some(());
    }
    let ranks = scored.checked_div(tokens).filter(|ranks| ranks * tokens == scored)?;
    for (index, (expert, score)) in route.scored.iter().zip(&route.scores).enumerate() {
        rows.push(ScoreRow {
            event,
            turn: route.turn,
            ubatch: route.ubatch,
            phase: route.phase,
            layer: route.layer,
            position: route.positions[index / ranks],
            rank: u32::try_from(index % ranks).ok()?,
            expert: u32::from(*expert),
            score: *score,
        });
    }
    Some(())
}
