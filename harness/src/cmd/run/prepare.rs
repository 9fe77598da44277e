//! What is checked and made before the first run.

use std::path::Path;

use bmoe_analysis::result_set::{Environment, ModelFile};

use super::super::make_model;
use crate::engine;
use crate::environment::{self, Machine, NoAnswer};
use crate::error::Error;
use crate::matrix::{Schedule, Selection};
use crate::models::{self, Identity, Located, Replace};
use crate::progress::Bytes;
use crate::runner::{Interrupt, signal_name};

pub(super) fn select(schedule: Schedule, filter: Option<&str>) -> Result<Schedule, Error> {
    let Some(filter) = filter else { return Ok(schedule) };
    let selection = Selection::new(filter).map_err(|e| {
        Error::Refused(format!("--filter {filter:?} is no regular expression: {e}"))
    })?;
    let names: Vec<_> =
        schedule.cells.iter().map(|c| format!("  {}: {}", c.model, c.name)).collect();
    let selected = schedule.select(&selection);
    if selected.runs.is_empty() {
        return Err(Error::Refused(format!(
            "--filter {filter:?} selects no cell; the cells are\n{}",
            names.join("\n")
        )));
    }
    Ok(selected)
}

/// Refuses cells that want more experts per token than their model has, where that is known before it is
/// made.
pub(super) fn check_experts(schedule: &Schedule, located: &[Located]) -> Result<(), Error> {
    for model in located {
        let Some(experts) = model.recipe.as_ref().map(|r| r.shape.dims.experts) else { continue };
        let cells = schedule.runs.iter().map(|run| &schedule.cells[run.cell]);
        for cell in cells.filter(|c| c.model == model.name) {
            let wanted = cell.config.n_expert_used;
            if wanted > experts {
                return Err(Error::Refused(format!(
                    "the cell \"{}\" has `n_expert_used = {wanted}`, but the model `{}` has {experts} \
                     experts a layer; expected {experts} or less, or 0 for the model's own top-k",
                    cell.name, model.name
                )));
            }
        }
    }
    Ok(())
}

/// Profiles and route traces are beside the matrix file, as models are.
pub(super) fn find_files(schedule: &mut Schedule, folder: &Path) -> Result<(), Error> {
    for run in &schedule.runs {
        let cell = &schedule.cells[run.cell];
        let named = [
            (&cell.config.warm_profile, "profile", "an engine's --save-profile writes one"),
            (
                &cell.config.replay_routes,
                "route trace",
                "an engine's --route-trace or --trace writes one",
            ),
        ];
        for (file, what, origin) in named {
            let Some(path) = file.as_ref().map(|file| folder.join(file)) else { continue };
            std::fs::File::open(&path).map_err(|e| {
                Error::Refused(format!(
                    "the cell \"{}\" needs the {what} {}, which cannot be opened: {e} ({origin})",
                    cell.name,
                    path.display()
                ))
            })?;
        }
    }
    for file in schedule.cells.iter_mut().flat_map(|cell| cell.config.files_mut()) {
        *file = folder.join(&*file);
    }
    Ok(())
}

/// An engine that doesn't even tell its version in time would waste every run's time limit.
pub(super) fn engine_version(
    engine: &Path,
    interrupt: &Interrupt,
) -> Result<Option<String>, Error> {
    environment::engine_version(engine, &|| interrupt.signal().is_some()).map_err(
        |no_answer| match (no_answer, interrupt.signal()) {
            (NoAnswer::Stopped, Some(signal)) => {
                Error::Interrupted { signal, what: "; nothing was run".to_owned() }
            }
            _ => Error::Refused(format!(
                "the engine {} did not answer `--version` within {} s and was killed; expected \
                 bmoe-engine or a program like it: see --engine and $BMOE_ENGINE",
                engine.display(),
                environment::ANSWER_LIMIT.as_secs()
            )),
        },
    )
}

/// Makes the synthetic models that are missing.
pub(super) fn make_models(located: &[Located], interrupt: &Interrupt) -> Result<(), Error> {
    for model in located {
        if let Some(recipe) = &model.recipe {
            make_model(recipe, &model.path, Replace::Synthetic, interrupt)?;
        }
    }
    Ok(())
}

/// A file or model with its hashes, with a bar; a first time takes a while.
pub(super) fn identify(path: &Path, interrupt: &Interrupt) -> Result<Identity, Error> {
    let bytes = models::Identity::new(path, None)?.bytes();
    let mut bar = Bytes::new("hashing", path, bytes);
    let identity = models::hash(path, &mut |done| {
        bar.at(done);
        if let Some(signal) = interrupt.signal() {
            eprintln!("\nerror: interrupted by {}; nothing was run", signal_name(signal));
            std::process::exit(128 + signal);
        }
    })?;
    bar.done();
    Ok(identity)
}

/// The models of a matrix, hashed.
pub(super) fn describe_models(
    located: &[Located],
    interrupt: &Interrupt,
) -> Result<Vec<ModelFile>, Error> {
    let mut files = Vec::new();
    for model in located {
        let identity = identify(&model.path, interrupt)?;
        files.push(ModelFile {
            name: model.name.clone(),
            file: model.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            file_bytes: identity.bytes(),
            sha256: identity.sha256.unwrap_or_default(),
            synth_shape: model.recipe.as_ref().map(|recipe| recipe.shape.name.clone()),
        });
    }
    Ok(files)
}

/// This machine, and what is the same for all targets.
pub(super) fn describe_this_machine(located: &[Located]) -> Result<Environment, Error> {
    let storage = located.first().and_then(|m| m.path.canonicalize().ok()).unwrap_or_default();
    let own = engine::own_path()?;
    Ok(Environment {
        cores: environment::cores(),
        bmoe_commit: own.parent().and_then(environment::commit),
        started: Some(environment::now()),
        ..Machine::here().environment(&storage)
    })
}
