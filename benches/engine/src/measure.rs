//! `bmoe-bench run`

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use bmoe_trace::RunConfig;
use indicatif::{ProgressBar, ProgressStyle};

use crate::contender::{self, CEILING, Contender, Records, Step, USUAL_READ_AHEAD_KIB};
use crate::data::{Ceiling, ENVIRONMENT, Entry, Environment, Folder, Log, Run, Settings};
use crate::engine::{Ended, Engine, Job};
use crate::error::BenchError;
use crate::machine::{self, Disk, Group, Moment};
use crate::{extract, model};

/// Version of the result files.
const VERSION: u32 = 1;

/// Options of `bmoe-bench run`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Parts of --only: check, timed, layers, ceiling, telemetry; or names of contenders (--dry-run \
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
        limit_mib: options.limit_mb.unwrap_or(facts.file_bytes / 2 >> 20),
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
    let bench = Bench {
        options,
        has_iobench: engine.knows("iobench"),
        engine,
        environment,
        model: model_path,
        disk,
        stop,
    };
    bench.steps(&steps, folder.append()?)
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

struct Bench<'a> {
    options: &'a Options,
    engine: Engine,
    has_iobench: bool,
    environment: Environment,
    model: PathBuf,
    disk: Disk,
    stop: Arc<AtomicBool>,
}

