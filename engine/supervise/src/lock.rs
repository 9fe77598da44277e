//! Files that one process at a time holds. The kernel lets go when the process ends, however it ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// A lock that this process holds until it is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Somebody else holds the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// What they wrote down about themselves.
    pub by: String,
}

impl Lock {
    /// Takes the lock of a file, which is made when missing, and writes into it who holds it. Tries for so long.
    ///
    /// # Errors
    /// The file can't be made or locked.
    pub fn take(path: &Path, owner: &str, patience: Duration) -> io::Result<Result<Self, Held>> {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if !take(&file, patience)? {
            let mut by = String::new();
            // Whoever holds it may be writing at this moment.
            let _ = file.read_to_string(&mut by);
            return Ok(Err(Held { by: by.trim().to_owned() }));
        }
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{owner}")?;
        Ok(Ok(Self { _file: file }))
    }
}

/// Whether any process holds the lock of a file, without touching it: whoever takes it meanwhile must not find it
/// taken by somebody who only looks. `false` when the file is not there or the kernel does not tell.
#[must_use]
pub fn is_held(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(file) = std::fs::metadata(path) else { return false };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let end = format!(":{}", file.ino());
    // `1: FLOCK  ADVISORY  WRITE 123 08:01:4567 0 EOF`; the device is another one on layered file systems.
    locks.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        words.nth(1) == Some("FLOCK") && words.nth(3).is_some_and(|id| id.ends_with(&end))
    })
}

/// Locks an open file; `false` when another process holds it all the time.
pub(crate) fn take(file: &File, patience: Duration) -> io::Result<bool> {
    let end = Instant::now() + patience;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() >= end => return Ok(false),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(20)),
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_one_hears_who_was_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = Lock::take(&path, "the first one", Duration::ZERO).unwrap().unwrap();
        let second = Lock::take(&path, "the second one", Duration::ZERO).unwrap();
        assert_eq!(second.unwrap_err().by, "the first one");
        assert!(is_held(&path));
        drop(first);
        assert!(!is_held(&path));
        assert!(Lock::take(&path, "it", Duration::ZERO).unwrap().is_ok());
    }
}
