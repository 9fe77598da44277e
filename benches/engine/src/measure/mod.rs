//! `bmoe-bench run`

mod bench;
mod told;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use bench::Bench;

use crate::contender::{self, CEILING, Step};
use crate::data::{ENVIRONMENT, Environment, Folder, Settings};
use crate::engine::Engine;
use crate::error::BenchError;
use crate::machine::{self, Disk};
use crate::model;

/// Version of the result files.
const VERSION: u32 = 1;

/// Options of `bmoe-bench run`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Parts of --only: check, timed, layers, ceiling, telemetry, profile; or names of contenders (--dry-run \
    lists them).\n\nThe machine has to be quiet. Results are marked when others were at work."
)]
pub struct Options {
    /// Layers of the model
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub layers: u32,
    /// Its shape
    #[arg(long, value_name = "NAME", default_value = "qwen3-30b-a3b")]
    pub shape: String,
    /// Repeats of everything that is timed
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub repeats: u32,
    /// Tokens to generate
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub tokens: u32,
    /// Cache in MiB [default: 125 for each layer]
    #[arg(long, value_name = "MIB")]
    pub cache_mb: Option<u64>,
    /// Memory limit in MiB [default: half of the model's size]
    #[arg(long, value_name = "MIB")]
    pub limit_mb: Option<u64>,
    /// Compute threads
    #[arg(short, long, value_name = "N", default_value_t = 2)]
    pub threads: u32,
    /// Read lanes
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub io_threads: u32,
    /// Result folder
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Only these parts or contenders
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Go on with results that are there
    #[arg(long)]
    pub resume: bool,
    /// After so many seconds begin nothing new (go on later with --resume); 0 = one run
    #[arg(long, value_name = "S")]
    pub stop_after: Option<u64>,
    /// Show what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// The engine [default: bmoe-engine beside this program]
    #[arg(long, value_name = "FILE")]
    pub engine: Option<PathBuf>,
    /// Where models are, and are made
    #[arg(long, value_name = "FOLDER", default_value = "models")]
    pub models: PathBuf,
    /// Where the traces go
    #[arg(long, value_name = "FOLDER", default_value = "runs/bench")]
    pub runs: PathBuf,
    /// Longest time of one run
    #[arg(long, value_name = "S", default_value_t = 900)]
    pub timeout: u64,
}

/// Measures what is not in the result folder yet.
///
/// # Errors
/// The machine or the folder doesn't allow it, or a signal ended it. A run that fails is recorded as such and the
/// others go on.
pub fn run(options: &Options) -> Result<(), BenchError> {
    for name in &options.only {
        let known = name == CEILING
            || contender::CONTENDERS.iter().any(|c| c.name == name || c.part.name() == name);
        if !known {
            return Err(BenchError::Refused(format!(
                "--only {name}: no such part or contender; --dry-run lists them"
            )));
        }
    }
    let facts = model::facts(&options.shape, options.layers)?;
    let settings = Settings {
        tokens: options.tokens,
        repeats: options.repeats,
        cache_mib: options.cache_mb.unwrap_or(125 * u64::from(options.layers)),
        limit_mib: options.limit_mb.unwrap_or((facts.file_bytes / 2) >> 20),
        threads: options.threads,
        lanes: options.io_threads,
        shape: options.shape.clone(),
        layers: options.layers,
    };
    let mut steps = contender::steps(&settings, &options.only);
    let folder = Folder::at(&options.out);
    let earlier = folder.environment()?;
    if earlier.is_some() && !options.resume && !options.dry_run {
        return Err(BenchError::Refused(format!(
            "{} has results already; give --resume to go on, or another folder",
            options.out.display()
        )));
    }
    let done = folder.entries()?;
    let all = steps.len();
    steps.retain(|s| !done.iter().any(|e| e.name == s.name && e.round == s.round));
    if options.dry_run {
        for Step { name, round } in &steps {
            println!("{name}, repeat {}", round + 1);
        }
        println!(
            "{} runs to do, {} done; model {} ({} MiB), limit {} MiB, cache {} MiB",
            steps.len(),
            done.len(),
            facts.file,
            facts.file_bytes >> 20,
            settings.limit_mib,
            settings.cache_mib
        );
        return Ok(());
    }

    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(BenchError::io("watch signals for", &options.out))?;
    }
    let engine = Engine::find(options.engine.as_deref())?;
    let model_path = model::make(&facts, &options.models)?;
    let disk = Disk::below(&model_path)?;
    let environment = Environment {
        version: VERSION,
        started: now(),
        engine: engine.version.clone(),
        commit: commit(),
        engine_sha256: engine.sha256.clone(),
        machine: machine::facts(&disk),
        model: facts,
        settings,
    };
    let environment = match earlier {
        Some(earlier) => same(earlier, &environment, &options.out)?,
        None => {
            let text = serde_json::to_string_pretty(&environment)
                .map_err(|e| BenchError::data(&folder.file(ENVIRONMENT), e))?;
            folder.write(ENVIRONMENT, &(text + "\n"))?;
            environment
        }
    };
    fs::create_dir_all(&options.runs).map_err(BenchError::io("make", &options.runs))?;
    let bench = Bench { options, engine, environment, model: model_path, disk, stop };
    bench.steps(&steps, all - steps.len(), &folder)
}

/// Results of two engines, models or settings don't mix.
fn same(earlier: Environment, now: &Environment, out: &Path) -> Result<Environment, BenchError> {
    let refused = |what: &str| {
        let message = format!("{} was measured with {what}; give another folder", out.display());
        Err(BenchError::Refused(message))
    };
    if earlier.engine_sha256 != now.engine_sha256 {
        return refused(&format!("another build of the engine (commit {})", earlier.commit));
    }
    if earlier.settings != now.settings || earlier.model != now.model {
        return refused("other settings");
    }
    if earlier.machine != now.machine {
        return refused("another machine, or another readahead of its disk");
    }
    Ok(earlier)
}

fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Commit of the sources that this was built from.
fn commit() -> String {
    let folder = env!("CARGO_MANIFEST_DIR");
    let args = ["-C", folder, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"];
    let output = Command::new("git").args(args).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    text.ok().filter(|t| !t.is_empty()).unwrap_or_else(|| "unknown".into())
}
