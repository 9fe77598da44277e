//! What is known of the runs that are looked at, and up to where it is shown.

mod cell;
mod playhead;
mod routes;
mod run;

use std::time::Duration;

pub use cell::{CellView, State};
pub use playhead::{Playhead, SPEEDS};
pub use routes::RouteLog;
pub use run::{RunData, RunKey, Step};

/// What happens with the runs meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// They are over.
    #[default]
    Replay,
    /// They go on.
    Live,
}

/// Everything that the screens show. Sources add to it, screens read it and move the playhead.
#[derive(Debug, Default)]
pub struct World {
    /// What is looked at: a folder's or a file's name.
    pub name: String,
    /// Whether anything can still come.
    pub mode: Mode,
    /// The runs, in the order of their starts.
    pub runs: Vec<RunData>,
    /// The cells of the matrix; empty for what is none.
    pub cells: Vec<CellView>,
    /// What all runs that are to come will probably take.
    pub left: Option<Duration>,
    /// The last thing that a person should know.
    pub notice: Option<String>,
    /// Where in the selected run the view is.
    pub playhead: Playhead,
    pub(in crate::view) selected: usize,
    /// The person chose the run: a run that starts does not take its place.
    pub(in crate::view) chosen: bool,
}

impl World {
    /// The selected run.
    #[must_use]
    pub fn run(&self) -> Option<&RunData> {
        self.runs.get(self.selected)
    }

    /// Which one that is.
    #[must_use]
    pub fn selected(&self) -> usize {
        self.selected
    }

    /// Tokens of the selected run that are shown.
    #[must_use]
    pub fn shown_tokens(&self) -> usize {
        self.run().map_or(0, |run| self.playhead.tokens(run))
    }

    /// The steps of the selected run that are shown.
    #[must_use]
    pub fn shown(&self) -> &[Step] {
        self.run().map_or(&[], |run| &run.steps()[..self.playhead.tokens(run)])
    }

    /// Shows another run, from its beginning, or a run in progress at its end.
    pub fn select(&mut self, index: usize) {
        if index < self.runs.len() && index != self.selected {
            self.selected = index;
            self.rewind();
        }
        self.chosen = true;
    }

    /// A run has started: it is shown unless the person chose another one.
    pub fn add_run(&mut self, run: RunData) -> usize {
        self.runs.push(run);
        let last = self.runs.len() - 1;
        if !self.chosen && (self.mode == Mode::Live || last == 0) {
            self.selected = last;
            self.rewind();
        }
        last
    }

    /// The selected run turned out to be over: it is shown from its beginning.
    pub fn replay(&mut self) {
        self.rewind();
    }

    fn rewind(&mut self) {
        let live = self.run().is_some_and(|run| !run.over);
        self.playhead.rewind(live);
    }

    /// Time goes by.
    pub fn pass(&mut self, elapsed: Duration) {
        if let Some(run) = self.runs.get(self.selected) {
            self.playhead.pass(elapsed, run);
        }
    }

    /// Moves the playhead of the selected run.
    pub fn seek(&mut self, to: impl FnOnce(&mut Playhead, &RunData)) {
        if let Some(run) = self.runs.get(self.selected) {
            to(&mut self.playhead, run);
        }
    }
}
