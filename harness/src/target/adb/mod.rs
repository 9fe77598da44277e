//! A device behind the adb server as a [`Target`].

mod manifest;
mod select;
mod stage;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Command, Finished, StagedFile, Target, TargetError, TargetName, is_address};
use crate::adb::shell::{self, End, Limits, Output};
use crate::adb::{AdbError, Server, sync};
use crate::runner::Exit;

/// Where everything of bmoe's lies on a device. It is the one place where programs can be run from that
/// needs no rights beyond adb's.
pub const HOME: &str = "/data/local/tmp/bmoe";

/// After so long without a word it is asked whether the device is still there.
const SILENCE: Duration = Duration::from_secs(15);
/// So long a device may be away while a file is sent to it.
const PATIENCE: Duration = Duration::from_secs(90);
/// What a device may take to say that it is.
const ALIVE_LIMIT: Duration = Duration::from_secs(10);
/// What looking, moving and deleting a small file may take.
const SHORT: Duration = Duration::from_secs(60);
/// What is kept of a standard error.
const STDERR_BYTES: usize = 64 << 10;
/// Exit code of a shell for something that it can't execute.
const NOT_EXECUTABLE: i32 = 126;

/// A device behind the adb server.
#[derive(Debug)]
pub struct AdbTarget {
    server: Server,
    serial: String,
    name: String,
    home: PathBuf,
    verify: bool,
    silence: Duration,
    patience: Duration,
}

impl AdbTarget {
    /// Finds the device that is meant, starting the server and connecting a wireless device when that is needed.
    ///
    /// # Errors
    /// There is no such device, or something has to be done about it: the message says what.
    pub fn connect(server: Server, wanted: &TargetName) -> Result<Self, TargetError> {
        let serial = select::select(server, wanted)?;
        Ok(Self::at(server, serial))
    }

    fn at(server: Server, serial: String) -> Self {
        let name = format!("adb:{serial}");
        Self {
            server,
            serial,
            name,
            home: HOME.into(),
            verify: false,
            silence: SILENCE,
            patience: PATIENCE,
        }
    }

    /// Whether files that are there are hashed again before they are used.
    #[must_use]
    pub fn with_verify(self, verify: bool) -> Self {
        Self { verify, ..self }
    }

