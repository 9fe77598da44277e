//! The model's files, opened for reading slices.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bmoe_trace::record::DirectIo;
use rustix::fs::{Advice, OFlags, fadvise};

use super::layout::WINDOW_ALIGN;

/// One file of a model.
#[derive(Debug)]
pub struct SliceFile {
    /// Its path, for messages.
    pub path: PathBuf,
    file: File,
    /// Length and time of the last change when it was opened.
    state: Option<(u64, SystemTime)>,
}

/// All files of a model, opened alike.
#[derive(Debug)]
pub struct SliceFiles {
    files: Vec<SliceFile>,
    direct: bool,
}

/// A file that can't be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open {}: {source}", path.display())]
pub struct OpenError {
    path: PathBuf,
    source: std::io::Error,
}

impl SliceFiles {
    /// Opens the files, with O_DIRECT when `want_direct` and the file system really does it.
    ///
    /// "Really" is tested on `probe`, an offset in the first file: some file systems accept O_DIRECT
    /// when opening and then fail or return other bytes, so a block is read both ways and compared.
    ///
    /// # Errors
    /// A file can't be opened even for buffered reads.
    pub fn open(
        paths: &[PathBuf],
        want_direct: bool,
        probe: u64,
    ) -> Result<(Self, DirectIo), OpenError> {
        let buffered = Self::open_all(paths, OFlags::empty())?;
        for slice_file in &buffered.files {
            // Routing is random access: readahead would read experts that nobody routed to.
            let _ = fadvise(&slice_file.file, 0, None, Advice::Random);
        }
        if !want_direct {
            return Ok((buffered, DirectIo::Off));
        }
        match Self::open_all(paths, OFlags::DIRECT) {
            Err(e) => Ok((buffered, unavailable(format!("opening with O_DIRECT: {}", e.source)))),
            Ok(direct) => match direct.compare(&buffered, probe) {
                Err(reason) => Ok((buffered, unavailable(reason))),
                Ok(()) => Ok((Self { direct: true, ..direct }, DirectIo::Used)),
            },
        }
    }

    fn open_all(paths: &[PathBuf], flags: OFlags) -> Result<Self, OpenError> {
        let files = paths
            .iter()
            .map(|path| {
                let file = OpenOptions::new()
                    .read(true)
                    .custom_flags(flags.bits() as i32)
                    .open(path)
                    .map_err(|source| OpenError { path: path.clone(), source })?;
                let state = state(&file);
                Ok(SliceFile { path: path.clone(), file, state })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { files, direct: false })
    }

    /// Reads the block at `probe` both ways; `Err` says what is wrong with the direct one.
    fn compare(&self, buffered: &Self, probe: u64) -> Result<(), String> {
        const BLOCK: usize = WINDOW_ALIGN as usize;
        let start = probe / WINDOW_ALIGN * WINDOW_ALIGN;
        let mut space = vec![0u8; 2 * BLOCK];
        let shift = space.as_ptr().align_offset(BLOCK);
        let block = &mut space[shift..shift + BLOCK];
        let got = self.files[0]
            .file
            .read_at(block, start)
            .map_err(|e| format!("reading with O_DIRECT: {e}"))?;
        let mut expected = vec![0u8; BLOCK];
        let wanted = buffered.files[0]
            .file
            .read_at(&mut expected, start)
            .map_err(|e| format!("reading the probe block: {e}"))?;
        if got != wanted || block[..got] != expected[..wanted] {
            return Err(format!(
                "O_DIRECT returned other bytes than a buffered read at offset {start}"
            ));
        }
        Ok(())
    }

    /// Whether reads must be whole aligned blocks.
    #[must_use]
    pub fn direct(&self) -> bool {
        self.direct
    }

    /// A file's path.
    #[must_use]
    pub fn path(&self, file: usize) -> &Path {
        &self.files[file].path
    }

    /// A file that was written to since it was opened (one that was replaced is still the old one here).
    #[must_use]
    pub fn changed(&self) -> Option<PathBuf> {
        self.files.iter().find(|f| state(&f.file) != f.state).map(|f| f.path.clone())
    }

    /// The open file.
    #[must_use]
    pub(super) fn file(&self, file: usize) -> &File {
        &self.files[file].file
    }
}

fn state(file: &File) -> Option<(u64, SystemTime)> {
    let metadata = file.metadata().ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}

fn unavailable(reason: String) -> DirectIo {
    DirectIo::Unavailable { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffered_reads_are_used_when_asked_for_and_a_missing_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        std::fs::write(&path, vec![7; 10_000]).unwrap();
        let (files, how) = SliceFiles::open(std::slice::from_ref(&path), false, 0).unwrap();
        assert_eq!((files.direct(), how), (false, DirectIo::Off));

        let gone = dir.path().join("gone.gguf");
        let error = SliceFiles::open(&[path, gone], true, 0).unwrap_err().to_string();
        assert!(error.contains("gone.gguf"), "{error}");
    }

    #[test]
    fn a_file_system_without_direct_reads_is_found_out() {
        // /proc files refuse O_DIRECT at open on every kernel.
        let (files, how) = SliceFiles::open(&["/proc/self/status".into()], true, 0).unwrap();
        assert!(!files.direct());
        assert!(matches!(how, DirectIo::Unavailable { reason } if reason.contains("O_DIRECT")));
    }
}
