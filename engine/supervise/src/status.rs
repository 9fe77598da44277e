//! `status.json`: there as a whole, or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use bmoe_trace::supervised::{STATUS_FILE, Status};

use crate::SuperviseError;

/// Writes it under another name and renames it when it is on the disk.
pub(crate) fn write(dir: &Path, status: &Status) -> Result<(), SuperviseError> {
    let path = dir.join(STATUS_FILE);
    let part = dir.join(format!("{STATUS_FILE}.part"));
    let json = serde_json::to_vec(status).expect("a status is plain data");
    let written = File::create(&part).and_then(|mut file| {
        file.write_all(&json)?;
        file.sync_all()?;
        fs::rename(&part, &path)
    });
    written.map_err(SuperviseError::io("write", &path))
}

/// What it says; `None` when there is none.
pub(crate) fn read(dir: &Path) -> Result<Option<Status>, SuperviseError> {
    let path = dir.join(STATUS_FILE);
    match fs::read(&path) {
        Ok(json) => serde_json::from_slice(&json).map(Some).map_err(|e| {
            SuperviseError::Other(format!("{} is no status of a run: {e}", path.display()))
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(SuperviseError::io("read", &path)(e)),
    }
}
