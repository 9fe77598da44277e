//! The `bmoe` command: see `bmoe --help`.

use std::process::ExitCode;

use bmoe::cmd::Cli;
use clap::Parser;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is_told() {
                eprintln!("error: {error}");
            }
            error.exit_code()
        }
    }
}
