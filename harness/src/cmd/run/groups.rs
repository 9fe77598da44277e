//! The comparisons that a matrix names.

use std::path::Path;

use bmoe_analysis::cells::Cell;
use bmoe_analysis::compare::{Arm, Metric, compare, table};
use bmoe_analysis::measured::Measured;

use crate::error::Error;
use crate::matrix::{Group, Matrix};

/// Prints a table for each group.
pub(super) fn print(matrix: &Matrix, folder: &Path) -> Result<(), Error> {
    if matrix.groups.is_empty() {
        return Ok(());
    }
    let measured = Measured::read(folder)?;
    for group in &matrix.groups {
        let pairs = pairs(group, &measured, matrix.warmup_tokens);
        println!("{}: {}", group.name, Metric::TokS.about());
        if pairs.is_empty() {
            println!("  nothing of it has been measured\n");
        } else {
            println!("{}", table(&compare(&pairs, Metric::TokS)));
        }
    }
    Ok(())
}

/// Each member with the baseline of its model, that of the same prompt where there are several.
fn pairs<'a>(group: &Group, measured: &'a Measured, warmup: u32) -> Vec<(Arm<'a>, Arm<'a>)> {
    let warmup = usize::try_from(warmup).unwrap_or(usize::MAX);
    let (baselines, others): (Vec<Cell<'a>>, Vec<Cell<'a>>) =
        measured.cells().into_iter().partition(|cell| group.baseline.matches(cell.config));
    let mut pairs = Vec::new();
    for member in others.into_iter().filter(|cell| group.members.matches(cell.config)) {
        let of_model = || baselines.iter().filter(|b| b.model == member.model);
        let baseline = of_model()
            .find(|b| b.config.prompt == member.config.prompt)
            .or_else(|| of_model().next());
        if let Some(baseline) = baseline {
            let arm = |cell| Arm::new(measured, cell, warmup);
            pairs.push((arm(baseline.clone()), arm(member)));
        }
    }
    pairs
}
