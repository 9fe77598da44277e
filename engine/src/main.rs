//! The engine as a program: what the harness starts, here or on a device.

mod cli;
mod cmd;
mod options;
mod outputs;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use bmoe_engine::EngineError;
use bmoe_engine::run::{
    Engine, Lines, MetricsFile, ProfileFile, RecordSink, RouteFile, RunOptions, TraceFile, generate,
};
use bmoe_engine::serve::serve;
use bmoe_trace::RunConfig;
use bmoe_trace::line::{ErrorLine, Line};
use cli::{Command, RunArgs};

fn main() -> ExitCode {
    let started = Instant::now();
    let (result, lines) = match &cli::Cli::read().command {
        Command::Device(command) => {
            (command.run().map_err(|e| EngineError::Config(e.to_string())), false)
        }
        Command::Generate(args) => {
            let lines = args.progress;
            let work = || {
                args.follow_parent()?;
                run(&args.run_config()?, &args.run, lines, started, once)
            };
            (work(), lines)
        }
        Command::Session(args) => {
            (args.run_config().and_then(|c| run(&c, &args.run, true, started, session)), true)
        }
        Command::Archs(args) => (print(&args.text()), false),
        Command::Completions(args) => (print(&args.text()), false),
        Command::Man(args) => (args.text().and_then(|page| print(&page)), false),
        Command::Iobench(args) => (stop_on_signals().and_then(|stop| args.run(&stop)), false),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            if lines {
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

/// Prints a text; a reader that went away is no error.
fn print(text: &str) -> Result<(), EngineError> {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(EngineError::Output { what: "standard output".into(), message: e.to_string() })
        }
        _ => Ok(()),
    }
}

/// Holds the number of the signal that asks the program to stop, 0 while there is none.
fn stop_on_signals() -> Result<Arc<AtomicUsize>, EngineError> {
    let stop = Arc::new(AtomicUsize::new(0));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_usize(signal, Arc::clone(&stop), signal as usize)
            .map_err(|e| EngineError::Config(format!("cannot listen for signals: {e}")))?;
    }
    Ok(stop)
}

/// What is done with a configuration and the places where its records go.
type Work = fn(&RunConfig, &RunOptions, &mut [&mut dyn RecordSink]) -> Result<(), EngineError>;

fn run(
    config: &RunConfig,
    args: &RunArgs,
    lines: bool,
    started: Instant,
    work: Work,
) -> Result<(), EngineError> {
    args.check_outputs()?;
    args.check_traces(config)?;
    bmoe_engine::flash::mapped::exit_when_cut_off()
        .map_err(|e| EngineError::Config(format!("cannot listen for signals: {e}")))?;
    let stop = stop_on_signals()?;
    let mut sinks: Vec<Box<dyn RecordSink>> = vec![Box::new(Lines::new(std::io::stdout(), lines))];
    if let Some(path) = &args.trace {
        sinks.push(Box::new(TraceFile::new(path)));
    }
    if let Some(path) = &args.csv {
        sinks.push(Box::new(MetricsFile::new(path)));
    }
    if let Some(path) = &args.route_trace {
        sinks.push(Box::new(RouteFile::new(path)));
    }
    if let Some(path) = &args.save_profile {
        sinks.push(Box::new(ProfileFile::new(path)));
    }
    let mut sinks: Vec<&mut dyn RecordSink> = sinks.iter_mut().map(|s| &mut **s as _).collect();
    let options = RunOptions { started, verbose: args.verbose, stop, ..RunOptions::default() };
    work(config, &options, &mut sinks)
}

fn once(
    config: &RunConfig,
    options: &RunOptions,
    sinks: &mut [&mut dyn RecordSink],
) -> Result<(), EngineError> {
    generate(config, options, sinks).map(drop)
}

fn session(
    config: &RunConfig,
    options: &RunOptions,
    sinks: &mut [&mut dyn RecordSink],
) -> Result<(), EngineError> {
    if config.replay_routes.is_some() {
        return Err(EngineError::Config(
            "`replay_routes` is of one prompt and its answer, no conversation; use bmoe-engine generate".into(),
        ));
    }
    let sinks = sinks.iter_mut().map(|sink| &mut **sink as &mut dyn RecordSink).collect();
    let mut engine = Engine::open(config, options, sinks)?;
    let result = serve(&mut engine, std::io::stdin(), &options.stop);
    if let Err(error) = &result {
        engine.fail(error);
    }
    let end = engine.close();
    result?;
    end.map(drop)
}
