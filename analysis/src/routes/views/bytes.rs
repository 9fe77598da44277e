//! Expert bytes of each step.

use bmoe_trace::record::Phase;
use serde::Serialize;

use super::matrix::phase_str;
use super::{Asked, NO_SIZES, ViewError};
use crate::stats::percentile;
use crate::tabular::{Column, MIB, Table, Value};

/// Bytes of the experts that each step needed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bytes {
    /// Steps, in order.
    pub steps: Vec<ByteStep>,
}

/// One token, or one micro-batch of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ByteStep {
    /// `prefill` or `decode`.
    pub phase: &'static str,
    /// Absolute position of its first token.
    pub position: u32,
    /// Its tokens.
    pub tokens: usize,
    /// Bytes of its distinct experts, layer by layer: what a run without a cache reads.
    pub demand_bytes: u64,
    /// Of them, of experts that the run had not used before.
    pub first_use_bytes: u64,
    /// What the recorded run read; `None` = not recorded.
    pub read_bytes: Option<u64>,
}

impl Bytes {
    pub(super) fn of(asked: &Asked<'_>) -> Result<Self, ViewError> {
        let trace = asked.trace;
        if !trace.has_sizes() {
            return Err(NO_SIZES);
        }
        let n_expert = trace.n_expert as usize;
        let mut used = vec![false; trace.layers.len() * n_expert];
        let mut in_event = vec![0_usize; n_expert];
        let mut steps: Vec<(Phase, ByteStep)> = Vec::new();
        let mut last = None;
        for (number, event) in trace.events().enumerate() {
            if last.is_none_or(|last| event.layer <= last) {
                let step = ByteStep {
                    phase: phase_str(event.phase),
                    position: event.positions.first().copied().unwrap_or_default(),
                    tokens: 0,
                    demand_bytes: 0,
                    first_use_bytes: 0,
                    read_bytes: None,
                };
                steps.push((event.phase, step));
            }
            last = Some(event.layer);
            let Some((_, step)) = steps.last_mut() else { continue };
            let looked_at = asked.layers.contains(&event.layer);
            let size = trace.layers[event.layer].expert_bytes;
            step.tokens = step.tokens.max(event.positions.len());
            if looked_at && !event.read_bytes.is_empty() {
                *step.read_bytes.get_or_insert(0) += event.read_bytes.iter().sum::<u64>();
            }
            for expert in event.experts {
                let expert = usize::from(*expert);
                let again = std::mem::replace(&mut in_event[expert], number + 1) == number + 1;
                let seen = std::mem::replace(&mut used[event.layer * n_expert + expert], true);
                if looked_at && !again {
                    step.demand_bytes += size;
                    step.first_use_bytes += if seen { 0 } else { size };
                }
            }
        }
        let wanted = steps.into_iter().filter(|(phase, _)| asked.phases.has(*phase));
        Ok(Self { steps: wanted.map(|(_, step)| step).collect() })
    }

    pub(super) fn table(&self) -> Table {
        let row = |step: &ByteStep| {
            vec![
                step.phase.into(),
                step.position.into(),
                step.tokens.into(),
                Value::mib(Some(step.demand_bytes as f64)),
                Value::mib(Some(step.first_use_bytes as f64)),
                Value::mib(step.read_bytes.map(|bytes| bytes as f64)),
            ]
        };
        let decode = || self.steps.iter().filter(|step| step.phase == "decode");
        let spread = |name: &str, of: &dyn Fn(&ByteStep) -> Option<u64>| {
            let mut mib: Vec<f64> = decode().filter_map(of).map(|b| b as f64 / MIB).collect();
            mib.sort_by(f64::total_cmp);
            let at = |p: f64| percentile(&mib, p);
            Some(format!(
                "{name} per decode token, MiB: mean {:.1}, median {:.1}, 5th to 95th percentile {:.1} to {:.1}",
                mib.iter().sum::<f64>() / mib.len() as f64,
                at(0.5)?,
                at(0.05)?,
                at(0.95)?
            ))
        };
        let notes = [
            spread("needed", &|step| Some(step.demand_bytes)),
            spread("used first", &|step| Some(step.first_use_bytes)),
            spread("read", &|step| step.read_bytes),
        ];
        Table {
            title: "bytes: expert bytes of each token (of the prompt: of each micro-batch)"
                .to_owned(),
            columns: vec![
                Column::text("phase", "phase"),
                Column::number("position", "position"),
                Column::number("tokens", "tokens"),
                Column::number("needed_mib", "needed MiB"),
                Column::number("first_use_mib", "of them first used"),
                Column::number("read_mib", "read MiB"),
            ],
            rows: self.steps.iter().map(row).collect(),
            notes: notes.into_iter().flatten().collect(),
        }
    }
}
