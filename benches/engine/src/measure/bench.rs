//! One step after another.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bmoe_trace::RunConfig;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Options, now, told};
use crate::contender::{self, CEILING, Contender, Part, Records, Step, USUAL_READ_AHEAD_KIB};
use crate::data::{Ceiling, Entry, Environment, Folder, Run};
use crate::engine::{Ended, Engine, Job};
use crate::error::BenchError;
use crate::machine::{self, Disk, Group, Moment};
use crate::render::PERF;
use crate::{extract, model};

/// What a step needs.
pub(super) struct Bench<'a> {
    pub(super) options: &'a Options,
    pub(super) engine: Engine,
    pub(super) environment: Environment,
    pub(super) model: PathBuf,
    pub(super) disk: Disk,
    pub(super) stop: Arc<AtomicBool>,
}

/// What a step brought.
enum Found {
    Run(Box<Run>),
    Ceiling(Vec<Ceiling>),
    Profile,
}

impl Bench<'_> {
    /// Does them, a line in the log for each; `done` were done earlier.
    pub(super) fn steps(
        &self,
        steps: &[Step],
        done: usize,
        folder: &Folder,
    ) -> Result<(), BenchError> {
        let mut log = folder.append()?;
        let all = done + steps.len();
        let bar = ProgressBar::new(all as u64).with_position(done as u64);
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
            let entry = self.step(*step, folder)?;
            log.push(&entry)?;
            bar.inc(1);
            let line = told::line(&entry);
            if bar.is_hidden() {
                eprintln!("[{}/{all}] {line}", done + i + 1);
            } else {
                bar.println(line);
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn step(&self, step: Step, folder: &Folder) -> Result<Entry, BenchError> {
        let contender = contender::named(step.name);
        let limited = contender.is_none_or(|c| c.limited);
        let group = limited.then(|| Group::new(self.environment.settings.limit_mib)).transpose()?;
        let group = group.as_ref();
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
        let found = match contender {
            None => self.ceiling(step.round, group)?,
            Some(c) if c.part == Part::Profile => self.profile(c, group, folder)?,
            Some(c) => self.generate(c, step.round, group)?,
        };
        let noise = Moment::noise(&before, &Moment::now(), self.environment.machine.cores);
        let mut entry = Entry {
            name: step.name.to_owned(),
            round: step.round,
            started,
            noise,
            run: None,
            ceiling: None,
            failure: None,
        };
        match found {
            Ok(Found::Run(mut run)) => {
                run.peak_group_bytes = group.map_or(0, Group::peak_bytes);
                entry.run = Some(*run);
            }
            Ok(Found::Ceiling(rows)) => entry.ceiling = Some(rows),
            Ok(Found::Profile) => {}
            Err(failure) => {
                // Folders are nobody's business but this machine's.
                let parent = self.model.parent().map(|p| format!("{}/", p.display()));
                entry.failure = Some(failure.replace(&parent.unwrap_or_default(), ""));
            }
        }
        Ok(entry)
    }

    fn file(&self, name: &str, round: u32, suffix: &str) -> PathBuf {
        self.options.runs.join(format!("{name}-{round}.{suffix}"))
    }

    fn job<'j>(&'j self, args: Vec<OsString>, group: Option<&'j Group>, log: &'j Path) -> Job<'j> {
        let timeout = Duration::from_secs(self.options.timeout);
        Job { before: Vec::new(), args, group, log, listen: false, timeout, stop: &self.stop }
    }

    /// The engine's arguments for a contender; writes the files that they name.
    fn arguments(&self, contender: &Contender, round: u32) -> Result<Vec<OsString>, BenchError> {
        let (settings, model) = (&self.environment.settings, &self.environment.model);
        let mut config =
            RunConfig { model: self.model.clone(), ..contender.config(settings, model) };
        if contender.warm {
            let path = self.file("all-experts", 0, "json");
            fs::write(&path, model::all_experts(&settings.shape, settings.layers)?)
                .map_err(BenchError::io("write", &path))?;
            config.warm_profile = Some(path);
        }
        let path = self.file(contender.name, round, "toml");
        fs::write(&path, config.to_toml()).map_err(BenchError::io("write", &path))?;
        Ok(vec!["generate".into(), "--config".into(), path.into()])
    }

    /// One run; the inner error is the run's own.
    fn generate(
        &self,
        contender: &Contender,
        round: u32,
        group: Option<&Group>,
    ) -> Result<Result<Found, String>, BenchError> {
        let file = |suffix| self.file(contender.name, round, suffix);
        let mut args = self.arguments(contender, round)?;
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
        let listen = contender.part == Part::Telemetry;
        let ended = self.engine.run(Job { listen, ..self.job(args, group, &log) })?;
        if let Some(failure) = ended.failure {
            return Ok(Err(failure));
        }
        let run = if listen { heard(ended) } else { extract::trace(&trace)? };
        Ok(Ok(Found::Run(Box::new(run))))
    }

    /// Samples where a run's time goes, and puts that beside the results.
    fn profile(
        &self,
        contender: &Contender,
        group: Option<&Group>,
        folder: &Folder,
    ) -> Result<Result<Found, String>, BenchError> {
        let samples = self.file(contender.name, 0, "perf");
        let args = self.arguments(contender, 0)?;
        let mut before: Vec<OsString> =
            ["perf", "record", "-q", "-F", "499", "-o"].map(Into::into).into();
        before.extend([samples.clone().into(), "--".into()]);
        let log = self.file(contender.name, 0, "log");
        let ended = self.engine.run(Job { before, ..self.job(args, group, &log) })?;
        if let Some(failure) = ended.failure {
            return Ok(Err(failure));
        }
        let mut report = Command::new("perf");
        report.args(["report", "--stdio", "-q", "--percent-limit", "0.3", "--sort", "symbol"]);
        let output = report.arg("-i").arg(&samples).stdin(Stdio::null()).output();
        let output = output.map_err(BenchError::io("start", Path::new("perf")))?;
        let text = String::from_utf8_lossy(&output.stdout);
        // Behind the symbol come columns that nobody asked for.
        let cut = |line: &'_ str| line.trim().split("   ").next().unwrap_or_default().to_owned();
        let lines: Vec<String> = text.lines().map(cut).filter(|l| !l.is_empty()).collect();
        if lines.is_empty() {
            return Ok(Err("perf has no samples".into()));
        }
        let settings = &self.environment.settings;
        let label = contender.label(settings, self.environment.machine.read_ahead_kib);
        let head = format!(
            "Samples of the whole process, loading and prompt included: {label}, {} tokens.\n\n",
            contender.tokens(settings)
        );
        folder.write(PERF, &(head + &lines.join("\n") + "\n"))?;
        Ok(Ok(Found::Profile))
    }

    /// What the disk can do with reads of the model's slices.
    fn ceiling(
        &self,
        round: u32,
        group: Option<&Group>,
    ) -> Result<Result<Found, String>, BenchError> {
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
        Ok(Ok(Found::Ceiling(report.rows.iter().map(row).collect())))
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
