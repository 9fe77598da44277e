//! Room for the last words of a run on a device whose storage fills up meanwhile.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Enough for the last lines of the log and for the status, in whole blocks of any file system.
const RESERVE_BYTES: usize = 64 << 10;
/// With less than this nobody can go on writing.
const LITTLE_BYTES: u64 = 1 << 20;
/// The name of the file that takes the room.
const RESERVE_FILE: &str = "reserve";

/// A file that is there only to be removed when its room is needed.
#[derive(Debug)]
pub(crate) struct Reserve(PathBuf);

impl Reserve {
    /// Takes the room.
    pub(crate) fn make(folder: &Path) -> io::Result<Self> {
        let path = folder.join(RESERVE_FILE);
        // No zeros: some file systems keep none of those.
        let bytes: Vec<u8> =
            (0..RESERVE_BYTES as u64).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 7) as u8).collect();
        let written = File::create(&path).and_then(|mut file| {
            file.write_all(&bytes)?;
            file.sync_all()
        });
        let reserve = Self(path);
        written.map(|()| reserve)
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        // One that is gone already takes no room.
        let _ = fs::remove_file(&self.0);
    }
}

/// The bytes that a folder's storage has left, when they are too few to go on; `None` also where it can't be told.
pub(crate) fn too_little(folder: &Path) -> Option<u64> {
    let there = rustix::fs::statvfs(folder).ok()?;
    Some(there.f_bavail.saturating_mul(there.f_frsize)).filter(|free| *free < LITTLE_BYTES)
}

/// Appends a line to a file; what is unfinished before it gets an end first.
pub(crate) fn append_line(path: &Path, line: &str) -> io::Result<()> {
    let unfinished = fs::read(path).is_ok_and(|bytes| bytes.last().is_some_and(|b| *b != b'\n'));
    let line = format!("{}{line}\n", if unfinished { "\n" } else { "" });
    OpenOptions::new().append(true).create(true).open(path)?.write_all(line.as_bytes())
}
