//! An event's experts in the pieces in which they are computed.

use std::time::Instant;

use bmoe_trace::record::ReadPurpose;

use super::ExpertStore;
use super::frames::Slice;
use crate::flash::queue::{ReadError, SliceState};

/// Some of an event's experts for one projection: `experts[from..to]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) projection: usize,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// The event that is running.
#[derive(Debug, Default)]
pub(super) struct CurrentEvent {
    pub(super) layer: usize,
    /// Distinct experts: resident ones first.
    pub(super) experts: Vec<u16>,
    /// How many of them were resident.
    pub(super) hits: usize,
    /// Those of the resident ones that had been read early and were not used before.
    pub(super) early: Vec<u16>,
    /// Which of them stay behind the event (parallel to `experts`).
    pub(super) stays: Vec<bool>,
    /// All slices have a frame.
    pub(super) whole: bool,
    /// Next expert of each projection.
    pub(super) next: Vec<usize>,
    /// The round handed out last.
    pub(super) current: Option<Round>,
    /// A round whose reads were submitted before it is asked for.
    pub(super) ahead: Option<Round>,
    /// Most bytes of a round, so that the next one fits beside it.
    pub(super) round_bytes: u64,
}

impl ExpertStore {
    /// The next experts that a projection of the current event can be computed for; empty when all
    /// have been. Asking ends every round before: their frames may be reused.
    ///
    /// # Errors
    /// A read failed. The store must not be used any more.
    pub fn next_round(&mut self, projection: usize) -> Result<&[u16], ReadError> {
        let start = Instant::now();
        let all = self.event.experts.len();
        let mut round = Round { projection, from: self.event.next[projection], to: all };
        let mut result = Ok(());
        if !self.event.whole {
            self.end_round();
            if round.from == all {
                return Ok(&[]);
            }
            self.drop_other_ahead(projection);
            round.to = if round.from < self.event.hits {
                self.event.hits
            } else if let Some(ahead) = self.event.ahead.take() {
                ahead.to
            } else {
                let to = self.reserve_some(projection, round.from);
                assert!(to > round.from, "the event room holds at least one slice");
                to
            };
            self.event.current = Some(round);
            self.submit();
            if self.overlap {
                self.read_ahead(round);
            } else {
                result = self.complete(round);
            }
        }
        self.event.next[projection] = round.to;
        self.count_time(start);
        result.map(|()| &self.event.experts[round.from..round.to])
    }

    /// Gives up the running event: its graph was stopped somewhere, and another one may begin. An event that
    /// came in rounds leaves experts that the cache counts as resident without all of their slices; since
    /// such an event has emptied the cache of nearly everything else, all of it goes.
    pub fn abandon(&mut self) {
        let all = self.event.experts.len();
        let finished = self.event.next.iter().all(|next| *next == all);
        let whole = self.event.whole;
        self.end_event();
        if whole || finished {
            return;
        }
        let budget_bytes = self.cache.budget_bytes();
        let gone = self.cache.set_budget(0).to_vec();
        self.cache.set_budget(budget_bytes);
        for key in gone {
            let (layer, expert) = (self.cache.sizes().layer(key), self.cache.sizes().expert(key));
            for projection in 0..self.frames.tensors(layer) {
                self.frames.free(Slice { layer, expert, projection });
            }
        }
    }

    /// Whether the round handed out last was the projection's last one.
    #[must_use]
    pub fn finished(&self, projection: usize) -> bool {
        self.event.next[projection] == self.event.experts.len()
    }

    /// Blocks until a round's slices are in memory.
    pub(super) fn complete(&mut self, round: Round) -> Result<(), ReadError> {
        let Round { projection, from, to } = round;
        let layer = self.event.layer;
        let experts = &self.event.experts[from..to];
        self.frames.complete(experts.iter().map(|&expert| Slice { layer, expert, projection }))
    }

    /// Frees what the event leaves behind but the cache doesn't keep.
    pub(super) fn end_event(&mut self) {
        let layer = self.event.layer;
        for i in 0..self.event.experts.len() {
            if !self.event.stays[i] {
                for projection in 0..self.event.next.len() {
                    self.frames.free(Slice { layer, expert: self.event.experts[i], projection });
                }
            }
        }
        self.event.experts.clear();
        self.event.stays.clear();
        self.event.current = None;
        self.event.ahead = None;
    }

    /// Frees what the last round leaves behind but the cache doesn't keep: its products are done.
    pub(super) fn end_round(&mut self) {
        let Some(Round { projection, from, to }) = self.event.current.take() else { return };
        for i in from..to {
            if !self.event.stays[i] {
                let expert = self.event.experts[i];
                self.frames.free(Slice { layer: self.event.layer, expert, projection });
            }
        }
    }

    /// Reads of hits that speculation has not finished go before all other speculation.
    pub(super) fn promote_hits(&mut self) {
        for i in 0..self.event.hits {
            for &projection in &self.order[self.event.layer] {
                let (layer, expert) = (self.event.layer, self.event.experts[i]);
                let slice = self.frames.index(Slice { layer, expert, projection }) as u32;
                let queue = self.frames.lanes().queue();
                if queue.state(slice) == SliceState::Pending {
                    queue.promote(slice);
                }
            }
        }
    }

    /// Reserves frames for all misses of the event, or for none.
    pub(super) fn reserve_all(&mut self) -> bool {
        let layer = self.event.layer;
        for at in 0..self.order[layer].len() {
            let projection = self.order[layer][at];
            for i in self.event.hits..self.event.experts.len() {
                let slice = Slice { layer, expert: self.event.experts[i], projection };
                if !self.frames.reserve(slice, ReadPurpose::Demand) {
                    self.frames.give_up_batch();
                    return false;
                }
            }
        }
        true
    }

    /// Reserves frames for a projection's experts from `from` on: at least one, then as many as a round may
    /// have; returns where it stopped.
    pub(super) fn reserve_some(&mut self, projection: usize, from: usize) -> usize {
        let layer = self.event.layer;
        let slice_bytes = self.layout().layers[layer].tensors[projection].slice_bytes;
        let mut to = from;
        let mut bytes = 0;
        while to < self.event.experts.len() && (to == from || bytes < self.event.round_bytes) {
            let slice = Slice { layer, expert: self.event.experts[to], projection };
            if !self.frames.reserve(slice, ReadPurpose::Demand) {
                break;
            }
            bytes += slice_bytes;
            to += 1;
        }
        to
    }

    /// Gives up what was read ahead for another projection than the graph now asks for.
    pub(super) fn drop_other_ahead(&mut self, projection: usize) {
        if let Some(Round { projection, from, to }) =
            self.event.ahead.take_if(|a| a.projection != projection)
        {
            for i in from..to {
                let expert = self.event.experts[i];
                self.frames.free(Slice { layer: self.event.layer, expert, projection });
            }
        }
    }

    /// Submits the reads of the round behind `round`, as far as there is room beside it.
    pub(super) fn read_ahead(&mut self, round: Round) {
        if self.event.ahead.is_some() {
            return;
        }
        let all = self.event.experts.len();
        let order = &self.order[self.event.layer];
        let at = order
            .iter()
            .position(|p| *p == round.projection)
            .expect("every projection has a place");
        let (projection, from) = if round.to < all {
            (round.projection, round.to)
        } else {
            match order.get(at + 1) {
                Some(&projection) => (projection, self.event.hits),
                None => return,
            }
        };
        let to = self.reserve_some(projection, from);
        if to > from {
            self.submit();
            self.event.ahead = Some(Round { projection, from, to });
        }
    }
}
