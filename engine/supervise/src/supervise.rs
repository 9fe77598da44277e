//! Runs the engine with its output in files and watches it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use bmoe_trace::RunConfig;
use bmoe_trace::config::model_files;
use bmoe_trace::supervised::{
    ABANDONED_FILE, LINES_FILE, LOG_FILE, RUN_FILE, SAMPLES_FILE, Sample, Status, StoppedBy,
    TRACE_FILE,
};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::groups::oom_kills;
use crate::lock::{self, Lock};
use crate::room::{self, Reserve};
use crate::sense::Device;
use crate::{SuperviseError, process, status};

/// What an engine that was asked to end gets before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// How often signals and the time limit are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How long a full device may take to have room again for the last status.
const PATIENCE: Duration = Duration::from_secs(300);
/// What an earlier supervisor that has just written its last status may need to be gone.
const HANDOVER: Duration = Duration::from_secs(3);

/// What is supervised, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder that holds `run.toml` and gets the rest.
    pub folder: PathBuf,
    /// How long the engine may take; `None` = as long as it likes.
    pub timeout: Option<Duration>,
    /// Time between two samples.
    pub sample_every: Duration,
    /// A file that only one supervisor at a time holds: the device's.
    pub lock: Option<PathBuf>,
    /// The engine, as a program that knows `generate`.
    pub engine: PathBuf,
}

/// Runs the engine of a folder to its end. A folder that has been run is never run again: then what is
/// known of it is the answer.
///
/// # Errors
/// The status can't be read or written. An engine that can't be started is no error but a status.
pub fn supervise(options: &Options, stop: &AtomicBool) -> Result<Status, SuperviseError> {
    let folder = &options.folder;
    let run_file = folder.join(RUN_FILE);
    // Two supervisors of one folder would write into the same files.
    let own = File::open(&run_file).map_err(SuperviseError::io("open the run file", &run_file))?;
    let first = lock::take(&own, Duration::ZERO)
        .map_err(SuperviseError::io("lock the run file", &run_file))?;
    if let Some(known) = status::read(folder)? {
        return Ok(known);
    }
    if !first {
        return Err(SuperviseError::Other(format!(
            "another supervisor has just begun with {}",
            folder.display()
        )));
    }
    let refuse = |message: String| {
        let status = Status::Refused { message };
        status::write(folder, &status).map(|()| status)
    };
    let held = options.lock.as_deref().map(|path| {
        let owner = format!("{} (process {})", folder.display(), std::process::id());
        Lock::take(path, &owner, HANDOVER).map_err(SuperviseError::io("lock", path))
    });
    let _held = match held {
        None => None,
        Some(Ok(Ok(lock))) => Some(lock),
        Some(Ok(Err(held))) => {
            return refuse(format!(
                "another engine runs on this device: {}; wait for its end, or stop it with \
                 `bmoe-engine stop FOLDER`",
                held.by
            ));
        }
        Some(Err(error)) => return refuse(error.to_string()),
    };
    status::write(folder, &Status::Running(process::own()))?;
    // Behind the status: whoever gives the attempt up writes the mark first and looks at the status then.
    if folder.join(ABANDONED_FILE).exists() {
        return refuse("the runner has given this attempt up".to_owned());
    }
    let reserve = match Reserve::make(folder) {
        Ok(reserve) => reserve,
        Err(e) => return refuse(format!("there is no room in {}: {e}", folder.display())),
    };
    let status = run(options, stop).unwrap_or_else(|e| Status::Refused { message: e.to_string() });
    let too_little = room::too_little(folder);
    drop(reserve);
    let failed = !matches!(status, Status::Ended { exit_code: Some(0), .. });
    if let Some(free) = too_little.filter(|_| failed) {
        // The engine can't have said so: there was no room for it.
        let free_kib = free >> 10;
        let line = format!(
            "error: no space left on the device: {free_kib} KiB are free in {}",
            folder.display()
        );
        let _ = room::append_line(&folder.join(LOG_FILE), &line);
    }
    write_patiently(folder, &status)?;
    Ok(status)
}

/// Writes the last status, and waits for room if need be: an end that nobody can read is none.
fn write_patiently(folder: &Path, status: &Status) -> Result<(), SuperviseError> {
    let end = Instant::now() + PATIENCE;
    loop {
        match status::write(folder, status) {
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(500)),
            written => return written,
        }
    }
}

