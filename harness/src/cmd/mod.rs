//! The command line. Each command has a module with its arguments and a `run` function.

mod ask;
mod chat;
mod clean;
mod compare;
mod completions;
mod device;
mod devices;
mod doctor;
mod import;
mod man;
mod predict;
mod refine;
mod report;
mod routes;
mod run;
mod simulate;
mod synth;
mod tune;
mod view;
mod whatif;

use std::ops::ControlFlow;
use std::path::Path;

use bmoe_synth::SynthError;
use clap::{Parser, Subcommand};

use crate::error::{EXIT_CODES, Error};
use crate::models::{self, Made, ModelError, Recipe, Replace};
use crate::progress::Bytes;
use crate::runner::Interrupt;

/// Streams mixture-of-experts models from flash, measures it, and renders the results.
#[derive(Debug, Parser)]
#[command(name = "bmoe", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Synth(synth::Args),
    Run(run::Args),
    Refine(refine::Args),
    Tune(tune::Args),
    Report(report::Args),
    Import(import::Args),
    Simulate(simulate::Args),
    Routes(routes::Args),
    Predict(predict::Args),
    Whatif(whatif::Args),
    Compare(compare::Args),
    View(view::Args),
    Chat(chat::Args),
    Devices(devices::Args),
    Doctor(doctor::Args),
    Clean(clean::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Cli {
    /// Does what the command line says.
    ///
    /// # Errors
    /// The command did not do all of its work; the error has the exit code.
    pub fn run(self) -> Result<(), Error> {
        match self.command {
            Command::Synth(args) => synth::run(&args),
            Command::Run(args) => run::run(&args),
            Command::Refine(args) => refine::run(&args),
            Command::Tune(args) => tune::run(&args),
            Command::Report(args) => report::run(&args),
            Command::Import(args) => import::run(&args),
            Command::Simulate(args) => simulate::run(&args),
            Command::Routes(args) => routes::run(&args),
            Command::Predict(args) => predict::run(&args),
            Command::Whatif(args) => whatif::run(&args),
            Command::Compare(args) => compare::run(&args),
            Command::View(args) => view::run(&args),
            Command::Chat(args) => chat::run(&args),
            Command::Devices(args) => devices::run(&args),
            Command::Doctor(args) => doctor::run(&args),
            Command::Clean(args) => clean::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::Man(args) => man::run(&args),
        }
    }
}

/// Makes a model while a person watches; Ctrl-C ends it and leaves nothing of it.
fn make_model(
    recipe: &Recipe,
    path: &Path,
    replace: Replace,
    interrupt: &Interrupt,
) -> Result<Made, Error> {
    let mut bar = Bytes::new("making", path, recipe.plan()?.file_bytes);
    let made = models::make(recipe, path, replace, &mut |done| {
        bar.at(done.written_bytes);
        if interrupt.signal().is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    match &made {
        Ok(Made::Written(_)) => bar.done(),
        Ok(Made::Kept { .. }) | Err(_) => bar.clear(),
    }
    made.map_err(|error| match (error, interrupt.signal()) {
        (ModelError::Synth(SynthError::Stopped { .. }), Some(signal)) => {
            Error::Interrupted { signal, what: format!("; nothing is left of {}", path.display()) }
        }
        (error, _) => error.into(),
    })
}
