//! Places where engines run: this machine, or a device on a cable.
//!
//! A [`Target`] can do few things: run a command, take a file, give one back. Everything that the harness does
//! with an engine is made of these, so this machine, a phone and a test's fake differ in nothing else.

mod adb;
mod name;

use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::runner::Exit;

pub use adb::{AdbTarget, HOME};
pub use name::{TargetName, UnknownTarget, is_address};

/// A place where engines run.
pub trait Target: Send + Sync {
    /// As a person names it: `local`, `adb:SERIAL`.
    fn name(&self) -> &str;

    /// The folder there that is bmoe's own; attempts and staged files are below it.
    fn home(&self) -> &Path;

    /// Runs a program to its end and hands over what it writes to its standard output as it comes. `Break`
    /// ends the program (or leaves it, where it can't be reached).
    ///
    /// # Errors
    /// The target can't be reached ([`TargetError::is_lost`]), or the time is up. A program that fails
    /// is no error: its exit code says so. One that does not exist has exit code 127, one that this
    /// target can't execute 126, as from a shell.
    fn exec(
        &self,
        command: &Command,
        on_stdout: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Finished, TargetError>;

    /// Makes a file of this machine available there and says under which path; a file that is there already
    /// isn't sent again. `on_progress` hears the bytes that are there.
    ///
    /// # Errors
    /// There is no room, or the target can't be reached.
    fn stage(
        &self,
        file: &StagedFile<'_>,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<PathBuf, TargetError>;

    /// Writes a small file there: whole, or not at all.
    ///
    /// # Errors
    /// It can't be written, or the target can't be reached.
    fn put(&self, content: &[u8], path: &Path) -> Result<(), TargetError>;

    /// Copies a file from there: whole, or not at all. `Ok(false)` = there is no such file.
    ///
    /// # Errors
    /// It can't be read or written, or the target can't be reached.
    fn fetch(&self, path: &Path, to: &Path) -> Result<bool, TargetError>;
}

/// A program with its arguments.
#[derive(Debug, Clone)]
pub struct Command {
    /// The program, then its arguments.
    pub words: Vec<OsString>,
    /// How long it may take; `None` = as long as it likes.
    pub limit: Option<Duration>,
}

impl Command {
    /// A program with its arguments that may take `limit`.
    pub fn new<W: Into<OsString>>(words: impl IntoIterator<Item = W>, limit: Duration) -> Self {
        Self { words: words.into_iter().map(Into::into).collect(), limit: Some(limit) }
    }

    /// The same without a limit.
    #[must_use]
    pub fn unlimited(self) -> Self {
        Self { limit: None, ..self }
    }
}

/// A program that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// How. `None` = it was left by `Break` before its end.
    pub exit: Option<Exit>,
    /// What it wrote to its standard error, at most the last 64 KiB.
    pub stderr: String,
}

/// A file to have on a target.
#[derive(Debug, Clone, Copy)]
pub struct StagedFile<'a> {
    /// Where it is here.
    pub path: &'a Path,
    /// SHA-256 of its content, hex.
    pub sha256: &'a str,
    /// Whether it is a program.
    pub executable: bool,
}

/// What went wrong with a target.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// It was there and is not now, or does not answer.
    #[error("{target} is lost: {reason}")]
    Lost {
        /// Its name.
        target: String,
        /// What was seen.
        reason: String,
    },
    /// It can't be used until somebody does something about it.
    #[error("{target} cannot be used: {reason}; {remedy}")]
    Unusable {
        /// Its name.
        target: String,
        /// What was seen.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// The time of a command was up.
    #[error("{target} took longer than {limit_s} s for `{what}`")]
    TimedOut {
        /// Its name.
        target: String,
        /// The command.
        what: String,
        /// Its time.
        limit_s: u64,
    },
    /// There is too little room.
    #[error(
        "{target} has {free_mib} MiB free in {folder}, {needed_mib} MiB are needed; `bmoe clean` removes what bmoe put there"
    )]
    NoSpace {
        /// Its name.
        target: String,
        /// Where.
        folder: PathBuf,
        /// What is free.
        free_mib: u64,
        /// What is needed.
        needed_mib: u64,
    },
    /// Something else.
    #[error("{target}: cannot {what}: {source}")]
    Failed {
        /// Its name.
        target: String,
        /// What was being done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl TargetError {
    /// Whether waiting and connecting again may help.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}
