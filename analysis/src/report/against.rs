//! Which baseline a cell stands against, and how.

use std::collections::BTreeMap;

use bmoe_trace::RunConfig;

use crate::cells::Cell;
use crate::compare::{Arm, Metric, compare};
use crate::measured::Measured;
use crate::table::Against;

/// Every cell of a model against its baseline, by id: the one that generates the same text, or else the first.
/// The cells of one baseline are one table, and p is corrected for as many.
pub(super) fn baselines<'a>(
    cells: &[Cell<'a>],
    measured: &'a Measured,
) -> BTreeMap<&'a str, Against> {
    let baselines: Vec<&Cell<'a>> = cells.iter().filter(|c| c.baseline).collect();
    let mut found = BTreeMap::new();
    for baseline in &baselines {
        let own = |cell: &&Cell<'a>| {
            let same = baselines.iter().find(|b| text_of(b.config) == text_of(cell.config));
            !cell.baseline && same.or(baselines.first()).is_some_and(|b| b.id == baseline.id)
        };
        let arm = |cell: &Cell<'a>| Arm::new(measured, cell.clone(), 0);
        let pairs: Vec<(Arm<'a>, Arm<'a>)> = cells
            .iter()
            .filter(own)
            .map(|cell| (arm(baseline), arm(cell)))
            .filter(|(a, _)| !a.runs.is_empty())
            .collect();
        let both = compare(&pairs, Metric::TokS).into_iter().zip(compare(&pairs, Metric::MibToken));
        for ((_, cell), (tok_s, mib_token)) in pairs.iter().zip(both) {
            found.insert(cell.cell.id, Against { tok_s, mib_token });
        }
    }
    found
}

/// What decides the text of cells of one model.
fn text_of(config: &RunConfig) -> impl PartialEq + '_ {
    let c = config;
    let kernels = (c.ctx_tokens, c.ubatch_tokens);
    let routes = (c.n_expert_used, &c.replay_routes);
    (&c.prompt, c.n_predict, routes, kernels, c.chat, c.think, c.sampling)
}
