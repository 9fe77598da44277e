//! Up to where a run is shown.

use std::time::Duration;

use super::RunData;

/// How fast time goes by: a quarter to sixteen times.
pub const SPEEDS: [f64; 7] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];
const NORMAL: usize = 2;

/// A place in a run's time, and how it moves.
#[derive(Debug, Clone, PartialEq)]
pub struct Playhead {
    /// Nanoseconds of decoding since the first step began.
    at_ns: u64,
    /// Time goes by.
    playing: bool,
    /// Stays at the end, wherever that is.
    at_end: bool,
    /// Index into [`SPEEDS`].
    speed: usize,
}

impl Default for Playhead {
    fn default() -> Self {
        Self { at_ns: 0, playing: true, at_end: false, speed: NORMAL }
    }
}

impl Playhead {
    /// Tokens whose steps have ended.
    #[must_use]
    pub fn tokens(&self, run: &RunData) -> usize {
        if self.at_end {
            return run.steps().len();
        }
        run.ends_ns().partition_point(|end| *end <= self.at_ns)
    }

    /// Whether the view moves by itself.
    #[must_use]
    pub fn moves(&self) -> bool {
        self.playing
    }

    /// Whether it stays at the end of a run in progress.
    #[must_use]
    pub fn follows(&self) -> bool {
        self.at_end && self.playing
    }

    /// Times of real time.
    #[must_use]
    pub fn speed(&self) -> f64 {
        SPEEDS[self.speed]
    }

    /// Nanoseconds since the first step began.
    #[must_use]
    pub fn at_ns(&self, run: &RunData) -> u64 {
        if self.at_end { run.decode_ns() } else { self.at_ns }
    }

    /// To the beginning of a run that is over, to the end of one that goes on.
    pub fn rewind(&mut self, live: bool) {
        *self = Self { playing: true, at_end: live, at_ns: 0, speed: self.speed };
    }

    /// Time goes by.
    pub fn pass(&mut self, elapsed: Duration, run: &RunData) {
        if !self.playing || self.at_end {
            return;
        }
        let step_ns = elapsed.as_nanos() as f64 * self.speed();
        self.at_ns = self.at_ns.saturating_add(step_ns as u64);
        if self.at_ns >= run.decode_ns() {
            self.at_ns = run.decode_ns();
            if run.over {
                self.playing = false;
            } else {
                // What was watched again has caught up with the run.
                self.at_end = true;
            }
        }
    }

    /// Holds the view or lets it go on: a replay that is at its end from the beginning, a run in progress at
    /// its end.
    pub fn pause(&mut self, run: &RunData) {
        if self.playing {
            self.hold(run);
        } else if !run.over {
            (self.playing, self.at_end) = (true, true);
        } else {
            self.hold(run);
            if self.at_ns >= run.decode_ns() {
                self.at_ns = 0;
            }
            self.playing = true;
        }
    }

    fn hold(&mut self, run: &RunData) {
        self.at_ns = self.at_ns(run);
        (self.playing, self.at_end) = (false, false);
    }

    /// Shows so many tokens and holds there.
    pub fn seek(&mut self, tokens: usize, run: &RunData) {
        self.hold(run);
        self.at_ns = match tokens.min(run.steps().len()) {
            0 => 0,
            tokens => run.ends_ns()[tokens - 1],
        };
    }

    /// So many tokens on or back.
    pub fn step(&mut self, by: i64, run: &RunData) {
        let at = i64::try_from(self.tokens(run)).unwrap_or(i64::MAX);
        self.seek(usize::try_from(at.saturating_add(by)).unwrap_or(0), run);
    }

    /// To the end; of a run in progress it stays there.
    pub fn to_end(&mut self, run: &RunData) {
        self.seek(usize::MAX, run);
        if !run.over {
            (self.playing, self.at_end) = (true, true);
        }
    }

    /// Twice the speed, or half of it.
    pub fn change_speed(&mut self, faster: bool) {
        let next = if faster { self.speed + 1 } else { self.speed.saturating_sub(1) };
        self.speed = next.min(SPEEDS.len() - 1);
    }
}
