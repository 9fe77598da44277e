//! Finding the engine binary.

use std::path::{Path, PathBuf};

use crate::error::Error;

/// Name of the engine binary.
const ENGINE: &str = "bmoe-engine";

/// The engine: as given (`--engine` or `$BMOE_ENGINE`), else beside this program.
///
/// # Errors
/// There is no such file; the message says how to build it.
pub fn find(given: Option<&Path>) -> Result<PathBuf, Error> {
    if let Some(path) = given {
        if path.is_file() {
            return Ok(path.to_owned());
        }
        return Err(Error::Refused(format!(
            "the engine {} (from --engine or $BMOE_ENGINE) is no file; build one with \
             `cargo build -p bmoe-engine`",
            path.display()
        )));
    }
    let own = own_path()?;
    let beside = own.with_file_name(ENGINE);
    if beside.is_file() {
        return Ok(beside);
    }
    Err(Error::Refused(format!(
        "no engine: {} does not exist; build it with `cargo build -p bmoe-engine`, or name another \
         with --engine or $BMOE_ENGINE",
        beside.display()
    )))
}

/// This program.
///
/// # Errors
/// The system doesn't tell.
pub fn own_path() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(Error::io("find", Path::new("the running program")))
}
