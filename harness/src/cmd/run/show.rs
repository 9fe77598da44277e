//! What would be run.

use std::path::Path;

use crate::error::Error;
use crate::matrix::Schedule;
use crate::models::Located;
use crate::progress::mib;

pub(super) fn list(schedule: &Schedule) {
    for (i, cell) in schedule.cells.iter().enumerate() {
        let runs = schedule.runs.iter().filter(|run| run.cell == i).count();
        if runs > 0 {
            let baseline = if cell.baseline { "  (baseline)" } else { "" };
            println!("{}  {}: {}{baseline}  x {runs}", cell.id, cell.model, cell.name);
        }
    }
}

pub(super) fn dry_run(
    schedule: &Schedule,
    located: &[Located],
    engine: &Path,
    out: &Path,
) -> Result<(), Error> {
    println!("engine   {}", engine.display());
    println!("results  {}", out.display());
    for model in located {
        let what = match &model.recipe {
            Some(recipe) if !model.path.exists() => {
                format!("(would be made: {})", mib(recipe.plan()?.file_bytes))
            }
            Some(_) => "(there; would be checked)".to_owned(),
            None => "(there)".to_owned(),
        };
        println!("model    {} {} {what}", model.name, model.path.display());
    }
    for (i, planned) in schedule.runs.iter().enumerate() {
        let cell = &schedule.cells[planned.cell];
        let (id, repetition) = (&cell.id, planned.repetition);
        println!("{:>4}  {id} r{repetition}  {}: {}", i + 1, cell.model, cell.name);
    }
    println!("{} runs; nothing was run", schedule.runs.len());
    Ok(())
}
