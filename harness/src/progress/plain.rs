//! One line when a run starts and one when it ends, for logs and pipes.

use std::io::Write;

use bmoe_analysis::result_set::CellRecord;
use bmoe_trace::line::{Done, Line};

use super::{about, label, outcome};
use crate::matrix::Cell;
use crate::runner::{Observer, Place};

/// Writes lines. What can't be written is lost: watching must not stop the measuring.
#[derive(Debug)]
pub(super) struct Plain<W: Write> {
    out: W,
    done: Option<Done>,
}

impl<W: Write> Plain<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, done: None }
    }
}

impl<W: Write> Observer for Plain<W> {
    fn started(&mut self, cell: &Cell, repetition: u32, place: Place) {
        self.done = None;
        let left = place.left.map_or_else(String::new, |l| format!(" (about {} left)", about(l)));
        let number = place.index + 1;
        let label = label(cell, repetition);
        let _ = writeln!(self.out, "[{number}/{}] {label}{left}", place.total);
    }

    fn line(&mut self, line: &Line) {
        if let Line::Done(done) = line {
            self.done = Some((**done).clone());
        }
    }

    fn ended(&mut self, record: &CellRecord) {
        let _ = writeln!(self.out, "      {}", outcome(record, self.done.as_ref()));
    }

    fn notice(&mut self, text: &str) {
        let _ = writeln!(self.out, "note: {text}");
    }
}
