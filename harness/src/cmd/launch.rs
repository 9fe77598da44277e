//! `bmoe launch`: becomes the engine, after making sure that it can't outlive the runner.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::error::Error;
use crate::runner::ExecutorError;

/// Become a program that is killed when the process that started it ends
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Process id of the runner
    parent: i32,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let failed = |what: &str, source: std::io::Error| ExecutorError { what: what.into(), source };
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| failed("its end cannot be tied to the runner's", e.into()))?;
    // A runner that ended before the line above sends no signal any more.
    if getppid().is_none_or(|pid| pid.as_raw_nonzero().get() != args.parent) {
        return Err(Error::Refused("the runner has ended; nothing is started".to_owned()));
    }
    let error = Command::new(&args.command[0]).args(&args.command[1..]).exec();
    Err(failed(&format!("{} does not start", args.command[0].display()), error).into())
}
