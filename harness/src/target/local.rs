//! This machine as a target.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStderr, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Instant;

use super::{Command, Finished, StagedFile, Target, TargetError};
use crate::atomic;
use crate::runner::Exit;

/// What is kept of a program's standard error.
const STDERR_BYTES: usize = 64 << 10;

/// This machine.
#[derive(Debug, Clone)]
pub struct LocalTarget {
    home: PathBuf,
}

impl LocalTarget {
    /// `home` is where this machine's lock is.
    ///
    /// # Errors
    /// The folder can't be made.
    pub fn new(home: &Path) -> io::Result<Self> {
        fs::create_dir_all(home)?;
        Ok(Self { home: home.canonicalize()? })
    }

    fn failed(&self, what: impl Into<String>) -> impl FnOnce(io::Error) -> TargetError {
        let (target, what) = (self.name().to_owned(), what.into());
        move |source| TargetError::Failed { target, what, source }
    }
}

impl Target for LocalTarget {
    fn name(&self) -> &str {
        "local"
    }

    fn home(&self) -> &Path {
        &self.home
    }

    fn attempts(&self, results: &Path) -> PathBuf {
        let results = results.canonicalize().unwrap_or_else(|_| results.to_owned());
        results.join("runs")
    }

    fn exec(
        &self,
        command: &Command,
        on_stdout: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Finished, TargetError> {
        let end = command.limit.map(|limit| Instant::now() + limit);
        let program = command.words.first().map_or(OsStr::new(""), |word| word);
        let mut child = match process::Command::new(program)
            .args(command.words.get(1..).unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: Ctrl-C reaches this process alone, which decides what ends.
            .process_group(0)
            .spawn()
        {
            Ok(child) => child,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(unstarted(127, &e)),
            Err(e) if e.raw_os_error().is_some() => return Ok(unstarted(126, &e)),
            Err(e) => return Err(self.failed(format!("start {}", program.display()))(e)),
        };
        let stdout = read_stdout(&mut child);
        let stderr = child.stderr.take().map(keep_the_end);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let piece = match left {
                Some(left) => stdout.recv_timeout(left),
                None => stdout.recv().map_err(RecvTimeoutError::from),
            };
            match piece {
                Ok(piece) => {
                    if on_stdout(&piece).is_break() {
                        kill(&mut child);
                        return Ok(Finished { exit: None, stderr: String::new() });
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    kill(&mut child);
                    return Err(TargetError::TimedOut {
                        target: self.name().to_owned(),
                        what: told(command),
                        limit_s: command.limit.unwrap_or_default().as_secs(),
                    });
                }
            }
        }
        let status = child.wait().map_err(self.failed(format!("wait for {}", told(command))))?;
        let exit = match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal(signal.unwrap_or_default()),
        };
        let stderr = stderr.and_then(|reader| reader.join().ok()).unwrap_or_default();
        Ok(Finished { exit: Some(exit), stderr })
    }

    fn stage(
        &self,
        file: &StagedFile<'_>,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<PathBuf, TargetError> {
        let what = format!("use {}", file.path.display());
        on_progress(fs::metadata(file.path).map_err(self.failed(what))?.len());
        Ok(file.path.to_owned())
    }

    fn put(&self, content: &[u8], path: &Path) -> Result<(), TargetError> {
        let what = || format!("write {}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(self.failed(what()))?;
        }
        atomic::write(path, content).map_err(self.failed(what()))
    }

    fn fetch(&self, path: &Path, to: &Path) -> Result<bool, TargetError> {
        let what = || format!("copy {} to {}", path.display(), to.display());
        let mut from = match File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(self.failed(what())(e)),
        };
        if to.canonicalize().is_ok_and(|to| path.canonicalize().is_ok_and(|path| path == to)) {
            return Ok(true);
        }
        atomic::write_from(to, &mut from).map_err(self.failed(what()))?;
        Ok(true)
    }
}

