//! `bmoe man`

use std::path::PathBuf;

use clap::CommandFactory;

use super::Cli;
use crate::atomic;
use crate::error::Error;

/// Write manual pages: one for bmoe, one for each command
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bmoe man --out ~/.local/share/man/man1 && man bmoe-run")]
pub(super) struct Args {
    /// The folder to write them to
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    std::fs::create_dir_all(&args.out).map_err(Error::io("make", &args.out))?;
    let mut program = Cli::command().disable_help_subcommand(true);
    // Names a command as it is called.
    program.build();
    write(&program, args)?;
    for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
        write(command, args)?;
    }
    Ok(())
}

fn write(command: &clap::Command, args: &Args) -> Result<(), Error> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = args.out.join(format!("{name}.1"));
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page).map_err(Error::io("write", &path))?;
    atomic::write(&path, &page).map_err(Error::io("write", &path))
}
