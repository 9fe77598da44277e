//! What changes of the routing would save, and what of the router's weight they would lose.
//!
//! Every change here is **lossy**: another text comes out, and how good it is isn't measured. Each is replayed over
//! the recorded routes of the generated tokens; in a real run the routes after the first change would differ.

mod change;
mod replay;

use bmoe_cache::PolicyKind;
use bmoe_trace::record::Phase;
use serde::Serialize;

pub use change::Change;

use super::RouteTrace;
use super::views::{NO_SIZES, ViewError};
use crate::tabular::{Column, MIB, Table, Value};

/// The cache that the changes are replayed beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WhatIfOptions {
    /// Its policy.
    pub policy: PolicyKind,
    /// Its budget; 0 = no cache.
    pub budget_bytes: u64,
}

/// All changes on one trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WhatIf {
    /// The cache's policy.
    pub policy: String,
    /// The cache's budget.
    pub budget_bytes: u64,
    /// Experts per token.
    pub top_k: usize,
    /// Generated tokens.
    pub tokens: usize,
    /// The recorded routes, then the changes.
    pub rows: Vec<WhatIfRow>,
    /// What can't be asked of this trace, or not quite.
    pub remarks: Vec<String>,
}

/// One change.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WhatIfRow {
    /// The change.
    pub change: Change,
    /// Bytes read per generated token.
    pub read_bytes: f64,
    /// Share of the recorded routes' bytes that is saved.
    pub saved: Option<f64>,
    /// Hits over look-ups.
    pub hits: Option<f64>,
    /// Experts computed per token and layer.
    pub experts: f64,
    /// Mean share of a token's weight, in a layer, that is not computed or goes to other experts than the router's;
    /// `None` = the trace has no weights.
    pub weight_lost: Option<f64>,
    /// The largest such share of any token in any layer.
    pub most_lost: Option<f64>,
}

impl WhatIf {
    /// Replays all changes.
    ///
    /// # Errors
    /// The trace has no sizes, or no generated tokens.
    pub fn of(trace: &RouteTrace, options: &WhatIfOptions) -> Result<Self, ViewError> {
        if !trace.has_sizes() {
            return Err(NO_SIZES);
        }
        let decode = || trace.events().filter(|event| event.phase == Phase::Decode);
        if decode().next().is_none() {
            return Err(ViewError::NoTokens { phases: super::tokens::Phases::Decode });
        }
        let top_k = decode().map(|event| event.top_k()).max().unwrap_or(0);
        let has_weights = decode().any(|event| event.weights.iter().any(|w| w.is_finite()));
        let scored = |event: super::RouteEvent<'_>| event.scored.len() / event.positions.len();
        let most_scored = decode().map(scored).min().unwrap_or(0);

        let mut changes = vec![Change::None];
        changes.extend((1..top_k).rev().map(|experts| Change::Fewer { experts }));
        let mut remarks = Vec::new();
        if has_weights {
            let below = [0.25, 0.5, 0.75, 1.0];
            changes.extend(below.map(|share| Change::DropCold { share_of_even: share }));
        } else {
            remarks.push(
                "left out: dropping cold misses, since the trace holds no weights; weight lost is not known"
                    .to_owned(),
            );
        }
        if most_scored > top_k {
            changes.extend(change::max_rank_settings(top_k, most_scored));
        } else {
            remarks.push(format!(
                "left out: cache-aware routing, which needs the scores of more experts than the {top_k} chosen \
                 (--trace-scores M records them, M at least {})",
                2 * top_k
            ));
        }
        let by_number = |experts: &[u16]| experts.is_sorted();
        if !has_weights && top_k > 1 && decode().all(|event| by_number(event.experts)) {
            remarks.push(
                "the experts are in the order of their numbers, not of the router's choice: \"fewer\" drops those \
                 with high numbers"
                    .to_owned(),
            );
        }

        let mut rows: Vec<WhatIfRow> = Vec::new();
        for change in changes {
            let outcome = replay::replay(trace, options, change);
            let recorded = rows.first().map_or(outcome.read_bytes, |row| row.read_bytes);
            rows.push(WhatIfRow {
                change,
                saved: (recorded > 0.0).then(|| 1.0 - outcome.read_bytes / recorded),
                ..outcome
            });
        }
        let tokens = trace.decode_tokens();
        Ok(Self {
            policy: options.policy.to_string(),
            budget_bytes: options.budget_bytes,
            top_k,
            tokens,
            rows,
            remarks,
        })
    }

    /// As rows.
    #[must_use]
    pub fn table(&self) -> Table {
        let row = |row: &WhatIfRow| {
            vec![
                row.change.name().into(),
                row.change.setting(self.top_k).into(),
                Value::Number(row.experts, 2),
                Value::Number(row.read_bytes / MIB, 1),
                Value::percent(row.saved),
                Value::percent(row.hits),
                Value::maybe(row.weight_lost.map(|w| w * 100.0), 2),
                Value::percent(row.most_lost),
            ]
        };
        let beside = if self.budget_bytes == 0 {
            "without a cache".to_owned()
        } else {
            format!("cache {:.0} MiB, {}", self.budget_bytes as f64 / MIB, self.policy)
        };
        let lossy = "LOSSY: every change gives another text. Text quality is not measured, and the routes behind a \
                     change are replayed as recorded, where a real run's would differ.";
        let remarks = self.remarks.iter().cloned();
        Table {
            title: format!(
                "whatif: bytes saved against routing weight lost, {} generated tokens, top-{}, {beside}",
                self.tokens, self.top_k
            ),
            columns: vec![
                Column::text("change", "change"),
                Column::text("setting", "setting"),
                Column::number("experts", "experts"),
                Column::number("read_mib_token", "MiB/token"),
                Column::number("saved_pct", "saved, %"),
                Column::number("hit_pct", "hit %"),
                Column::number("weight_lost_pct", "weight lost, %"),
                Column::number("most_lost_pct", "at most, %"),
            ],
            rows: self.rows.iter().map(row).collect(),
            notes: std::iter::once(lossy.to_owned()).chain(remarks).collect(),
        }
    }
}
