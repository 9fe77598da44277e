//! The engine as a process.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::error::BenchError;
use crate::machine::Group;

/// How often a running engine is looked after.
const TICK: Duration = Duration::from_millis(50);

/// An engine binary.
#[derive(Debug, Clone)]
pub struct Engine {
    path: PathBuf,
    /// What `--version` says.
    pub version: String,
    /// Hash of the binary.
    pub sha256: String,
}

/// What is started.
pub struct Job<'a> {
    /// Words in front of the engine, of a program that starts it.
    pub before: Vec<OsString>,
    /// Arguments.
    pub args: Vec<OsString>,
    /// Control group to start in.
    pub group: Option<&'a Group>,
    /// Where its standard error goes.
    pub log: &'a Path,
    /// Keep its standard output and note when each piece of it came.
    pub listen: bool,
    /// It is killed after that.
    pub timeout: Duration,
    /// Set by a signal: it is ended.
    pub stop: &'a Arc<AtomicBool>,
}

/// How it ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// Why it did not do its work.
    pub failure: Option<String>,
    /// Its standard output, when that was kept.
    pub text: String,
    /// When each piece of it came.
    pub arrivals: Vec<Instant>,
}

impl Engine {
    /// The engine at `given`, else beside this program.
    ///
    /// # Errors
    /// There is none, or it doesn't run.
    pub fn find(given: Option<&Path>) -> Result<Self, BenchError> {
        let own = std::env::current_exe().map_err(BenchError::io("find", Path::new("myself")))?;
        let path = given.map_or_else(|| own.with_file_name("bmoe-engine"), Path::to_owned);
        let bytes = fs::read(&path).map_err(|e| {
            BenchError::Refused(format!(
                "no engine at {} ({e}); build it with `cargo build -p bmoe-engine` or name one with --engine",
                path.display()
            ))
        })?;
        let output = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(BenchError::io("start", &path))?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || version.is_empty() {
            return Err(BenchError::Refused(format!("{} --version fails", path.display())));
        }
        let digest = Sha256::digest(&bytes);
        let sha256 = digest.iter().map(|b| format!("{b:02x}")).collect();
        Ok(Self { path, version, sha256 })
    }

    /// Starts it and waits for its end.
    ///
    /// # Errors
    /// It can't be started, or a signal stopped this program.
    pub fn run(&self, job: Job<'_>) -> Result<Ended, BenchError> {
        let log = File::create(job.log).map_err(BenchError::io("write", job.log))?;
        let mut words: Vec<OsString> = Vec::new();
        if let Some(group) = job.group {
            words.extend(["sh", "-c", "echo $$ > \"$0\" && exec \"$@\""].map(Into::into));
            words.push(group.procs().into());
        }
        words.extend(job.before);
        words.push(self.path.clone().into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(&job.args).stdin(Stdio::null()).stderr(log);
        command.stdout(if job.listen { Stdio::piped() } else { Stdio::null() });
        let child = command.spawn().map_err(BenchError::io("start", &self.path))?;
        let mut child = KillOnDrop(child);
        let listener = child.0.stdout.take().map(|mut out| {
            std::thread::spawn(move || {
                let (mut text, mut arrivals, mut buffer) = (Vec::new(), Vec::new(), [0; 4096]);
                while let Ok(n @ 1..) = out.read(&mut buffer) {
                    arrivals.push(Instant::now());
                    text.extend_from_slice(&buffer[..n]);
                }
                (String::from_utf8_lossy(&text).into_owned(), arrivals)
            })
        });
        let start = Instant::now();
        let status = loop {
            let status = child.0.try_wait().map_err(BenchError::io("wait for", &self.path))?;
            if let Some(status) = status {
                break status;
            }
            if job.stop.load(Ordering::Relaxed) {
                return Err(BenchError::Stopped);
            }
            if start.elapsed() > job.timeout {
                let failure = format!("killed after {} s", job.timeout.as_secs());
                return Ok(Ended { failure: Some(failure), ..Ended::default() });
            }
            std::thread::sleep(TICK);
        };
        if job.stop.load(Ordering::Relaxed) {
            return Err(BenchError::Stopped);
        }
        let (text, arrivals) = listener.and_then(|l| l.join().ok()).unwrap_or_default();
        let failure = (!status.success()).then(|| {
            let kills = job.group.map_or(0, Group::kills);
            let said = fs::read_to_string(job.log).unwrap_or_default();
            let last = said.lines().last().unwrap_or_default();
            let killed = if kills > 0 { ", out of memory in its control group" } else { "" };
            format!("{status}{killed}: {last}")
        });
        Ok(Ended { failure, text, arrivals })
    }
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None) | Err(_)) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
