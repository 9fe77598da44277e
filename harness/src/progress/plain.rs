//! One line when a run starts and one when it ends, for logs and pipes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bmoe_analysis::result_set::CellRecord;
use bmoe_trace::line::{Done, Line};

use super::{about, label, mib, outcome};
use crate::matrix::Cell;
use crate::runner::{Observer, Place};

/// Writes lines. What can't be written is lost: watching must not stop the measuring.
#[derive(Debug)]
pub(super) struct Plain<W: Write> {
    out: W,
    /// Stands in front of every line where there are several targets.
    target: String,
    done: Option<Done>,
    /// The file that is being sent.
    sending: Option<PathBuf>,
    /// What is waited for has been said.
    waiting: bool,
}

impl<W: Write> Plain<W> {
    pub(super) fn new(out: W, target: Option<String>) -> Self {
        let target = target.map_or_else(String::new, |name| format!("{name}: "));
        Self { out, target, done: None, sending: None, waiting: false }
    }

    fn print(&mut self, line: &str) {
        let _ = writeln!(self.out, "{}{line}", self.target);
    }
}

impl<W: Write> Observer for Plain<W> {
    fn sending(&mut self, file: &Path, done_bytes: u64, of_bytes: u64) {
        let whole = done_bytes >= of_bytes;
        let begun = self.sending.as_deref() == Some(file);
        if !begun && !whole {
            self.print(&format!("sending {} ({}) ...", file.display(), mib(of_bytes)));
            self.sending = Some(file.to_owned());
        } else if begun && whole {
            self.print(&format!("sending {}: done", file.display()));
            self.sending = None;
        }
    }

    fn waiting(&mut self, what: &str, _: Duration, at_most: Duration) {
        if !std::mem::replace(&mut self.waiting, true) {
            self.print(&format!("      waiting, {} at most: {what}", about(at_most)));
        }
    }

    fn started(&mut self, cell: &Cell, repetition: u32, place: Place) {
        self.done = None;
        let left = place.left.map_or_else(String::new, |l| format!(" (about {} left)", about(l)));
        let number = place.index + 1;
        let label = label(cell, repetition);
        self.waiting = false;
        self.print(&format!("[{number}/{}] {label}{left}", place.total));
    }

    fn line(&mut self, line: &Line) {
        if let Line::Done(done) = line {
            self.done = Some((**done).clone());
        }
    }

    fn ended(&mut self, record: &CellRecord) {
        self.print(&format!("      {}", outcome(record, self.done.as_ref())));
    }

    fn notice(&mut self, text: &str) {
        self.print(&format!("note: {text}"));
    }
}
