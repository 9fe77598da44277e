//! What would be run.

use std::path::Path;

use super::super::doctor::{file_bytes, is_staged};
use super::estimate::Estimate;
use crate::error::Error;
use crate::matrix::{Matrix, Schedule};
use crate::models::{self, Located};
use crate::progress::mib;
use crate::say::say;
use crate::target::Target;

pub(super) fn list(matrix: &Matrix, schedule: &Schedule) {
    for (i, cell) in schedule.cells.iter().enumerate() {
        let runs = schedule.runs.iter().filter(|run| run.cell == i).count();
        if runs > 0 {
            let baseline = if cell.baseline { "  (baseline)" } else { "" };
            say!("{}  {}: {}{baseline}  x {runs}", cell.id, cell.model, cell.name);
        }
    }
    for group in &matrix.groups {
        let (baselines, members) = group.split(&schedule.cells);
        let ids = |cells: &[&crate::matrix::Cell]| -> String {
            cells.iter().map(|cell| cell.id.as_str()).collect::<Vec<_>>().join(" ")
        };
        say!("group {}: {} against {}", group.name, ids(&members), ids(&baselines));
    }
}

/// `places` are the targets with their engines.
pub(super) fn dry_run(
    matrix: &Matrix,
    schedule: &Schedule,
    located: &[Located],
    places: &[(&dyn Target, &Path)],
    out: &Path,
) -> Result<(), Error> {
    for (target, engine) in places {
        let named =
            if places.len() > 1 { format!(" for {}", target.name()) } else { String::new() };
        say!("engine   {}{named}", engine.display());
    }
    say!("results  {}", out.display());
    for model in located {
        let what = match &model.recipe {
            Some(recipe) if !model.path.exists() => {
                format!("(would be made: {})", mib(recipe.plan()?.file_bytes))
            }
            Some(_) => "(there; would be checked)".to_owned(),
            None => "(there)".to_owned(),
        };
        say!("model    {} {} {what}", model.name, model.path.display());
    }
    for (target, engine) in places.iter().filter(|(target, _)| target.name() != "local") {
        say!("push     {} to {}", mib(bytes_to_push(*target, engine, located)?), target.name());
    }
    for (i, planned) in schedule.runs.iter().enumerate() {
        let cell = &schedule.cells[planned.cell];
        let (id, repetition) = (&cell.id, planned.repetition);
        say!("{:>4}  {id} r{repetition}  {}: {}", i + 1, cell.model, cell.name);
    }
    if matrix.warmup_runs > 0 {
        say!("      and {} warm-up runs of each model before them", matrix.warmup_runs);
    }
    say!("time     {}", Estimate::of(schedule, out));
    say!("{} runs; nothing was run", schedule.runs.len());
    Ok(())
}

/// What a device lacks of the files that the runs need.
fn bytes_to_push(target: &dyn Target, engine: &Path, located: &[Located]) -> Result<u64, Error> {
    let mut bytes = if is_staged(target, engine)? { 0 } else { file_bytes(engine) };
    for model in located {
        bytes += match &model.recipe {
            Some(recipe) if !model.path.exists() => recipe.plan()?.file_bytes,
            _ if is_staged(target, &model.path)? => 0,
            _ => models::files(&model.path).iter().map(|file| file_bytes(file)).sum(),
        };
    }
    Ok(bytes)
}
