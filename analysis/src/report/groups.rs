//! The comparisons that the matrix names.

use crate::cells::Cell;
use crate::compare::{Arm, Metric, compare};
use crate::measured::Measured;
use crate::result_set::NamedGroup;
use crate::table::Against;

/// Every group with those of its pairs that have been measured; p is corrected within each.
pub(super) fn compared(
    groups: &[NamedGroup],
    cells: &[Cell<'_>],
    measured: &Measured,
) -> Vec<(String, Vec<Against>)> {
    let arm = |id: &str| {
        let cell = cells.iter().find(|cell| cell.id == id)?;
        Some(Arm::new(measured, cell.clone(), 0)).filter(|arm| !arm.runs.is_empty())
    };
    let of_group = |group: &NamedGroup| {
        let pairs: Vec<_> = group
            .pairs
            .iter()
            .filter_map(|pair| Some((arm(&pair.baseline)?, arm(&pair.member)?)))
            .collect();
        let both = compare(&pairs, Metric::TokS).into_iter().zip(compare(&pairs, Metric::MibToken));
        let against = both.map(|(tok_s, mib_token)| Against { tok_s, mib_token });
        (group.name.clone(), against.collect())
    };
    groups.iter().map(of_group).collect()
}