fn run(options: &Options, stop: &AtomicBool) -> Result<Status, SuperviseError> {
    let folder = &options.folder;
    let run_file = folder.join(RUN_FILE);
    let config = RunConfig::load(&run_file).map_err(|e| SuperviseError::Other(e.to_string()))?;
    for file in model_files(&config.model) {
        drop_from_page_cache(&file).map_err(SuperviseError::io("open the model", &file))?;
    }
    let root = Path::new("/");
    let mut samples = Samples::new(Device::find(root), &folder.join(SAMPLES_FILE))?;
    samples.take(None, None);
    let killed_before = oom_kills(root);
    let create = |name: &str| {
        let path = folder.join(name);
        File::create(&path).map_err(SuperviseError::io("write", &path))
    };
    let (lines, log) = (create(LINES_FILE)?, create(LOG_FILE)?);
    let start = Instant::now();
    let mut child = Command::new(&options.engine)
        .args(["generate".as_ref(), "--config".as_ref(), run_file.as_os_str()])
        .args(["--trace".as_ref(), folder.join(TRACE_FILE).as_os_str(), "--progress".as_ref()])
        .args(["--parent", &std::process::id().to_string()])
        .stdin(Stdio::null())
        .stdout(lines)
        .stderr(log)
        // A group of its own: what it may have started ends with it.
        .process_group(0)
        .spawn()
        .map_err(SuperviseError::io("start the engine", &options.engine))?;
    let pid = child.id();
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send((child.wait(), start.elapsed())));

    let mut stopped = None;
    let mut kill_at = None;
    let mut next_sample = start + options.sample_every;
    let (exit, wall) = loop {
        match ended.recv_timeout(TICK) {
            Ok(end) => break end,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                break (Err(io::ErrorKind::BrokenPipe.into()), start.elapsed());
            }
        }
        if stopped.is_none() {
            stopped = if stop.load(Ordering::Relaxed) {
                Some(StoppedBy::Request)
            } else {
                let over = options.timeout.is_some_and(|limit| start.elapsed() >= limit);
                over.then_some(StoppedBy::Timeout)
            };
            if stopped.is_some() {
                signal_group(pid, Signal::TERM);
                kill_at = Some(Instant::now() + GRACE);
            }
        }
        if kill_at.is_some_and(|at| Instant::now() >= at) {
            signal_group(pid, Signal::KILL);
        }
        if Instant::now() >= next_sample {
            samples.take(Some(pid), Some(start));
            // A device that slept does not catch up.
            next_sample = (next_sample + options.sample_every).max(Instant::now());
        }
    };
    // Whatever it started and left behind.
    signal_group(pid, Signal::KILL);
    let exit = exit.map_err(SuperviseError::io("wait for the engine", &options.engine))?;
    samples.take(None, Some(start));
    let oom_kills = oom_kills(root).zip(killed_before).map(|(now, then)| now.saturating_sub(then));
    Ok(ended_status(exit, stopped, wall, oom_kills))
}

fn ended_status(
    exit: ExitStatus,
    stopped: Option<StoppedBy>,
    wall: Duration,
    oom_kills: Option<u64>,
) -> Status {
    Status::Ended {
        supervisor: process::own(),
        exit_code: exit.code(),
        signal: exit.signal(),
        stopped,
        wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
        oom_kills,
    }
}

fn signal_group(leader: u32, signal: Signal) {
    // An error means that the group is gone, which is what was wanted.
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, signal);
    }
}

/// The file of samples. A sample that can't be written is lost: watching must not end the run.
struct Samples {
    device: Device,
    file: File,
}

impl Samples {
    fn new(device: Device, path: &Path) -> Result<Self, SuperviseError> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self { device, file: file.map_err(SuperviseError::io("write", path))? })
    }

    fn take(&mut self, engine: Option<u32>, start: Option<Instant>) {
        let elapsed = start.map_or(0, |s| u64::try_from(s.elapsed().as_millis()).unwrap_or(0));
        let sample = Sample { elapsed_ms: elapsed, ..self.device.sample(engine) };
        let mut line = serde_json::to_vec(&sample).expect("a sample is plain data");
        line.push(b'\n');
        // In one piece, so that a reader never sees half of it and stays there; a piece that had no room is taken back.
        let before = self.file.metadata().map_or(0, |m| m.len());
        if self.file.write_all(&line).is_err() {
            let _ = self.file.set_len(before);
        }
    }
}

/// Each run starts with its model outside the page cache, whatever ran before it. (The caches of a disk or of
/// the host of a virtual machine are out of reach.)
fn drop_from_page_cache(file: &Path) -> io::Result<()> {
    let file = File::open(file)?;
    // Pages that aren't on the disk yet would stay.
    let _ = file.sync_data();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

/// Starts a supervisor that outlives this process, and waits until it runs the engine or refuses to.
///
/// # Errors
/// It can't be started, or ends without a word.
pub fn detach(own: &[std::ffi::OsString], folder: &Path) -> Result<Status, SuperviseError> {
    let program = std::env::current_exe()
        .map_err(SuperviseError::io("find", Path::new("the running program")))?;
    let mut child = Command::new(&program)
        .args(own)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(SuperviseError::io("start", &program))?;
    loop {
        let ended = child.try_wait().map_err(SuperviseError::io("wait for", &program))?;
        if let Some(status) = status::read(folder)? {
            return Ok(status);
        }
        if let Some(exit) = ended {
            return Err(SuperviseError::Other(format!(
                "the supervisor ended ({exit}) before it could write into {}; is there room, and a {RUN_FILE}?",
                folder.display()
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
