//! Where the experts of the recorded run came from.

use bmoe_trace::record::{Phase, Residency};
use serde::Serialize;

use super::matrix::phase_str;
use super::{Asked, ViewError};
use crate::tabular::{Column, MIB, Table, Value};

/// Look-ups of the recorded run, one for each distinct expert of an event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cache {
    /// Bytes read are known.
    pub has_bytes: bool,
    /// By phase and layer.
    pub rows: Vec<CacheRow>,
}

/// One layer in one phase.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CacheRow {
    /// `prefill` or `decode`.
    pub phase: &'static str,
    /// The model's number of the layer; `None` = all layers looked at.
    pub layer: Option<u32>,
    /// Distinct experts, event by event.
    pub lookups: u64,
    /// Found in the cache.
    pub hits: u64,
    /// Found there because they had been read ahead, at their first use.
    pub prefetch_hits: u64,
    /// Read for the event.
    pub misses: u64,
    /// Of the misses, experts that the run had not used before: no cache without reading ahead avoids them.
    pub cold_misses: u64,
    /// Bytes read for the events.
    pub read_bytes: u64,
}

impl CacheRow {
    fn new(phase: Phase, layer: Option<u32>) -> Self {
        Self {
            phase: phase_str(phase),
            layer,
            lookups: 0,
            hits: 0,
            prefetch_hits: 0,
            misses: 0,
            cold_misses: 0,
            read_bytes: 0,
        }
    }

    fn add(&mut self, other: &Self) {
        self.lookups += other.lookups;
        self.hits += other.hits;
        self.prefetch_hits += other.prefetch_hits;
        self.misses += other.misses;
        self.cold_misses += other.cold_misses;
        self.read_bytes += other.read_bytes;
    }

    /// Look-ups that needed no read, 0 to 1.
    #[must_use]
    pub fn hit_share(&self) -> Option<f64> {
        let found = self.hits + self.prefetch_hits;
        (self.lookups > 0).then(|| found as f64 / self.lookups as f64)
    }
}

impl Cache {
    pub(super) fn of(asked: &Asked<'_>) -> Result<Self, ViewError> {
        let trace = asked.trace;
        if trace.events().all(|event| event.residency.is_empty()) {
            return Err(ViewError::NotRecorded {
                what: "where each expert was (residency)",
                hint: "record a run with --mode stream; `bmoe simulate` replays this one",
            });
        }
        let phases = [Phase::Prefill, Phase::Decode];
        let mut counts: Vec<[CacheRow; 2]> = (0..trace.layers.len())
            .map(|layer| phases.map(|phase| CacheRow::new(phase, Some(asked.index(layer)))))
            .collect();
        let n_expert = trace.n_expert as usize;
        let mut used = vec![false; trace.layers.len() * n_expert];
        let mut in_event = vec![0_usize; n_expert];
        let mut has_bytes = false;
        for (number, event) in trace.events().enumerate() {
            let row = &mut counts[event.layer][usize::from(event.phase == Phase::Decode)];
            has_bytes |= !event.read_bytes.is_empty();
            row.read_bytes += event.read_bytes.iter().sum::<u64>();
            for (expert, residency) in event.experts.iter().zip(event.residency) {
                let expert = usize::from(*expert);
                // The first row that names an expert is the look-up.
                if std::mem::replace(&mut in_event[expert], number + 1) == number + 1 {
                    continue;
                }
                let seen = std::mem::replace(&mut used[event.layer * n_expert + expert], true);
                row.lookups += 1;
                match residency {
                    Residency::Hit => row.hits += 1,
                    Residency::PrefetchHit => row.prefetch_hits += 1,
                    Residency::Miss => {
                        row.misses += 1;
                        row.cold_misses += u64::from(!seen);
                    }
                }
            }
        }
        let mut rows = Vec::new();
        for phase in phases.into_iter().filter(|phase| asked.phases.has(*phase)) {
            let place = usize::from(phase == Phase::Decode);
            let of_phase: Vec<CacheRow> =
                asked.layers.iter().map(|layer| counts[*layer][place]).collect();
            let mut all = CacheRow::new(phase, None);
            of_phase.iter().for_each(|row| all.add(row));
            if all.lookups > 0 {
                rows.extend(Some(all).filter(|_| asked.layers.len() > 1));
                rows.extend(of_phase);
            }
        }
        Ok(Self { has_bytes, rows })
    }

    pub(super) fn table(&self) -> Table {
        let row = |row: &CacheRow| {
            vec![
                row.phase.into(),
                row.layer.map_or_else(|| "all".into(), Value::from),
                row.lookups.into(),
                row.hits.into(),
                row.prefetch_hits.into(),
                row.misses.into(),
                row.cold_misses.into(),
                Value::percent(row.hit_share()),
                Value::maybe(self.has_bytes.then(|| row.read_bytes as f64 / MIB), 1),
            ]
        };
        Table {
            title: "cache: where the experts of the recorded run came from".to_owned(),
            columns: vec![
                Column::text("phase", "phase"),
                Column::number("layer", "layer"),
                Column::number("lookups", "look-ups"),
                Column::number("hits", "hits"),
                Column::number("prefetch_hits", "read ahead"),
                Column::number("misses", "misses"),
                Column::number("cold_misses", "of them first use"),
                Column::number("hit_pct", "hit %"),
                Column::number("read_mib", "read MiB"),
            ],
            rows: self.rows.iter().map(row).collect(),
            notes: vec![
                "one look-up for each distinct expert of an event; a micro-batch of the prompt is one event \
                 per layer"
                    .to_owned(),
            ],
        }
    }
}
