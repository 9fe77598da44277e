//! Bringing a file to a device: once, resumably, and hashed there.
//!
//! ```text
//! HOME/files/<first 16 digits of its SHA-256>/NAME            the file
//! HOME/files/<...>/NAME.partial                               as much of it as has arrived
//! HOME/files/<...>/manifest                                   size, mtime, inode and SHA-256 of the file
//! HOME/files/<...>/lock                                       locked by whoever sends
//! ```
//!
//! The bytes go through the input of a `cat` that appends to the partial file: as fast as adb's own push, and what
//! has arrived counts when the cable is pulled. The same script then hashes the whole on the device and renames it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::manifest::{Seen, Step, step};
use super::{AdbTarget, SHORT, keep_last};
use crate::adb::shell::{Output, quote};
use crate::target::{StagedFile, TargetError};

/// `$1` = folder, `$2` = name.
const LOOK: &str = r#"mkdir -p "$1" || exit 73
stat -c 'file %s %Y %i' "$1/$2" 2>/dev/null
[ -f "$1/manifest" ] && cat "$1/manifest"
stat -c 'partial %s' "$1/$2.partial" 2>/dev/null
set -- $(df -k -P "$1" | tail -n 1)
echo "free $4""#;

/// `$1` = folder, `$2` = name, `$3` = where the input begins, `$4` = size, `$5` = SHA-256, `$6` = mode. A file that
/// somebody else finished meanwhile is good as well.
const RECEIVE: &str = r#"( if command -v flock >/dev/null; then flock -n 9 || exit 75; fi
f=$1/$2 p=$1/$2.partial
if ! [ -e "$f" ]; then
  have=$(stat -c %s "$p" 2>/dev/null) || have=0
  [ "$have" = "$3" ] || exit 66
  cat >>"$p" || exit 74
  [ "$(stat -c %s "$p")" = "$4" ] || exit 66
  sum=$(sha256sum "$p") || exit 69
  [ "${sum%% *}" = "$5" ] || { rm -f "$p"; exit 65; }
  chmod "$6" "$p" && mv -f "$p" "$f" || exit 74
  echo "bmoe-manifest 1 $(stat -c '%s %Y %i' "$f") $5" >"$1/manifest.new" && mv -f "$1/manifest.new" "$1/manifest"
fi
exit 0 ) 9>>"$1/lock""#;

/// `$1` = folder, `$2` = name, `$3` = SHA-256, `$4` = mode. A file with another hash is removed.
const HASH: &str = r#"f=$1/$2
stamp=$(stat -c '%s %Y %i' "$f") || exit 66
sum=$(sha256sum "$f") || exit 69
if [ "${sum%% *}" = "$3" ]; then
  chmod "$4" "$f" && echo "bmoe-manifest 1 $stamp $3" >"$1/manifest.new" && mv -f "$1/manifest.new" "$1/manifest"
else rm -f "$f" "$1/manifest"; fi"#;

/// Exit codes of the scripts.
const OTHER_CONTENT: i32 = 65;
const LOOK_AGAIN: i32 = 66;
const NO_HASH: i32 = 69;
const CANNOT_WRITE: i32 = 74;
const LOCKED: i32 = 75;

/// How long another process may hold the lock without sending anything.
const LOCK_PATIENCE: Duration = Duration::from_secs(600);
const LOCK_TICK: Duration = Duration::from_millis(500);
/// How soon a lost device is tried again.
const LOST_TICK: Duration = Duration::from_secs(1);
/// How often it may turn out that what lies there is not what was seen a moment before.
const SURPRISES: u32 = 5;

/// See [`Target::stage`](crate::target::Target::stage).
pub(super) fn stage(
    target: &AdbTarget,
    file: &StagedFile<'_>,
    on_progress: &mut dyn FnMut(u64),
) -> Result<PathBuf, TargetError> {
    Staging::new(target, file)?.run(on_progress)
}

struct Staging<'a> {
    target: &'a AdbTarget,
    file: &'a StagedFile<'a>,
    bytes: u64,
    folder: PathBuf,
    name: Vec<u8>,
}

impl<'a> Staging<'a> {
    fn new(target: &'a AdbTarget, file: &'a StagedFile<'a>) -> Result<Self, TargetError> {
        let failed = |source| TargetError::Failed {
            target: target.name.clone(),
            what: format!("read {}", file.path.display()),
            source,
        };
        let bytes = std::fs::metadata(file.path).map_err(failed)?.len();
        let digits = file.sha256.get(..16).ok_or_else(|| {
            let reason = format!("its SHA-256 is {:?}, which is none", file.sha256);
            failed(std::io::Error::other(reason))
        })?;
        let folder = target.home.join("files").join(digits);
        let name = file.path.file_name().unwrap_or_default().as_bytes().to_vec();
        Ok(Self { target, file, bytes, folder, name })
    }

