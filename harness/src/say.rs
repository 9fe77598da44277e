//! Standard output for people and pipes: a reader that has seen enough is no error and no panic.

use std::fmt;
use std::io::{self, Write};

/// A line on standard output, in the place of `println!`.
macro_rules! say {
    () => { $crate::say::line(format_args!("")) };
    ($($words:tt)*) => { $crate::say::line(format_args!($($words)*)) };
}
pub(crate) use say;

/// Writes a line. Once a write has failed for another reason than a closed pipe it is told, on standard error.
pub(crate) fn line(words: fmt::Arguments<'_>) {
    let written = writeln!(io::stdout().lock(), "{words}");
    if let Err(error) = written.or_else(closed)
        && !TOLD.swap(true, std::sync::atomic::Ordering::Relaxed)
    {
        let _ = writeln!(io::stderr(), "warning: standard output cannot be written: {error}");
    }
}

static TOLD: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Whoever reads has seen enough.
pub(crate) fn closed(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
}
