//! `bmoe doctor`

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::adb::Server;
use crate::doctor::{self, Check, Plan, State};
use crate::environment::Machine;
use crate::error::Error;
use crate::facts::{self, Facts};
use crate::say::say;
use crate::target::{self, AdbTarget, Command, HOME, Target, TargetError, TargetName};
use crate::{engine, models};

/// Check that a target has what a run needs, and say how to mend what is missing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each line is ok, a note (worth knowing), a warning (runs work, what they measure suffers) or a miss
(runs don't work), and says what to do. The exit code is 3 when something is missing.

Examples:
  bmoe doctor
  bmoe doctor --target adb --model models/qwen3-30b-a3b.gguf
  bmoe doctor --target adb:192.168.1.20:41321 --json")]
pub(super) struct Args {
    /// `local`, `adb`, `adb:SERIAL` or `adb:HOST:PORT`
    #[arg(long, value_name = "TARGET", default_value_t)]
    target: TargetName,
    /// A model that there should be room for
    #[arg(long, value_name = "FILE")]
    model: Vec<PathBuf>,
    /// The engine to run [default: the best one that is built for the target]
    #[arg(long, value_name = "PATH", env = "BMOE_ENGINE")]
    engine: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// The answer as JSON.
#[derive(Debug, Serialize)]
struct Report {
    target: String,
    what: Option<String>,
    checks: Vec<Check>,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let report = match &args.target {
        TargetName::Local => local(args)?,
        device => behind_adb(device, args)?,
    };
    if args.json {
        say!("{}", serde_json::to_string_pretty(&report).expect("a report is JSON"));
    } else {
        say!("{}: {}", report.target, report.what.as_deref().unwrap_or("cannot be used"));
        report.checks.iter().for_each(|check| print!("{}", doctor::lines(check)));
    }
    match report.checks.iter().filter(|check| check.state == State::Missing).count() {
        0 => Ok(()),
        n => Err(Error::Refused(format!(
            "{n} of {} things that a run needs {} missing on {}",
            report.checks.len(),
            if n == 1 { "is" } else { "are" },
            report.target
        ))),
    }
}

fn local(args: &Args) -> Result<Report, Error> {
    let here = Path::new(".");
    let facts = facts::gather(&*target::open(&TargetName::Local, false)?, Some(here))?;
    let engine = engine::find(args.engine.as_deref());
    let engine = engine
        .map(|path| engine::DeviceEngine { path, variant: None, better: None })
        .map_err(|error| error.to_string());
    let folder = args.model.first().and_then(|model| model.parent()).unwrap_or(here);
    let folder = if folder.as_os_str().is_empty() { here } else { folder };
    let storage = folder.canonicalize().map(|path| Machine::here().storage(&path));
    let plan = Plan {
        engine: Some(engine),
        needed_bytes: 0,
        direct_io: takes_direct_io(folder),
        read_ahead_kib: storage.ok().and_then(|storage| storage.read_ahead_kib),
    };
    let mut checks = missing_models(&args.model);
    checks.extend(doctor::checks(&facts, &plan));
    Ok(Report { target: args.target.to_string(), what: Some(facts.headline()), checks })
}

fn behind_adb(name: &TargetName, args: &Args) -> Result<Report, Error> {
    let mut report = Report { target: name.to_string(), what: None, checks: Vec::new() };
    let server = Server::from_environment().and_then(|server| server.start().map(|()| server));
    let server = match server {
        Ok(server) => server,
        Err(error) => {
            let mend = "install Android's platform-tools (Debian: apt-get install adb); `adb start-server` says more";
            report.checks.push(Check::bad("adb", State::Missing, error.to_string(), mend));
            return Ok(report);
        }
    };
    report.checks.push(Check::ok("adb", format!("the server at {} answers", server.address())));
    let target = match AdbTarget::connect(server, name) {
        Ok(target) => target,
        Err(TargetError::Unusable { target, reason, remedy }) => {
            report.target = target;
            report.checks.push(Check::bad("device", State::Missing, reason, remedy));
            return Ok(report);
        }
        Err(error) => return Err(error.into()),
    };
    report.target = target.name().to_owned();
    report.checks.push(Check::ok("device", "allowed and online"));
    let facts = facts::gather(&target, None)?;
    report.what = Some(facts.headline());
    report.checks.extend(missing_models(&args.model));
    let engine = device_engine(args.engine.as_deref(), &facts);
    let sent = engine.as_ref().ok().map(|engine| file_bytes(&engine.path)).unwrap_or_default();
    let mut needed_bytes = sent;
    for model in &args.model {
        if !is_staged(&target, model)? {
            needed_bytes += models::files(model).iter().map(|file| file_bytes(file)).sum::<u64>();
        }
    }
    let plan = Plan { engine: Some(engine), needed_bytes, ..Plan::default() };
    report.checks.extend(doctor::checks(&facts, &plan));
    Ok(report)
}

fn device_engine(given: Option<&Path>, facts: &Facts) -> Result<engine::DeviceEngine, String> {
    let abi = facts.abi().unwrap_or("unknown");
    engine::device_builds()
        .and_then(|builds| engine::for_device(given, &builds, abi, &facts.cpu_features))
        .map_err(|error| error.to_string())
}

fn missing_models(given: &[PathBuf]) -> Vec<Check> {
    let files = given.iter().flat_map(|model| models::files(model));
    files
        .filter_map(|file| {
            let error = std::fs::File::open(&file).err()?;
            let found = format!("{} cannot be opened: {error}", file.display());
            Some(Check::bad("model", State::Missing, found, "`bmoe synth` makes models"))
        })
        .collect()
}

/// Whether a model is on the device already. One that was never hashed was never sent.
pub(super) fn is_staged(target: &dyn Target, model: &Path) -> Result<bool, Error> {
    let Some(sha256) = models::Identity::load(model).and_then(|identity| identity.sha256) else {
        return Ok(false);
    };
    let manifest = Path::new(HOME).join("files").join(&sha256[..16]).join("manifest");
    let mut words: Vec<std::ffi::OsString> = vec!["test".into(), "-f".into()];
    words.push(manifest.into());
    let command = Command::new(words, Duration::from_secs(30));
    let finished = target.exec(&command, &mut |_| std::ops::ControlFlow::Continue(()))?;
    Ok(finished.exit == Some(crate::runner::Exit::Code(0)))
}

pub(super) fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |meta| meta.len())
}

/// Whether a file in this folder can be opened for reads that pass by the page cache.
fn takes_direct_io(folder: &Path) -> Option<bool> {
    use rustix::fs::{Mode, OFlags};
    let file = tempfile::NamedTempFile::new_in(folder).ok()?;
    let flags = OFlags::RDONLY | OFlags::DIRECT;
    Some(rustix::fs::open(file.path(), flags, Mode::empty()).is_ok())
}
