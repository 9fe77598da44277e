//! The comparisons that a matrix names, on a terminal.

use std::path::Path;

use bmoe_analysis::compare::{Metric, compare, pair_named, table};
use bmoe_analysis::journal::read_groups;
use bmoe_analysis::measured::Measured;

use crate::error::Error;
use crate::say::say;

/// Prints a table for each group.
pub(super) fn print(folder: &Path, warmup_tokens: u32) -> Result<(), Error> {
    let groups = read_groups(folder)?;
    if groups.is_empty() {
        return Ok(());
    }
    let measured = Measured::read(folder)?;
    let warmup = usize::try_from(warmup_tokens).unwrap_or(usize::MAX);
    for group in groups {
        let pairs = pair_named(&group, &measured, warmup);
        say!("{}: {}", group.name, Metric::TokS.about());
        if pairs.is_empty() {
            say!("  nothing of it has been measured\n");
        } else {
            say!("{}", table(&compare(&pairs, Metric::TokS)));
        }
    }
    Ok(())
}
