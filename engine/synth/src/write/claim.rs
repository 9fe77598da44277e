//! One writer at a time: the unfinished file is locked for as long as it has its name.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::{Result, SynthError};

/// The right to write a model. It ends with the value or with the process, so that what a dead writer has
/// left is nobody's.
#[derive(Debug)]
pub(super) struct Claim {
    _locked: File,
}

impl Claim {
    /// Creates `part`, or empties what a dead writer has left there.
    pub(super) fn new(part: &Path) -> Result<Self> {
        loop {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(part)
                .map_err(|e| SynthError::io("write", part, e))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(SynthError::Busy { path: part.to_owned() });
                }
                Err(TryLockError::Error(e)) => return Err(SynthError::io("lock", part, e)),
            }
            // A writer that was done between opening and locking has renamed or removed what is locked now.
            if is_at(&file, part).map_err(|e| SynthError::io("look at", part, e))? {
                file.set_len(0).map_err(|e| SynthError::io("write", part, e))?;
                return Ok(Self { _locked: file });
            }
        }
    }
}

/// Whether the open file is the one with this name.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_excludes_others_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let part = dir.path().join("m.gguf.part");
        // What a dead writer has left is in nobody's way.
        fs::write(&part, "half a model").unwrap();
        let claim = Claim::new(&part).unwrap();
        assert_eq!(fs::metadata(&part).unwrap().len(), 0);
        assert!(matches!(Claim::new(&part), Err(SynthError::Busy { .. })));
        drop(claim);
        // A file that has been renamed is not what a claim on the old name locks.
        let claim = Claim::new(&part).unwrap();
        fs::rename(&part, dir.path().join("m.gguf")).unwrap();
        let next = Claim::new(&part).unwrap();
        drop((claim, next));
    }
}
