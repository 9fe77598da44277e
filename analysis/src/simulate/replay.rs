//! The loop over all events.

use std::sync::atomic::{AtomicU64, Ordering};

use bmoe_cache::{Cache, Policy};
use bmoe_trace::record::Phase;

use super::accesses::Accesses;
use super::result::Counted;

/// Events between two reports of progress.
const REPORT_EVENTS: u64 = 1 << 14;

/// What one event came to. One look-up per distinct expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Distinct experts that were there.
    pub hits: u64,
    /// Distinct experts that had to be read.
    pub misses: u64,
    /// Entries that left, and those of the event that were not kept.
    pub evictions: u64,
}

/// Something that events can be replayed through.
pub trait Replay {
    /// All experts that one layer (counted among the MoE layers) uses for one micro-batch, in the router's order,
    /// duplicates included.
    fn event(&mut self, layer: usize, experts: &[u16]) -> Outcome;
}

impl<P: Policy> Replay for Cache<P> {
    #[inline]
    fn event(&mut self, layer: usize, experts: &[u16]) -> Outcome {
        let event = self.event(layer, experts);
        Outcome {
            hits: event.hits.len() as u64,
            misses: event.misses.len() as u64,
            evictions: (event.evicted.len() + event.transient.len()) as u64,
        }
    }
}

/// What a replay counted.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) prefill: Counted,
    pub(super) decode: Counted,
    /// Bytes read by each decode step.
    pub(super) step_bytes: Vec<u64>,
}

/// Replays everything; `done` counts events while it goes on.
pub(super) fn replay(
    accesses: &Accesses,
    through: &mut impl Replay,
    done: Option<&AtomicU64>,
) -> Tally {
    let mut tally = Tally::default();
    // Layer of the last decode event; a layer that does not rise begins a step.
    let mut last_layer = None;
    let mut unreported = 0;
    for event in accesses.events() {
        let outcome = through.event(event.layer, event.experts);
        let read_bytes = outcome.misses * accesses.layers()[event.layer].expert_bytes;
        if event.phase == Phase::Decode {
            if last_layer.is_none_or(|last| event.layer <= last) {
                tally.step_bytes.push(0);
            }
            last_layer = Some(event.layer);
            tally.decode.add(outcome, read_bytes);
            if let Some(step) = tally.step_bytes.last_mut() {
                *step += read_bytes;
            }
        } else {
            last_layer = None;
            tally.prefill.add(outcome, read_bytes);
        }
        unreported += 1;
        if unreported == REPORT_EVENTS {
            report(done, unreported);
            unreported = 0;
        }
    }
    report(done, unreported);
    tally
}

fn report(done: Option<&AtomicU64>, events: u64) {
    if let Some(done) = done {
        done.fetch_add(events, Ordering::Relaxed);
    }
}
