//! The command line. Each command has a module with its arguments and a `run` function.

mod completions;
mod launch;
mod report;
mod run;
mod synth;

use clap::{Parser, Subcommand};

use crate::error::{EXIT_CODES, Error};

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
    Report(report::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Launch(launch::Args),
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
            Command::Report(args) => report::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::Launch(args) => launch::run(&args),
        }
    }
}
