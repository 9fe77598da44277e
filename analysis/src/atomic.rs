//! Files that appear whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tempfile::NamedTempFile;

use crate::error::{AnalysisError, Result};

/// A file being written beside its place; it gets its name with [`Self::commit`], or vanishes.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    temp: NamedTempFile,
    path: PathBuf,
}

impl AtomicFile {
    /// Starts the file, and its folder when that is missing.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(AnalysisError::io("make the folder", folder))?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".").suffix(".part");
        // Temporary files are private by default; these become ordinary files of the folder.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
        let temp = builder.tempfile_in(folder).map_err(AnalysisError::io("write", path))?;
        Ok(Self { temp, path: path.to_owned() })
    }

    /// The file to write into.
    pub(crate) fn file(&self) -> &File {
        self.temp.as_file()
    }

    /// Puts the file in its place.
    pub(crate) fn commit(self) -> Result<()> {
        let Self { temp, path } = self;
        temp.as_file().sync_all().map_err(AnalysisError::io("write", &path))?;
        temp.persist(&path).map_err(|e| AnalysisError::io("write", &path)(e.error))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(AnalysisError::io("write", folder))
    }
}

/// Writes a whole file.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let file = AtomicFile::create(path)?;
    file.file().write_all(bytes).map_err(AnalysisError::io("write", path))?;
    file.commit()
}

/// A writer whose failure can be asked for after a layer above has worded it away.
#[derive(Debug)]
pub(crate) struct Watched<W> {
    out: W,
    failure: WriteFailure,
}

/// The last error of a [`Watched`] writer.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteFailure(Arc<Mutex<Option<io::Error>>>);

impl WriteFailure {
    pub(crate) fn take(&self) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn keep(&self, error: &io::Error) {
        let copy = match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(copy);
    }
}

impl<W: Write> Watched<W> {
    pub(crate) fn new(out: W) -> (Self, WriteFailure) {
        let failure = WriteFailure::default();
        (Self { out, failure: failure.clone() }, failure)
    }

    fn watch<T>(&mut self, act: impl FnOnce(&mut W) -> io::Result<T>) -> io::Result<T> {
        let done = act(&mut self.out);
        if let Err(error) = &done {
            self.failure.keep(error);
        }
        done
    }
}

impl<W: Write> Write for Watched<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.watch(|out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.watch(Write::flush)
    }
}
