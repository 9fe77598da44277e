//! The `bmoe` command: see `bmoe --help`.

use std::io::Write as _;
use std::process::ExitCode;

use bmoe::cmd::Cli;
use clap::Parser;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is_told() {
                // A terminal that is gone can't be told.
                let _ = writeln!(std::io::stderr(), "error: {error}");
            }
            error.exit_code()
        }
    }
}
