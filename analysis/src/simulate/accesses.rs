//! What a replay goes through: the events of a trace, compact, under the rules of the replay.

use std::ops::Range;

use bmoe_cache::{EntrySizes, Overshoot};
use bmoe_trace::record::Phase;

use crate::routes::{RouteLayer, RouteTrace};

/// How a trace is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rules {
    /// What stays of an event that is larger than the budget (or its layer's share).
    pub overshoot: Overshoot,
    /// The prompt is left out: decode begins with an empty cache.
    pub decode_only: bool,
    /// The experts of an event ascend, instead of standing in the router's order. It decides ties.
    pub by_expert: bool,
}

impl Rules {
    /// What the engine does.
    pub const ENGINE: Self =
        Self { overshoot: Overshoot::Never, decode_only: false, by_expert: false };

    /// The published replays with byte budgets.
    pub const PUBLISHED_BYTES: Self =
        Self { overshoot: Overshoot::KeepUntilNextEvent, decode_only: false, by_expert: false };

    /// The published replays with slots per layer.
    pub const PUBLISHED_SLOTS: Self =
        Self { overshoot: Overshoot::KeepUntilNextEvent, decode_only: true, by_expert: true };
}

/// The experts of all events, in order.
#[derive(Debug, Clone)]
pub struct Accesses {
    rules: Rules,
    layers: Vec<RouteLayer>,
    n_expert: u32,
    sized: bool,
    decode_tokens: usize,
    events: Vec<Span>,
    experts: Vec<u16>,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    /// Where its experts end; they begin where the last event's end.
    end: usize,
    layer: u16,
    phase: Phase,
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access<'a> {
    /// Prefill or decode.
    pub phase: Phase,
    /// Number of the layer among the MoE layers.
    pub layer: usize,
    /// Experts, token-major, duplicates included.
    pub experts: &'a [u16],
}

impl Accesses {
    /// The events of a trace that the rules leave.
    #[must_use]
    pub fn new(trace: &RouteTrace, rules: Rules) -> Self {
        let mut accesses = Self {
            rules,
            layers: trace.layers.clone(),
            n_expert: trace.n_expert,
            sized: trace.has_sizes(),
            decode_tokens: trace.decode_tokens(),
            events: Vec::with_capacity(trace.events().len()),
            experts: Vec::with_capacity(trace.rows()),
        };
        for event in trace.events() {
            if rules.decode_only && event.phase == Phase::Prefill {
                continue;
            }
            let start = accesses.experts.len();
            accesses.experts.extend_from_slice(event.experts);
            if rules.by_expert {
                accesses.experts[start..].sort_unstable();
            }
            let end = accesses.experts.len();
            accesses.events.push(Span { end, layer: event.layer as u16, phase: event.phase });
        }
        accesses
    }

    /// The rules.
    #[must_use]
    pub const fn rules(&self) -> Rules {
        self.rules
    }

    /// The MoE layers.
    #[must_use]
    pub fn layers(&self) -> &[RouteLayer] {
        &self.layers
    }

    /// Experts per layer.
    #[must_use]
    pub const fn n_expert(&self) -> u32 {
        self.n_expert
    }

    /// Whether the sizes of all experts are known.
    #[must_use]
    pub const fn sized(&self) -> bool {
        self.sized
    }

    /// Tokens of decode.
    #[must_use]
    pub const fn decode_tokens(&self) -> usize {
        self.decode_tokens
    }

    /// (token, slot) pairs.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.experts.len()
    }

    /// Number of events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// No events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The events in their order.
    pub fn events(&self) -> impl Iterator<Item = Access<'_>> {
        let mut start = 0;
        self.events.iter().map(move |span| {
            let experts: Range<usize> = start..span.end;
            start = span.end;
            Access {
                phase: span.phase,
                layer: usize::from(span.layer),
                experts: &self.experts[experts],
            }
        })
    }

    /// Bytes of every entry, as byte budgets count them.
    #[must_use]
    pub fn entry_sizes(&self) -> EntrySizes {
        let bytes: Vec<u64> = self.layers.iter().map(|layer| layer.expert_bytes).collect();
        EntrySizes::new(&bytes, self.n_expert)
    }

    /// Entries of one byte, as slots count them.
    #[must_use]
    pub fn entry_slots(&self) -> EntrySizes {
        EntrySizes::new(&vec![1; self.layers.len()], self.n_expert)
    }

    /// Bytes of all entries that any event uses.
    #[must_use]
    pub fn touched_bytes(&self) -> u64 {
        let n_expert = self.n_expert as usize;
        let mut touched = vec![false; self.layers.len() * n_expert];
        for event in self.events() {
            for &expert in event.experts {
                touched[event.layer * n_expert + usize::from(expert)] = true;
            }
        }
        let of_layer = touched.chunks(n_expert.max(1)).zip(&self.layers);
        of_layer
            .map(|(layer, of)| layer.iter().filter(|t| **t).count() as u64 * of.expert_bytes)
            .sum()
    }

    /// Bytes of the distinct experts of the largest event.
    #[must_use]
    pub fn largest_event_bytes(&self) -> u64 {
        let largest = self.distinct_events().map(|(event, n)| {
            n as u64 * self.layers.get(event.layer).map_or(0, |layer| layer.expert_bytes)
        });
        largest.max().unwrap_or(0)
    }

    /// Bytes of the experts of one decode token, all layers: of the largest token, when they differ.
    #[must_use]
    pub fn token_bytes(&self) -> u64 {
        let (mut largest, mut token, mut last) = (0, 0, None);
        for (event, distinct) in self.distinct_events() {
            if event.phase == Phase::Prefill {
                last = None;
                continue;
            }
            if last.is_none_or(|last| event.layer <= last) {
                token = 0;
            }
            last = Some(event.layer);
            token += distinct as u64 * self.layers[event.layer].expert_bytes;
            largest = largest.max(token);
        }
        largest
    }

    /// Distinct experts of the largest event of decode.
    #[must_use]
    pub fn decode_event_experts(&self) -> usize {
        let decode = self.distinct_events().filter(|(event, _)| event.phase == Phase::Decode);
        decode.map(|(_, distinct)| distinct).max().unwrap_or(0)
    }

    /// Every event with its number of distinct experts.
    fn distinct_events(&self) -> impl Iterator<Item = (Access<'_>, usize)> {
        let mut seen = vec![0_usize; self.n_expert as usize];
        self.events().enumerate().map(move |(number, event)| {
            let mut distinct = 0;
            for &expert in event.experts {
                let seen = &mut seen[usize::from(expert)];
                distinct += usize::from(std::mem::replace(seen, number + 1) != number + 1);
            }
            (event, distinct)
        })
    }
}
