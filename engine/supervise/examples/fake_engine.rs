//! Stands in for the engine: supervises as it does, and generates by the script `behaviour.sh` beside it.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use bmoe_supervise::command::DeviceCommand;
use bmoe_supervise::process::end_with_parent;
use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: DeviceCommand,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("--version") => {
            println!("fake-engine 1");
            ExitCode::SUCCESS
        }
        Some("generate") => {
            let parent = args.iter().skip_while(|arg| *arg != "--parent").nth(1);
            let parent = parent.expect("a supervisor").parse().expect("its process");
            end_with_parent(parent).expect("a parent that is there");
            let script = std::env::current_exe().unwrap().with_file_name("behaviour.sh");
            let error = Command::new("sh").arg(script).args(&args).exec();
            panic!("no shell: {error}");
        }
        _ => match Cli::parse().command.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(3)
            }
        },
    }
}
