//! Rows of routes, column by column.

use super::order::{Place, TokenOfLayer};
use crate::record::{Phase, Residency};

/// Some rows: one per (token, slot), whole tokens, in file order. All columns are equally long, but those that
/// may be empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RouteChunk {
    /// Event of the run, from 0: one layer of one micro-batch.
    pub event: Vec<u32>,
    /// Turn of a session, from 0.
    pub turn: Vec<u32>,
    /// Micro-batch of the run, from 0.
    pub ubatch: Vec<u32>,
    /// Prefill or decode.
    pub phase: Vec<Phase>,
    /// Layer, as the trace numbers it.
    pub layer: Vec<u32>,
    /// Absolute position of the token.
    pub position: Vec<u32>,
    /// The router's rank of the expert, from 0; where a format does not say, the place in its list.
    pub slot: Vec<u32>,
    /// Expert.
    pub expert: Vec<u32>,
    /// Router weight; NaN = unknown.
    pub weight: Vec<f32>,
    /// Where the expert was; `None` = unknown.
    pub residency: Vec<Option<Residency>>,
    /// Bytes read because of this row; 0 on rows that caused no read and where `residency` is unknown.
    pub read_bytes: Vec<u64>,
    /// Columns that are not known, as text; see [`RouteHeader::extra_columns`](super::RouteHeader).
    pub extra: Vec<Vec<String>>,
    /// Scores of the tokens of these rows; empty = not recorded.
    pub scores: ScoreChunk,
}

/// The router's best experts: one row per (token, rank).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScoreChunk {
    /// Event of the run.
    pub event: Vec<u32>,
    /// Turn of a session.
    pub turn: Vec<u32>,
    /// Micro-batch of the run.
    pub ubatch: Vec<u32>,
    /// Prefill or decode.
    pub phase: Vec<Phase>,
    /// Layer.
    pub layer: Vec<u32>,
    /// Absolute position of the token.
    pub position: Vec<u32>,
    /// Place among the token's scores, from 0, the best.
    pub rank: Vec<u32>,
    /// Expert.
    pub expert: Vec<u32>,
    /// What the model weighs it by.
    pub score: Vec<f32>,
}

impl RouteChunk {
    /// Rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.expert.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.expert.is_empty()
    }

    pub(super) fn reserve(&mut self, rows: usize) {
        let Self {
            event,
            turn,
            ubatch,
            phase,
            layer,
            position,
            slot,
            expert,
            weight,
            residency,
            read_bytes,
            ..
        } = self;
        for column in [event, turn, ubatch, layer, position, slot, expert] {
            column.reserve(rows);
        }
        phase.reserve(rows);
        weight.reserve(rows);
        residency.reserve(rows);
        read_bytes.reserve(rows);
    }

    /// Adds a row of a trace that tells neither residency nor bytes.
    pub(super) fn push_plain(
        &mut self,
        place: Place,
        token: TokenOfLayer,
        slot: u32,
        expert: u32,
        weight: f32,
    ) {
        self.event.push(place.event);
        self.turn.push(token.turn);
        self.ubatch.push(place.ubatch);
        self.phase.push(token.phase);
        self.layer.push(token.layer);
        self.position.push(token.position);
        self.slot.push(slot);
        self.expert.push(expert);
        self.weight.push(weight);
        self.residency.push(None);
        self.read_bytes.push(0);
    }

    /// Takes the rows from `at` on away into a new chunk.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        Self {
            event: self.event.split_off(at),
            turn: self.turn.split_off(at),
            ubatch: self.ubatch.split_off(at),
            phase: self.phase.split_off(at),
            layer: self.layer.split_off(at),
            position: self.position.split_off(at),
            slot: self.slot.split_off(at),
            expert: self.expert.split_off(at),
            weight: self.weight.split_off(at),
            residency: self.residency.split_off(at),
            read_bytes: self.read_bytes.split_off(at),
            extra: self.extra.iter_mut().map(|column| column.split_off(at)).collect(),
            scores: ScoreChunk::default(),
        }
    }
}
