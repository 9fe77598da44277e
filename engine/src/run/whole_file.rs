//! Files that are written at once, and that nobody is to find half written.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Writes a file beside its place, syncs it and renames it. A link is followed. What is no regular file (a
/// device, a pipe) can't be half of a file, and is written to as it is.
///
/// # Errors
/// The place can't be written to; what was there is as it was.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if path.exists() && !path.is_file() {
        let mut file = std::fs::OpenOptions::new().write(true).open(&path)?;
        file.write_all(bytes)?;
        return file.flush();
    }
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        // As with any new file, the process's mask takes away what it doesn't want.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_and_devices_stay_devices() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_whole(&link, b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        assert_ne!(file.metadata().unwrap().permissions().mode() & 0o077, 0);

        let full = Path::new("/dev/full");
        let error = write_whole(full, b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(!full.is_file());
    }
}