impl Bench<'_> {
    fn steps(&self, steps: &[Step], mut log: Log) -> Result<(), BenchError> {
        let bar = ProgressBar::new(steps.len() as u64);
        bar.set_style(
            ProgressStyle::with_template("[{pos}/{len}] {wide_bar} {elapsed}, {eta} left  {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        let start = Instant::now();
        for (i, step) in steps.iter().enumerate() {
            let over = |limit| start.elapsed().as_secs() >= limit;
            if i > 0 && self.options.stop_after.is_some_and(over) {
                eprintln!("{} runs left; go on with --resume", steps.len() - i);
                break;
            }
            bar.set_message(format!("{}, repeat {}", step.name, step.round + 1));
            if step.name == CEILING && !self.has_iobench {
                bar.inc(1);
                continue;
            }
            let entry = self.step(*step)?;
            log.push(&entry)?;
            let line = told(&entry);
            if bar.is_hidden() {
                eprintln!("[{}/{}] {line}", i + 1, steps.len())
            } else {
                bar.println(line)
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn step(&self, step: Step) -> Result<Entry, BenchError> {
        let contender = contender::named(step.name);
        let limited = contender.is_none_or(|c| c.limited);
        let group = limited.then(|| Group::new(self.environment.settings.limit_mib)).transpose()?;
        let kib = match contender {
            Some(c) if c.own_read_ahead => self.environment.machine.read_ahead_kib,
            _ => USUAL_READ_AHEAD_KIB,
        };
        let _read_ahead = self.disk.with_read_ahead(kib)?;
        if contender.is_none_or(Contender::cold) {
            machine::drop_caches()?;
        }
        let started = now();
        let before = Moment::now();
        let mut entry = Entry {
            name: step.name.to_owned(),
            round: step.round,
            started,
            noise: crate::data::Noise::default(),
            run: None,
            ceiling: None,
            failure: None,
        };
        let result = match contender {
            Some(contender) => self.generate(contender, step.round, group.as_ref()).map(|run| {
                run.map(|mut run| {
                    run.peak_group_bytes = group.as_ref().map_or(0, Group::peak_bytes);
                    entry.run = Some(run);
                })
            }),
            None => self
                .ceiling(step.round, group.as_ref())
                .map(|found| found.map(|found| entry.ceiling = Some(found))),
        };
        if let Err(failure) = result? {
            // Folders are nobody's business but this machine's.
            let folder =
                self.model.parent().map(|p| format!("{}/", p.display())).unwrap_or_default();
            entry.failure = Some(failure.replace(&folder, ""));
        }
        entry.noise = Moment::noise(&before, &Moment::now(), self.environment.machine.cores);
        Ok(entry)
    }

    fn file(&self, name: &str, round: u32, suffix: &str) -> PathBuf {
        self.options.runs.join(format!("{name}-{round}.{suffix}"))
    }

    fn job<'j>(&'j self, args: Vec<OsString>, group: Option<&'j Group>, log: &'j Path) -> Job<'j> {
        let timeout = Duration::from_secs(self.options.timeout);
        Job { args, group, log, listen: false, timeout, stop: &self.stop }
    }

    /// One run; the inner error is the run's own.
    fn generate(
        &self,
        contender: &Contender,
        round: u32,
        group: Option<&Group>,
    ) -> Result<Result<Run, String>, BenchError> {
        let file = |suffix| self.file(contender.name, round, suffix);
        let (settings, model) = (&self.environment.settings, &self.environment.model);
        let config = RunConfig { model: self.model.clone(), ..contender.config(settings, model) };
        let config_path = file("toml");
        fs::write(&config_path, config.to_toml()).map_err(BenchError::io("write", &config_path))?;
        let mut args: Vec<OsString> =
            vec!["generate".into(), "--config".into(), config_path.into()];
        let trace = file("trace");
        let outputs: &[(&str, PathBuf)] = match contender.records {
            Records::Trace | Records::Layers => &[("--trace", trace.clone())],
            Records::TraceAndCsv => &[("--trace", trace.clone()), ("--csv", file("csv"))],
            Records::RouteCsv => &[("--route-trace", file("csv"))],
            Records::Nothing => &[],
        };
        for (option, path) in outputs {
            args.extend([(*option).into(), path.into()]);
        }
        let log = file("log");
        let listen = contender.part == contender::Part::Telemetry;
        let ended = self.engine.run(Job { listen, ..self.job(args, group, &log) })?;
        if let Some(failure) = ended.failure {
            return Ok(Err(failure));
        }
        if listen {
            return Ok(Ok(heard(ended)));
        }
        extract::trace(&trace).map(Ok)
    }

    /// What the disk can do with reads of the model's slices.
    fn ceiling(
        &self,
        round: u32,
        group: Option<&Group>,
    ) -> Result<Result<Vec<Ceiling>, String>, BenchError> {
        let json = self.file(CEILING, round, "json");
        let lanes = self.environment.settings.lanes.to_string();
        let mut args: Vec<OsString> = vec!["iobench".into(), "--from-model".into()];
        args.push(self.model.clone().into());
        args.extend(["--lanes", &lanes, "--io-engine", "pread", "--json"].map(Into::into));
        args.push(json.clone().into());
        let log = self.file(CEILING, round, "log");
        if let Some(failure) = self.engine.run(self.job(args, group, &log))?.failure {
            return Ok(Err(failure));
        }
        let text = fs::read(&json).map_err(BenchError::io("read", &json))?;
        let report: IoBench =
            serde_json::from_slice(&text).map_err(|e| BenchError::data(&json, e))?;
        let row = |r: &Row| Ceiling { bytes: r.piece_bytes, lanes: r.lanes, mib_s: r.median_mib_s };
        Ok(Ok(report.rows.iter().map(row).collect()))
    }
}

/// What is used of `iobench --json`.
#[derive(serde::Deserialize)]
struct IoBench {
    rows: Vec<Row>,
}

#[derive(serde::Deserialize)]
struct Row {
    piece_bytes: u64,
    lanes: u32,
    median_mib_s: f64,
}

/// A run that was listened to: each token's text comes just before its step, and a line's end after the last.
fn heard(ended: Ended) -> Run {
    let since = |pair: &[Instant]| (pair[1] - pair[0]).as_nanos() as u64;
    Run {
        text: ended.text.strip_suffix('\n').unwrap_or(&ended.text).to_owned(),
        arrivals_ns: ended.arrivals.windows(2).map(since).collect(),
        ..Run::default()
    }
}

/// One line for people.
fn told(entry: &Entry) -> String {
    let what = match (&entry.failure, &entry.run, &entry.ceiling) {
        (Some(failure), _, _) => format!("failed: {failure}"),
        (_, Some(run), _) => {
            let wall =
                if run.steps.wall_ns.is_empty() { &run.arrivals_ns } else { &run.steps.wall_ns };
            let seconds = wall.iter().sum::<u64>() as f64 / 1e9;
            format!(
                "{} tokens, {:.2} tok/s, load {:.2} s",
                wall.len(),
                wall.len() as f64 / seconds,
                run.load_ns as f64 / 1e9
            )
        }
        (_, _, Some(rows)) => {
            let rows = rows
                .iter()
                .map(|r| format!("{:.0} KiB {:.0} MiB/s", r.bytes as f64 / 1024.0, r.mib_s));
            rows.collect::<Vec<_>>().join(", ")
        }
        (None, None, None) => String::new(),
    };
    let noise = if entry.noise.others_at_work() {
        format!(
            " (others at work: {:.2} cores, {:.1} % stolen)",
            entry.noise.others_cores,
            100.0 * entry.noise.steal_share
        )
    } else {
        String::new()
    };
    format!("{}, repeat {}: {what}{noise}", entry.name, entry.round + 1)
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
