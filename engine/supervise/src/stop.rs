//! Ends a supervised run.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use bmoe_trace::supervised::{ABANDONED_FILE, Status};

use crate::follow::state;
use crate::{SuperviseError, process};

/// What the engine's own end takes at most, and a little more.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks the supervisor of a folder to end its engine and waits until it has; a run that has not begun never
/// will. Says how the run stands then.
///
/// # Errors
/// The folder can't be read or written.
pub fn stop(folder: &Path) -> Result<Status, SuperviseError> {
    let mark = folder.join(ABANDONED_FILE);
    let end = Instant::now() + PATIENCE;
    loop {
        match state(folder)? {
            Status::Running(supervisor) if Instant::now() < end => {
                process::terminate(&supervisor);
                std::thread::sleep(Duration::from_millis(100));
            }
            Status::Absent if folder.is_dir() && !mark.exists() => {
                // Then look again: a supervisor that begins looks for the mark behind its status.
                File::create(&mark).map_err(SuperviseError::io("write", &mark))?;
            }
            status => return Ok(status),
        }
    }
}
