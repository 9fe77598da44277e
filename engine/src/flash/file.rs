//! The model's files, opened for reading slices.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bmoe_trace::record::DirectIo;
use rustix::fs::{Advice, OFlags, fadvise};

use super::fault::{Attempt, Fault, Faults};
use super::probe::{self, Probe};

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
    faults: Faults,
}

/// A file that can't be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open {}: {source}", path.display())]
pub struct OpenError {
    path: PathBuf,
    source: io::Error,
}

impl SliceFiles {
    /// Opens the files, with O_DIRECT when `want_direct` and the file system really does it.
    ///
    /// "Really" is tested at the `probes`: some file systems accept O_DIRECT when opening and then fail
    /// or return other bytes, so some pieces are read both ways and compared.
    ///
    /// # Errors
    /// A file can't be opened even for buffered reads.
    pub fn open(
        paths: &[PathBuf],
        want_direct: bool,
        probes: &[Probe],
    ) -> Result<(Self, DirectIo), OpenError> {
        let buffered = Self::open_all(paths, OFlags::empty())?;
        for slice_file in &buffered.files {
            // Routing is random access: readahead would read experts that nobody routed to.
            let _ = fadvise(&slice_file.file, 0, None, Advice::Random);
        }
        if !want_direct {
            return Ok((buffered, DirectIo::Off));
        }
        let direct = match Self::open_all(paths, OFlags::DIRECT) {
            Ok(files) => Self { direct: true, ..files },
            Err(e) => {
                let reason = format!("opening with O_DIRECT: {}", e.source);
                return Ok((buffered, DirectIo::Unavailable { reason }));
            }
        };
        let read_direct = |file: usize, part: &mut [u8], at| direct.file(file).read_at(part, at);
        let read_buffered =
            |file: usize, part: &mut [u8], at| buffered.file(file).read_at(part, at);
        Ok(match probe::compare(probes, read_direct, read_buffered) {
            Ok(()) => (direct, DirectIo::Used),
            Err(reason) => (buffered, DirectIo::Unavailable { reason }),
        })
    }

    /// The same files with faults on the way (for tests).
    #[must_use]
    pub fn with_faults(self, faults: Faults) -> Self {
        Self { faults, ..self }
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
        Ok(Self { files, direct: false, faults: Faults::default() })
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

    /// The open files.
    pub(super) fn all(&self) -> impl Iterator<Item = &File> {
        self.files.iter().map(|f| &f.file)
    }

    /// The fault that an attempt meets.
    pub(super) fn fault(&self, file: usize, offset: u64, bytes: usize) -> Option<Fault> {
        self.faults.of(Attempt { file, offset, bytes })
    }

    /// One attempt to fill `part`.
    pub(super) fn read_at(&self, file: usize, part: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.fault(file, offset, part.len()) {
            None => self.file(file).read_at(part, offset),
            Some(Fault::Short(bytes)) => {
                let bytes = part.len().min(bytes);
                self.file(file).read_at(&mut part[..bytes], offset)
            }
            Some(Fault::Error(number)) => Err(io::Error::from_raw_os_error(number)),
        }
    }

    /// Lets the system forget what it has cached of the files.
    pub(super) fn drop_cached(&self) {
        for file in self.all() {
            let _ = fadvise(file, 0, None, Advice::DontNeed);
        }
    }
}

fn state(file: &File) -> Option<(u64, SystemTime)> {
    let metadata = file.metadata().ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffered_reads_are_used_when_asked_for_and_a_missing_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        std::fs::write(&path, vec![7; 10_000]).unwrap();
        let (files, how) = SliceFiles::open(std::slice::from_ref(&path), false, &[]).unwrap();
        assert_eq!((files.direct(), how), (false, DirectIo::Off));

        let gone = dir.path().join("gone.gguf");
        let error = SliceFiles::open(&[path, gone], true, &[]).unwrap_err().to_string();
        assert!(error.contains("gone.gguf"), "{error}");
    }

    #[test]
    fn a_file_system_without_direct_reads_is_found_out() {
        // /proc files refuse O_DIRECT at open on every kernel.
        let (files, how) = SliceFiles::open(&["/proc/self/status".into()], true, &[]).unwrap();
        assert!(!files.direct());
        assert!(matches!(how, DirectIo::Unavailable { reason } if reason.contains("O_DIRECT")));
    }
}
