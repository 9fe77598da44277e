//! Files that are there as a whole or not at all.

use std::fs::Permissions;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Writes a file under another name and renames it when it is on the disk.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_from(path, &mut &*bytes)
}

/// The same with what a reader gives.
pub(crate) fn write_from(path: &Path, bytes: &mut dyn Read) -> io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file =
        tempfile::Builder::new().permissions(Permissions::from_mode(0o644)).tempfile_in(folder)?;
    io::copy(bytes, &mut file)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
