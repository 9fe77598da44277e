//! The files of one attempt, while they grow or afterwards.

use std::path::Path;

use bmoe_trace::supervised::{Followed, LINES_FILE, SAMPLES_FILE, Sample, TRACE_FILE};

use super::records::Taker;
use super::tail::{LineTail, Look, TraceTail};
use crate::runner::FOLLOWED_FILE;
use crate::view::world::RunData;

/// Reads an attempt's folder, or a trace alone.
#[derive(Debug)]
pub struct AttemptFeed {
    trace: TraceTail,
    /// The engine's lines: here, or what was heard of a device.
    lines: Vec<LineTail>,
    samples: LineTail,
    taker: Taker,
    damaged: bool,
}

impl AttemptFeed {
    /// Of the folder that an attempt writes into, or that is written for it.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        let lines = [LINES_FILE, FOLLOWED_FILE];
        Self {
            trace: TraceTail::new(&folder.join(TRACE_FILE)),
            lines: lines.iter().map(|name| LineTail::new(&folder.join(name))).collect(),
            samples: LineTail::new(&folder.join(SAMPLES_FILE)),
            taker: Taker::default(),
            damaged: false,
        }
    }

    /// Of a trace without anything beside it.
    #[must_use]
    pub fn of_trace(path: &Path) -> Self {
        Self { trace: TraceTail::new(path), lines: Vec::new(), ..Self::new(Path::new("")) }
    }

    /// Whether the trace has its last record.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.taker.ended()
    }

    /// Takes what has come; whether there is more at once.
    pub fn poll(&mut self, run: &mut RunData) -> bool {
        let taker = &mut self.taker;
        let mut more = false;
        if !self.damaged {
            match self.trace.take(|record| taker.record(run, record)) {
                Ok(look) => more = look == Look::Part,
                Err(error) => {
                    run.trouble = Some(error.to_string());
                    self.damaged = true;
                }
            }
        }
        for tail in &mut self.lines {
            let taken = tail.take(|line| match Followed::parse(line) {
                Some(Followed::Line(line)) => taker.line(run, &line),
                Some(Followed::Sample(sample)) => add(run, *sample),
                Some(Followed::At(_) | Followed::Status(_)) | None => {}
            });
            more |= taken.unwrap_or(false);
        }
        let samples = self.samples.take(|line| {
            if let Ok(sample) = serde_json::from_str::<Sample>(line) {
                add(run, sample);
            }
        });
        more | samples.unwrap_or(false)
    }
}

/// Samples come in the order of their times; those heard twice are dropped.
fn add(run: &mut RunData, sample: Sample) {
    if run.samples.last().is_none_or(|last| last.unix_ms < sample.unix_ms) {
        run.samples.push(sample);
    }
}
