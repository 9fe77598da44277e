//! Files that appear whole or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

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
