//! The engine as a program: what the harness starts, here or on a device.

mod cli;
mod options;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use bmoe_engine::run::{
    Engine, Lines, MetricsFile, RecordSink, RouteFile, RunOptions, TraceFile, generate,
};
use bmoe_engine::serve::serve;
use bmoe_engine::{EngineError, error};
use bmoe_trace::RunConfig;
use bmoe_trace::line::{ErrorLine, Line};
use clap::Parser;
use cli::Command;

fn main() -> ExitCode {
    let started = Instant::now();
    let command = cli::Cli::parse().command;
    match run(&command, started) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            if command.speaks_lines() {
                let id = serde_json::Value::Null;
                let line = Line::Error(ErrorLine { id, fatal: true, msg: e.to_string() });
                // Standard output may be what failed; the line below says it all the same.
                let _ = writeln!(std::io::stdout(), "{line}");
            }
            let _ = writeln!(std::io::stderr(), "error: {e}");
            ExitCode::from(e.exit_code())
        }
    }
}

fn run(command: &Command, started: Instant) -> Result<(), error::EngineError> {
    let config = command.run_config()?;
    let args = command.run();
    args.check_outputs()?;
    let stop = Arc::new(AtomicUsize::new(0));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_usize(signal, Arc::clone(&stop), signal as usize)
            .map_err(|e| EngineError::Config(format!("cannot listen for signals: {e}")))?;
    }
    let mut sinks: Vec<Box<dyn RecordSink>> =
        vec![Box::new(Lines::new(std::io::stdout(), command.speaks_lines()))];
    if let Some(path) = &args.trace {
        sinks.push(Box::new(TraceFile::new(path)));
    }
    if let Some(path) = &args.csv {
        sinks.push(Box::new(MetricsFile::new(path)));
    }
    if let Some(path) = &args.route_trace {
        sinks.push(Box::new(RouteFile::new(path)));
    }
    let mut sinks: Vec<&mut dyn RecordSink> = sinks.iter_mut().map(|s| &mut **s as _).collect();
    let options = RunOptions { started, verbose: args.verbose, poison: false, stop };
    match command {
        Command::Generate(_) => generate(&config, &options, &mut sinks).map(drop),
        Command::Session(_) => session(&config, &options, sinks),
    }
}

fn session(
    config: &RunConfig,
    options: &RunOptions,
    sinks: Vec<&mut dyn RecordSink>,
) -> Result<(), EngineError> {
    let mut engine = Engine::open(config, options, sinks)?;
    let result = serve(&mut engine, std::io::stdin(), &options.stop);
    if let Err(error) = &result {
        engine.fail(error);
    }
    let end = engine.close();
    result?;
    end.map(drop)
}
