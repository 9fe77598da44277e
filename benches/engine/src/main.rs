//! `bmoe-bench`

use std::path::PathBuf;
use std::process::ExitCode;

use bmoe_bench::data::{Folder, RUNS};
use bmoe_bench::error::BenchError;
use bmoe_bench::{measure, render};
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "bmoe-bench", about, version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure all contenders, interleaved (root, and a version 1 memory controller)
    Run(measure::Options),
    /// Make report.md from the data of a result folder
    Render {
        /// The result folder
        folder: PathBuf,
    },
}

fn run(cli: Cli) -> Result<(), BenchError> {
    match cli.command {
        Command::Run(options) => {
            measure::run(&options)?;
            if !options.dry_run {
                report(&options.out)?;
            }
            Ok(())
        }
        Command::Render { folder } => report(&folder),
    }
}

fn report(path: &std::path::Path) -> Result<(), BenchError> {
    let folder = Folder::at(path);
    let Some(environment) = folder.environment()? else {
        return Err(BenchError::Refused(format!(
            "{} has no results; make some with `cargo run -p bmoe-bench -- run --out {}`",
            path.display(),
            path.display()
        )));
    };
    let entries = folder.entries()?;
    let perf = folder.file(render::PERF).is_file();
    folder.write(render::REPORT, &render::report(&environment, &entries, perf))?;
    println!("{} (from {} lines of {RUNS})", folder.file(render::REPORT).display(), entries.len());
    Ok(())
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
