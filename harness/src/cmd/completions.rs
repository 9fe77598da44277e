//! `bmoe completions`

use clap::CommandFactory;
use clap_complete::Shell;

use super::Cli;
use crate::error::Error;

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  bmoe completions bash > ~/.local/share/bash-completion/completions/bmoe"
)]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    clap_complete::generate(args.shell, &mut Cli::command(), "bmoe", &mut std::io::stdout());
    Ok(())
}