    /// Goes on after a break, as long as something arrives between two of them or the device is back in time.
    fn run(&self, on_progress: &mut dyn FnMut(u64)) -> Result<PathBuf, TargetError> {
        let (mut most, mut since) = (0, Instant::now());
        loop {
            let outcome = self.attempt(&mut |at| {
                if at > most {
                    (most, since) = (at, Instant::now());
                }
                on_progress(at);
            });
            match outcome {
                Err(error) if error.is_lost() && since.elapsed() < self.target.patience => {
                    std::thread::sleep(LOST_TICK.min(self.target.patience));
                }
                outcome => return outcome,
            }
        }
    }

    fn attempt(&self, on_progress: &mut dyn FnMut(u64)) -> Result<PathBuf, TargetError> {
        let path = self.folder.join(Path::new(std::ffi::OsStr::from_bytes(&self.name)));
        let mut verify = self.target.verify;
        let (mut surprises, mut other_content) = (0, false);
        let mut waiting: Option<(u64, Instant)> = None;
        loop {
            let seen = self.look()?;
            let step = step(&seen, self.bytes, self.file.sha256, verify);
            if let Step::Send { from } = step {
                on_progress(from);
            }
            match step {
                Step::Use => {
                    on_progress(self.bytes);
                    return Ok(path);
                }
                Step::Hash => {
                    self.hash()?;
                    verify = false;
                }
                Step::Discard => self.discard()?,
                Step::NoRoom { free_bytes, needed_bytes } => {
                    return Err(self.no_space(free_bytes, needed_bytes));
                }
                Step::Send { from } => match self.send(from, on_progress)? {
                    (0, _) => verify = false,
                    (LOCKED, _) => {
                        let (bytes, since) =
                            waiting.get_or_insert((seen.partial_bytes, Instant::now()));
                        if *bytes != seen.partial_bytes {
                            (*bytes, *since) = (seen.partial_bytes, Instant::now());
                        } else if since.elapsed() >= LOCK_PATIENCE {
                            return Err(
                                self.failed("another process is sending it and stands still")
                            );
                        }
                        std::thread::sleep(LOCK_TICK);
                        continue;
                    }
                    (OTHER_CONTENT, _) if !other_content => other_content = true,
                    (OTHER_CONTENT, _) => {
                        return Err(self.failed(
                            "its SHA-256 there is not the one that was told: it changed since it was hashed, or \
                             the device's storage is broken",
                        ));
                    }
                    (LOOK_AGAIN, _) => {}
                    (CANNOT_WRITE, said) => return Err(self.cannot_write(&said)?),
                    (NO_HASH, said) => return Err(self.failed(&format!("no sha256sum: {said}"))),
                    (code, said) => {
                        return Err(self.failed(&format!("exit code {code} there: {said}")));
                    }
                },
            }
            surprises += 1;
            if surprises > SURPRISES {
                return Err(self.failed("something else changes it there all the time"));
            }
        }
    }

    fn look(&self) -> Result<Seen, TargetError> {
        let args = [self.folder.as_os_str().as_bytes(), &self.name];
        let (code, out, err) = self.target.script(LOOK, &args, Some(SHORT))?;
        if code != 0 {
            return Err(self.failed(&format!("{} cannot be made: {err}", self.folder.display())));
        }
        Ok(Seen::parse(&out))
    }

    fn mode(&self) -> &'static [u8] {
        if self.file.executable { b"755" } else { b"644" }
    }

    /// Hashes what is there. It takes as long as it takes: minutes for a large model.
    fn hash(&self) -> Result<(), TargetError> {
        let sha256 = self.file.sha256.as_bytes();
        let args = [self.folder.as_os_str().as_bytes(), &self.name, sha256, self.mode()];
        match self.target.script(HASH, &args, None)? {
            (0 | LOOK_AGAIN, _, _) => Ok(()),
            (_, _, err) => Err(self.failed(&format!("it cannot be hashed there: {err}"))),
        }
    }

    fn discard(&self) -> Result<(), TargetError> {
        let partial = [self.folder.as_os_str().as_bytes(), b"/", &self.name, b".partial"].concat();
        match self.target.script("rm -f \"$1\"", &[&partial], Some(SHORT))? {
            (0, _, _) => Ok(()),
            (_, _, err) => Err(self.failed(&err)),
        }
    }

    /// Sends everything from byte `from` on, and has it hashed.
    fn send(
        &self,
        from: u64,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<(i32, String), TargetError> {
        let here = |source| TargetError::Failed {
            target: self.target.name.clone(),
            what: format!("read {}", self.file.path.display()),
            source,
        };
        let mut source = File::open(self.file.path).map_err(here)?;
        source.seek(SeekFrom::Start(from)).map_err(here)?;
        let mut source = source.take(self.bytes - from);
        let (from_text, bytes) = (from.to_string(), self.bytes.to_string());
        let line = quote([
            b"sh",
            b"-c",
            RECEIVE.as_bytes(),
            b"sh",
            self.folder.as_os_str().as_bytes(),
            &self.name,
            from_text.as_bytes(),
            bytes.as_bytes(),
            self.file.sha256.as_bytes(),
            self.mode(),
        ]);
        let line = [b"exec ", &line[..]].concat();
        let mut err = Vec::new();
        let end = self.target.shell(&line, Some(&mut source), None, &mut |output| {
            match output {
                Output::Stderr(bytes) => keep_last(&mut err, bytes),
                Output::Sent(sent) => on_progress(from + sent),
                Output::Stdout(_) => {}
            }
            ControlFlow::Continue(())
        })?;
        let code = self.target.exited(end, "sending a file", None)?;
        Ok((code, String::from_utf8_lossy(&err).trim().to_owned()))
    }

    /// Why the device could not write; a full one is told as such.
    fn cannot_write(&self, said: &str) -> Result<TargetError, TargetError> {
        if said.contains("No space left") {
            let seen = self.look()?;
            let needed = self.bytes.saturating_sub(seen.partial_bytes);
            return Ok(self.no_space(seen.free_bytes.unwrap_or_default(), needed));
        }
        Ok(self.failed(said))
    }

    fn no_space(&self, free_bytes: u64, needed_bytes: u64) -> TargetError {
        TargetError::NoSpace {
            target: self.target.name.clone(),
            folder: self.target.home.clone(),
            free_mib: free_bytes >> 20,
            needed_mib: needed_bytes.div_ceil(1 << 20),
        }
    }

    fn failed(&self, reason: &str) -> TargetError {
        self.target.failed(format!("bring {} there", self.file.path.display()), reason)
    }
}