    /// Its serial number; of a wireless device its address.
    #[must_use]
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// Runs a command line, with `input` for its input.
    fn shell(
        &self,
        line: &[u8],
        mut input: Option<&mut (dyn Read + Send)>,
        limit: Option<Duration>,
        on: &mut dyn FnMut(Output<'_>) -> ControlFlow<()>,
    ) -> Result<End, TargetError> {
        let limits = Limits { total: limit, silence: self.silence, is_alive: &|| self.is_alive() };
        let mut run = |input: Option<&mut (dyn Read + Send)>| {
            shell::run(self.server, &self.serial, line, input, limits, on)
        };
        let first = run(input.as_mut().map(|input| &mut **input as &mut (dyn Read + Send)));
        match first {
            // Nothing has been started yet: a server that was restarted knows no wireless devices.
            Err(AdbError::NoServer { .. } | AdbError::Refused { .. }) => {
                self.reconnect()?;
                run(input)
            }
            other => other,
        }
        .map_err(|error| self.error("run a command", error))
    }

    fn is_alive(&self) -> bool {
        let limits = Limits { total: Some(ALIVE_LIMIT), silence: ALIVE_LIMIT, is_alive: &|| false };
        let on = &mut |_: Output<'_>| ControlFlow::Continue(());
        let end = shell::run(self.server, &self.serial, b"true", None, limits, on);
        matches!(end, Ok(End::Exited(0)))
    }

    /// Makes the server know the device again.
    fn reconnect(&self) -> Result<(), TargetError> {
        self.server.start().map_err(|error| self.error("reach the adb server", error))?;
        select::wait_until_ready(self.server, &self.serial).map_err(|(state, said)| {
            let lost = |reason: String| TargetError::Lost { target: self.name.clone(), reason };
            match state {
                None => lost(said.unwrap_or_else(|| "adb does not see it any more".to_owned())),
                Some(state) if state.is_passing() => lost(format!("it is {state}")),
                Some(state) => TargetError::Unusable {
                    target: self.name.clone(),
                    reason: format!("it is {state}"),
                    remedy: state.remedy().unwrap_or("try again").to_owned(),
                },
            }
        })
    }

    fn error(&self, what: &str, error: AdbError) -> TargetError {
        let target = self.name.clone();
        match error {
            AdbError::NoServer { .. } | AdbError::Broken { .. } => {
                TargetError::Lost { target, reason: error.to_string() }
            }
            AdbError::Refused { ref message } if is_absence(message) => {
                TargetError::Lost { target, reason: error.to_string() }
            }
            AdbError::Input { source } => {
                TargetError::Failed { target, what: what.to_owned(), source }
            }
            other => TargetError::Failed {
                target,
                what: what.to_owned(),
                source: io::Error::other(other.to_string()),
            },
        }
    }

    fn failed(&self, what: String, reason: impl Into<String>) -> TargetError {
        let source = io::Error::other(reason.into());
        TargetError::Failed { target: self.name.clone(), what, source }
    }

    /// Runs a script of `sh` with arguments and gives back its exit code, output and errors.
    fn script(
        &self,
        script: &str,
        args: &[&[u8]],
        limit: Option<Duration>,
    ) -> Result<(i32, String, String), TargetError> {
        let mut words = vec![b"sh", &b"-c"[..], script.as_bytes(), b"sh"];
        words.extend(args);
        let line = [b"exec ", &shell::quote(words)[..]].concat();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let end = self.shell(&line, None, limit, &mut |output| {
            match output {
                Output::Stdout(bytes) => out.extend_from_slice(bytes),
                Output::Stderr(bytes) => keep_last(&mut err, bytes),
                Output::Sent(_) => {}
            }
            ControlFlow::Continue(())
        })?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let code = self.exited(end, "a script", limit)?;
        Ok((code, text(&out), text(&err)))
    }

    fn exited(&self, end: End, what: &str, limit: Option<Duration>) -> Result<i32, TargetError> {
        match end {
            End::Exited(code) => Ok(code.into()),
            End::Left => Ok(0),
            End::TimedOut => Err(TargetError::TimedOut {
                target: self.name.clone(),
                what: what.to_owned(),
                limit_s: limit.unwrap_or_default().as_secs(),
            }),
            End::Lost(reason) => Err(TargetError::Lost { target: self.name.clone(), reason }),
        }
    }

    fn text_path<'p>(&self, path: &'p Path) -> Result<&'p str, TargetError> {
        path.to_str().ok_or_else(|| {
            self.failed(format!("use the path {}", path.display()), "adb's paths are UTF-8")
        })
    }
}

impl Target for AdbTarget {
    fn name(&self) -> &str {
        &self.name
    }

    fn home(&self) -> &Path {
        &self.home
    }

