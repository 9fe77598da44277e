//! The comparisons that the matrix names.

use crate::compare::{Metric, compare, pair_named};
use crate::measured::Measured;
use crate::result_set::NamedGroup;
use crate::table::Against;

/// Every group with those of its pairs that have been measured; p is corrected within each.
pub(super) fn compared(groups: &[NamedGroup], measured: &Measured) -> Vec<(String, Vec<Against>)> {
    let of_group = |group: &NamedGroup| {
        let pairs = pair_named(group, measured, 0);
        let both = compare(&pairs, Metric::TokS).into_iter().zip(compare(&pairs, Metric::MibToken));
        let against = both.map(|(tok_s, mib_token)| Against { tok_s, mib_token });
        (group.name.clone(), against.collect())
    };
    groups.iter().map(of_group).collect()
}