fn told(command: &Command) -> String {
    let words: Vec<_> = command.words.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// What a shell makes of a program that it can't start.
fn unstarted(code: i32, error: &io::Error) -> Finished {
    Finished { exit: Some(Exit::Code(code)), stderr: error.to_string() }
}

fn kill(child: &mut Child) {
    // An error means that it has ended, which is what was wanted.
    let _ = child.kill();
    let _ = child.wait();
}

fn read_stdout(child: &mut Child) -> Receiver<Vec<u8>> {
    // Few pieces wait: a program that prints faster than is taken waits, too.
    let (sender, receiver) = mpsc::sync_channel(16);
    if let Some(mut stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut piece = vec![0; 64 << 10];
            while let Ok(n @ 1..) = stdout.read(&mut piece) {
                if sender.send(piece[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
    }
    receiver
}

fn keep_the_end(mut stderr: ChildStderr) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut kept, mut piece) = (Vec::new(), vec![0; 4096]);
        while let Ok(n @ 1..) = stderr.read(&mut piece) {
            kept.extend_from_slice(&piece[..n]);
            if kept.len() > 2 * STDERR_BYTES {
                kept.drain(..kept.len() - STDERR_BYTES);
            }
        }
        let start = kept.len().saturating_sub(STDERR_BYTES);
        String::from_utf8_lossy(&kept[start..]).into_owned()
    })
}

/// Where this machine keeps what is not of one result folder: `$BMOE_HOME`, or below the user's folder for
/// the state of programs.
#[must_use]
pub fn local_home() -> PathBuf {
    let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    folder("BMOE_HOME")
        .or_else(|| folder("XDG_STATE_HOME").map(|f| f.join("bmoe")))
        .or_else(|| folder("HOME").map(|f| f.join(".local/state/bmoe")))
        .unwrap_or_else(|| std::env::temp_dir().join("bmoe"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn target() -> (tempfile::TempDir, LocalTarget) {
        let home = tempfile::tempdir().unwrap();
        let target = LocalTarget::new(&home.path().join("home")).unwrap();
        (home, target)
    }

    fn run(words: &[&str], limit: Duration) -> (Result<Finished, TargetError>, String) {
        let mut out = Vec::new();
        let finished = target().1.exec(&Command::new(words, limit), &mut |piece| {
            out.extend_from_slice(piece);
            ControlFlow::Continue(())
        });
        (finished, String::from_utf8(out).unwrap())
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn programs_end_with_their_code_and_their_last_words() {
        let (finished, out) = run(&["sh", "-c", "echo out; echo err >&2; exit 7"], LONG);
        let finished = finished.unwrap();
        assert_eq!((finished.exit, finished.stderr.as_str()), (Some(Exit::Code(7)), "err\n"));
        assert_eq!(out, "out\n");
        let (killed, _) = run(&["sh", "-c", "kill -9 $$"], LONG);
        assert_eq!(killed.unwrap().exit, Some(Exit::Signal(9)));
        let (missing, _) = run(&["/no/such/program"], LONG);
        assert_eq!(missing.unwrap().exit, Some(Exit::Code(127)));
        let (folder, _) = run(&["/"], LONG);
        assert_eq!(folder.unwrap().exit, Some(Exit::Code(126)));
    }

    #[test]
    fn a_limit_ends_a_program_and_so_does_its_reader() {
        let (late, out) = run(&["sh", "-c", "echo on; exec sleep 100"], Duration::from_millis(300));
        assert!(matches!(late, Err(TargetError::TimedOut { .. })), "{late:?}");
        assert_eq!(out, "on\n");
        let endless = Command::new(["sh", "-c", "while :; do echo more; done"], LONG).unlimited();
        let left = target().1.exec(&endless, &mut |_| ControlFlow::Break(())).unwrap();
        assert_eq!(left.exit, None);
    }

    #[test]
    fn files_are_copied_whole_and_a_missing_one_is_no_error() {
        let (folder, target) = target();
        let (there, here) = (folder.path().join("a/b/there"), folder.path().join("here"));
        assert!(!target.fetch(&there, &here).unwrap() && !here.exists());
        target.put(b"content", &there).unwrap();
        assert!(target.fetch(&there, &here).unwrap());
        assert_eq!(fs::read(&here).unwrap(), b"content");
        assert!(target.fetch(&here, &here).unwrap());
        assert_eq!(fs::read(&here).unwrap(), b"content");
    }
}