    fn exec(
        &self,
        command: &Command,
        on_stdout: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Finished, TargetError> {
        // `exec`: the program itself gets the signal when it is left.
        let words = command.words.iter().map(|word| word.as_bytes());
        let line = [b"exec ", &shell::quote(words)[..]].concat();
        let mut stderr = Vec::new();
        let end = self.shell(&line, None, command.limit, &mut |output| match output {
            Output::Stdout(bytes) => on_stdout(bytes),
            Output::Stderr(bytes) => {
                keep_last(&mut stderr, bytes);
                ControlFlow::Continue(())
            }
            Output::Sent(_) => ControlFlow::Continue(()),
        })?;
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        if end == End::Left {
            return Ok(Finished { exit: None, stderr });
        }
        let what = command.words.first().map(|w| w.to_string_lossy().into_owned());
        let code = self.exited(end, &what.unwrap_or_default(), command.limit)?;
        Ok(Finished { exit: Some(exit(code, &stderr)), stderr })
    }

    fn stage(
        &self,
        file: &StagedFile<'_>,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<PathBuf, TargetError> {
        stage::stage(self, file, on_progress)
    }

    fn put(&self, content: &[u8], path: &Path) -> Result<(), TargetError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let what = || format!("write {}", path.display());
        let path_text = self.text_path(path)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let part = format!("{path_text}.part-{}-{number}", std::process::id());
        let push = || sync::push(self.server, &self.serial, content.to_vec(), &part, SILENCE);
        let pushed = match push() {
            Err(AdbError::NoServer { .. } | AdbError::Broken { .. }) => {
                self.reconnect()?;
                push()
            }
            Err(AdbError::Refused { message }) if is_absence(&message) => {
                self.reconnect()?;
                push()
            }
            other => other,
        };
        let moved = pushed.map_err(|error| self.error(&what(), error)).and_then(|()| {
            let script = "s=$(stat -c %s \"$1\") && [ \"$s\" = \"$3\" ] || { echo \"$s bytes arrived\" >&2; \
                          exit 1; }; chmod 644 \"$1\" && mv -f \"$1\" \"$2\"";
            let size = content.len().to_string();
            let args = [part.as_bytes(), path_text.as_bytes(), size.as_bytes()];
            let (code, _, err) = self.script(script, &args, Some(SHORT))?;
            if code == 0 { Ok(()) } else { Err(self.failed(what(), err)) }
        });
        if moved.as_ref().is_err_and(|error| !error.is_lost()) {
            let _ = self.script("rm -f \"$1\"", &[part.as_bytes()], Some(SHORT));
        }
        moved
    }

    fn fetch(&self, path: &Path, to: &Path) -> Result<bool, TargetError> {
        let what = || format!("fetch {}", path.display());
        let path_text = self.text_path(path)?;
        // adb's own `stat` wraps at 4 GiB.
        let script = "[ -e \"$1\" ] || exit 3; stat -L -c %s \"$1\"";
        let (code, out, err) = self.script(script, &[path_text.as_bytes()], Some(SHORT))?;
        let size: u64 = match (code, out.parse()) {
            (3, _) => return Ok(false),
            (0, Ok(size)) => size,
            _ => return Err(self.failed(what(), err)),
        };
        let here = |source| TargetError::Failed {
            target: self.name.clone(),
            what: format!("write {}", to.display()),
            source,
        };
        let folder = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = new_file(folder).map_err(here)?;
        let handle = file.as_file().try_clone().map_err(here)?;
        sync::pull(self.server, &self.serial, path_text, handle, SILENCE)
            .map_err(|error| self.error(&what(), error))?;
        let arrived = file.as_file().metadata().map_err(here)?.len();
        // A file that is still written may have grown meanwhile.
        if arrived < size {
            return Err(TargetError::Lost {
                target: self.name.clone(),
                reason: format!("{arrived} of {size} bytes of {} arrived", path.display()),
            });
        }
        file.as_file().sync_all().map_err(here)?;
        file.persist(to).map_err(|e| here(e.error))?;
        Ok(true)
    }
}

/// A temporary file with the permissions of a lasting one.
fn new_file(folder: &Path) -> io::Result<tempfile::NamedTempFile<File>> {
    use std::os::unix::fs::PermissionsExt;
    let permissions = std::fs::Permissions::from_mode(0o644);
    tempfile::Builder::new().permissions(permissions).tempfile_in(folder)
}

/// Whether the server says that there is no such device now.
fn is_absence(message: &str) -> bool {
    ["not found", "offline", "no devices", "closed"].iter().any(|word| message.contains(word))
}

/// Appends and keeps the last [`STDERR_BYTES`].
fn keep_last(kept: &mut Vec<u8>, bytes: &[u8]) {
    kept.extend_from_slice(bytes);
    let surplus = kept.len().saturating_sub(STDERR_BYTES);
    kept.drain(..surplus);
}

/// Shells report a signal as 128 + its number.
fn exit(code: i32, stderr: &str) -> Exit {
    match code {
        // Android's shell says 1 for a program of another machine.
        1 if stderr.contains(": not executable: ") => Exit::Code(NOT_EXECUTABLE),
        129..=192 => Exit::Signal(code - 128),
        code => Exit::Code(code),
    }
}
