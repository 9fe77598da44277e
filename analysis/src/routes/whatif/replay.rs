//! A change in the loop with a cache.

use bmoe_cache::{Cache, EntrySizes};
use bmoe_trace::record::Phase;

use super::change::{Change, Choice};
use super::{WhatIfOptions, WhatIfRow};
use crate::routes::RouteTrace;
use crate::routes::tokens::part;

/// Replays a trace; the prompt stays as recorded, generated tokens are changed, and the cache sees the changed ones.
pub(super) fn replay(trace: &RouteTrace, options: &WhatIfOptions, change: Change) -> WhatIfRow {
    let bytes: Vec<u64> = trace.layers.iter().map(|layer| layer.expert_bytes).collect();
    let sizes = EntrySizes::new(&bytes, trace.n_expert);
    let policy = options.policy.build(&sizes, 0);
    let mut cache = Cache::new(sizes.clone(), options.budget_bytes, policy);
    let (mut read, mut hits, mut lookups) = (0, 0, 0);
    let (mut choices, mut experts) = (0, 0);
    let (mut lost, mut known, mut most) = (0.0, 0, 0.0_f64);
    let (mut instead, mut batch) = (Vec::new(), Vec::new());
    for event in trace.events() {
        if event.phase == Phase::Prefill {
            cache.event(event.layer, event.experts);
            continue;
        }
        batch.clear();
        let tokens = event.positions.len();
        for token in 0..tokens {
            let choice = Choice {
                experts: part(event.experts, token, tokens),
                weights: part(event.weights, token, tokens),
                scored: part(event.scored, token, tokens),
                scores: part(event.scores, token, tokens),
            };
            let resident = |expert: u16| cache.contains(sizes.key(event.layer, expert));
            if let Some(share) = change.choose(&choice, resident, &mut instead) {
                lost += share;
                known += 1;
                most = most.max(share);
            }
            choices += 1;
            experts += instead.len();
            batch.extend_from_slice(&instead);
        }
        let outcome = cache.event(event.layer, &batch);
        hits += outcome.hits.len();
        lookups += outcome.hits.len() + outcome.misses.len();
        read += outcome.misses.len() as u64 * bytes[event.layer];
    }
    WhatIfRow {
        change,
        read_bytes: read as f64 / trace.decode_tokens().max(1) as f64,
        saved: None,
        hits: (lookups > 0).then(|| hits as f64 / lookups as f64),
        experts: experts as f64 / f64::from(choices.max(1)),
        weight_lost: (known > 0).then(|| lost / f64::from(known)),
        most_lost: (known > 0).then_some(most),
    }
}
