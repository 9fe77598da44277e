//! How long ago an expert was used last.

use serde::Serialize;

use super::{Asked, tokens_word};
use crate::curve::stack::Stack;
use crate::routes::RouteTrace;
use crate::routes::tokens::{Phases, TokenRoutes};
use crate::tabular::{Column, MIB, Table, Value};

/// Distances to an expert's last use.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reuse {
    /// The part of the run whose uses are counted; what was used before it counts as used.
    pub phases: Phases,
    /// In tokens of the layer: 1 = the token before.
    pub tokens: Vec<Bin>,
    /// Uses counted in tokens.
    pub uses: u64,
    /// Of them, first uses in the run.
    pub cold_uses: u64,
    /// In MiB of distinct experts, of whatever layer, used since, the expert itself included; empty when sizes are
    /// not known.
    pub mib: Vec<Bin>,
    /// Look-ups counted in bytes: one for each distinct expert of an event.
    pub lookups: u64,
    /// Of them, first uses in the run.
    pub cold_lookups: u64,
}

/// Uses at a distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// Distances above this,
    pub above: u64,
    /// up to this.
    pub to: u64,
    /// How many.
    pub uses: u64,
}

/// Counts in bins that end at powers of two.
#[derive(Debug, Default)]
struct Histogram(Vec<u64>);

impl Histogram {
    fn add(&mut self, distance: u64) {
        let bin = distance.max(1).next_power_of_two().trailing_zeros() as usize;
        if self.0.len() <= bin {
            self.0.resize(bin + 1, 0);
        }
        self.0[bin] += 1;
    }

    /// From the shortest distance that occurred on.
    fn bins(self) -> Vec<Bin> {
        let bin = |(i, uses): (usize, u64)| {
            let above = if i == 0 { 0 } else { 1 << (i - 1) };
            Bin { above, to: 1 << i, uses }
        };
        self.0.into_iter().enumerate().skip_while(|(_, uses)| *uses == 0).map(bin).collect()
    }
}

impl Reuse {
    pub(super) fn of(asked: &Asked<'_>) -> Self {
        let (tokens, uses, cold_uses) = in_tokens(asked);
        let sized = asked.trace.has_sizes();
        let (mib, lookups, cold_lookups) = if sized { in_bytes(asked) } else { (Vec::new(), 0, 0) };
        Self { phases: asked.phases, tokens, uses, cold_uses, mib, lookups, cold_lookups }
    }

    /// Bins of tokens or of MiB, with all they are of and the first uses.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, &[Bin], u64, u64); 2] {
        [
            ("tokens", &self.tokens, self.uses, self.cold_uses),
            ("MiB", &self.mib, self.lookups, self.cold_lookups),
        ]
    }

    pub(super) fn table(&self) -> Table {
        let mut rows = Vec::new();
        for (unit, bins, all, cold) in self.parts().into_iter().filter(|part| part.2 > 0) {
            let share = |uses: u64| Value::percent(Some(uses as f64 / all as f64));
            let mut sum = 0;
            for bin in bins {
                sum += bin.uses;
                rows.push(vec![
                    unit.into(),
                    bin.above.into(),
                    bin.to.into(),
                    bin.uses.into(),
                    share(bin.uses),
                    share(sum),
                ]);
            }
            let cold_row = [unit.into(), "first use".into(), Value::Missing, cold.into()];
            rows.push(cold_row.into_iter().chain([share(cold), Value::Missing]).collect());
        }
        let mut notes = vec![
            "tokens: one use for each token and expert; MiB: one for each distinct expert of an event, and what \
             an LRU cache of so many MiB would still hold"
                .to_owned(),
        ];
        if self.lookups == 0 {
            notes.push("distances in MiB need the experts' sizes (--expert-mib)".to_owned());
        }
        Table {
            title: format!("reuse: distance to an expert's last use, {}", tokens_word(self.phases)),
            columns: vec![
                Column::text("unit", "unit"),
                Column::number("above", "above"),
                Column::number("up_to", "up to"),
                Column::number("uses", "uses"),
                Column::number("share_pct", "%"),
                Column::number("cumulative_pct", "so far, %"),
            ],
            rows,
            notes,
        }
    }
}

fn in_tokens(asked: &Asked<'_>) -> (Vec<Bin>, u64, u64) {
    let tokens = TokenRoutes::new(asked.trace);
    let (mut histogram, mut uses, mut cold) = (Histogram::default(), 0, 0);
    for layer in &asked.layers {
        let mut last = vec![None; asked.trace.n_expert as usize];
        for (now, token) in tokens.layers[*layer].iter().enumerate() {
            for expert in token.experts {
                let before: Option<usize> = last[usize::from(*expert)].replace(now);
                if !asked.phases.has(token.phase) {
                    continue;
                }
                uses += 1;
                match before {
                    Some(before) => histogram.add((now - before) as u64),
                    None => cold += 1,
                }
            }
        }
    }
    (histogram.bins(), uses, cold)
}

fn in_bytes(asked: &Asked<'_>) -> (Vec<Bin>, u64, u64) {
    let trace: &RouteTrace = asked.trace;
    let n_expert = trace.n_expert as usize;
    let mut stack = Stack::new(trace.layers.len() * n_expert);
    let mut in_event = vec![0_usize; n_expert];
    let (mut histogram, mut lookups, mut cold) = (Histogram::default(), 0, 0);
    for (number, event) in trace.events().enumerate() {
        let counted = asked.phases.has(event.phase) && asked.layers.contains(&event.layer);
        // All look-ups of an event come before its uses.
        for expert in event.experts.iter().filter(|_| counted) {
            let expert = usize::from(*expert);
            if std::mem::replace(&mut in_event[expert], number + 1) == number + 1 {
                continue;
            }
            lookups += 1;
            match stack.bytes_down_to(event.layer * n_expert + expert) {
                Some(bytes) => histogram.add((bytes as f64 / MIB).ceil() as u64),
                None => cold += 1,
            }
        }
        let size = trace.layers[event.layer].expert_bytes;
        for expert in event.experts {
            stack.renew(event.layer * n_expert + usize::from(*expert), size);
        }
    }
    (histogram.bins(), lookups, cold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_end_at_powers_of_two() {
        let mut histogram = Histogram::default();
        [1, 2, 3, 4, 5].into_iter().for_each(|distance| histogram.add(distance));
        let bins: Vec<_> = histogram.bins().iter().map(|b| (b.above, b.to, b.uses)).collect();
        assert_eq!(bins, [(0, 1, 1), (1, 2, 1), (2, 4, 2), (4, 8, 1)]);
    }
}
