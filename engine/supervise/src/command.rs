//! The subcommands, for the engine's command line.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bmoe_trace::supervised::{Offsets, Status};
use clap::{Args, Subcommand};

use crate::supervise::Options;
use crate::{SuperviseError, follow, sense, stop, supervise};

/// What an engine's program can do beside running engines.
#[derive(Debug, Subcommand)]
pub enum DeviceCommand {
    /// Run the engine of a folder with its output in files, and watch the device meanwhile.
    Supervise(Supervise),
    /// Print what a supervised run appends, until it is over.
    Follow(Follow),
    /// End a supervised run.
    Stop(Stop),
    /// Print what this device tells about itself, as JSON.
    Sense(Sense),
}

/// Arguments of `supervise`.
#[derive(Debug, Args)]
#[command(
    after_help = "DIR holds run.toml; trace.bin, lines.txt, engine.log, samples.jsonl and status.json are \
    written into it. docs/formats.md describes them."
)]
pub struct Supervise {
    /// The folder of the run
    dir: PathBuf,
    /// End the engine when it takes longer
    #[arg(long, value_name = "S")]
    timeout_s: Option<u64>,
    /// Go on in the background, and return as soon as the engine is being started
    #[arg(long)]
    detach: bool,
    /// Time between two samples
    #[arg(long, value_name = "MS", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(10..))]
    sample_ms: u64,
    /// A file that one supervisor at a time holds
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// This process is the one in the background
    #[arg(long, hide = true)]
    session: bool,
}

/// Arguments of `follow`.
#[derive(Debug, Args)]
pub struct Follow {
    /// The folder of the run
    dir: PathBuf,
    /// Pass over so many bytes of lines.txt
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    lines_from: u64,
    /// Pass over so many bytes of samples.jsonl
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    samples_from: u64,
}

/// Arguments of `stop`.
#[derive(Debug, Args)]
pub struct Stop {
    /// The folder of the run
    dir: PathBuf,
}

/// Arguments of `sense`.
#[derive(Debug, Args)]
pub struct Sense {
    /// The root of the files that tell
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
}

impl DeviceCommand {
    /// Does what was asked for and prints the answer.
    ///
    /// # Errors
    /// It can't be done; the message says why.
    pub fn run(&self) -> Result<(), SuperviseError> {
        match self {
            Self::Supervise(args) => print(&args.run()?),
            Self::Follow(args) => {
                let from = Offsets { lines: args.lines_from, samples: args.samples_from };
                follow::follow(&args.dir, from, &mut std::io::stdout())
            }
            Self::Stop(args) => print(&stop::stop(&args.dir)?),
            Self::Sense(args) => print(&sense::Device::find(&args.root).sample(None)),
        }
    }
}

impl Supervise {
    fn run(&self) -> Result<Status, SuperviseError> {
        if self.detach {
            return supervise::detach(&self.in_session(), &self.dir);
        }
        if self.session {
            rustix::process::setsid()
                .map_err(|e| SuperviseError::Other(format!("cannot leave the session: {e}")))?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stop))
                .map_err(SuperviseError::io("listen for", Path::new("signals")))?;
        }
        let engine = std::env::current_exe()
            .map_err(SuperviseError::io("find", Path::new("the running program")))?;
        let options = Options {
            folder: self.dir.clone(),
            timeout: self.timeout_s.map(Duration::from_secs),
            sample_every: Duration::from_millis(self.sample_ms),
            lock: self.lock.clone(),
            engine,
        };
        supervise::supervise(&options, &stop)
    }

    /// The arguments of the same in a session of its own.
    fn in_session(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["supervise".into(), self.dir.clone().into()];
        let mut option = |name: &str, value: OsString| words.extend([name.into(), value]);
        option("--sample-ms", self.sample_ms.to_string().into());
        if let Some(seconds) = self.timeout_s {
            option("--timeout-s", seconds.to_string().into());
        }
        if let Some(lock) = &self.lock {
            option("--lock", lock.clone().into());
        }
        words.push("--session".into());
        words
    }
}

fn print(answer: &impl serde::Serialize) -> Result<(), SuperviseError> {
    let json = serde_json::to_string(answer).expect("answers are plain data");
    let mut out = std::io::stdout();
    writeln!(out, "{json}")
        .and_then(|()| out.flush())
        .map_err(SuperviseError::io("print", Path::new("standard output")))
}