/// What the scripts write down is what [`Manifest`] reads.
#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use sha2::{Digest, Sha256};

    use super::super::manifest::Manifest;
    use super::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn sh(&self, script: &str, args: &[&str], input: &[u8]) -> (i32, String) {
            use std::io::Write;
            let mut child = Command::new("sh")
                .args(["-c", script, "sh", self.0.path().to_str().unwrap(), "m.gguf"])
                .args(args)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            // A script that does not want its input closes it.
            let _ = child.stdin.take().unwrap().write_all(input);
            let out = child.wait_with_output().unwrap();
            (out.status.code().unwrap(), String::from_utf8(out.stdout).unwrap())
        }

        fn look(&self) -> Seen {
            Seen::parse(&self.sh(LOOK, &[], b"").1)
        }
    }

    fn sha256(bytes: &[u8]) -> String {
        Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn a_transfer_that_breaks_off_goes_on_where_it_was() {
        let folder = Folder(tempfile::tempdir().unwrap());
        let sum = sha256(b"hello world");
        let receive =
            |from: &str, input: &[u8]| folder.sh(RECEIVE, &[from, "11", &sum, "755"], input).0;
        assert_eq!(receive("0", b"hello "), LOOK_AGAIN);
        assert_eq!(folder.look().partial_bytes, 6);
        assert_eq!(receive("0", b"hello world"), LOOK_AGAIN, "that is not where it was");
        assert_eq!(receive("6", b"world"), 0);
        let seen = folder.look();
        assert_eq!(step(&seen, 11, &sum, false), Step::Use);
        assert_eq!(seen.partial_bytes, 0);
        assert_eq!(std::fs::read(folder.0.path().join("m.gguf")).unwrap(), b"hello world");
        assert_eq!(receive("0", b""), 0, "it is there already");
    }

    #[test]
    fn wrong_content_leaves_nothing() {
        let folder = Folder(tempfile::tempdir().unwrap());
        let sum = sha256(b"hello world");
        assert_eq!(folder.sh(RECEIVE, &["0", "11", &sum, "644"], b"hello_world").0, OTHER_CONTENT);
        let seen = folder.look();
        assert_eq!((seen.partial_bytes, seen.file), (0, None));
    }

    #[test]
    fn a_changed_file_is_hashed_and_only_kept_when_it_is_the_same() {
        let folder = Folder(tempfile::tempdir().unwrap());
        let sum = sha256(b"hello world");
        let path = folder.0.path().join("m.gguf");
        std::fs::write(&path, "hello world").unwrap();
        assert_eq!(step(&folder.look(), 11, &sum, false), Step::Hash);
        assert_eq!(folder.sh(HASH, &[&sum, "644"], b"").0, 0);
        assert_eq!(folder.look().manifest.map(|m: Manifest| m.sha256), Some(sum.clone()));
        assert_eq!(step(&folder.look(), 11, &sum, false), Step::Use);

        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "other world!").unwrap();
        assert_eq!(step(&folder.look(), 11, &sum, false), Step::Hash);
        assert_eq!(folder.sh(HASH, &[&sum, "644"], b"").0, 0);
        assert_eq!((folder.look().file, folder.look().manifest), (None, None));
    }

    #[test]
    fn only_one_process_sends_at_a_time() {
        let folder = Folder(tempfile::tempdir().unwrap());
        let lock = File::create(folder.0.path().join("lock")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        let args = ["0", "5", &sha256(b"hello"), "644"];
        assert_eq!(folder.sh(RECEIVE, &args, b"hello").0, LOCKED);
        drop(lock);
        assert_eq!(folder.sh(RECEIVE, &args, b"hello").0, 0);
    }
}
