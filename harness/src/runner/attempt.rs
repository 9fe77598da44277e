//! What one attempt left behind.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use bmoe_trace::codec::TraceReader;
use bmoe_trace::line::{Done, Line};
use bmoe_trace::record::{Outcome, Record};

use super::lines::{LINE_BYTES, read_line};

/// What the runner keeps of an engine's lines.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Observed {
    /// Decode steps seen and asked for.
    pub(super) steps: Option<(u32, u32)>,
    pub(super) done: Option<Done>,
    pub(super) error: Option<String>,
}

impl Observed {
    pub(super) fn line(&mut self, line: &Line) {
        match line {
            Line::Progress(p) => self.steps = Some((p.step, p.steps)),
            Line::Done(done) => self.done = Some((**done).clone()),
            Line::Error(error) => self.error = Some(error.msg.clone()),
            Line::Ready(_) | Line::Begin(_) | Line::Prefill(_) | Line::Load(_) => {}
        }
    }
}

/// What the runner keeps of a trace.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TraceSummary {
    pub(super) run_id: Option<String>,
    /// Token ids of the decode steps.
    pub(super) tokens: Vec<i32>,
    pub(super) outcome: Option<Outcome>,
    pub(super) text: String,
    /// Most of the engine's memory that was swapped out behind a decode step.
    pub(super) swap_peak_bytes: Option<u64>,
    /// Why the trace can't be read to its end.
    pub(super) damage: Option<String>,
}

impl TraceSummary {
    /// Reads as much as there is; a trace that is missing or damaged says so in `damage`.
    pub(super) fn read(path: &Path) -> Self {
        let mut summary = Self::default();
        if let Err(damage) = summary.fill(path) {
            summary.damage = Some(damage);
        }
        summary
    }

    fn fill(&mut self, path: &Path) -> Result<(), String> {
        let file = File::open(path).map_err(|e| format!("the trace cannot be opened: {e}"))?;
        let mut reader = TraceReader::new(BufReader::new(file)).map_err(|e| e.to_string())?;
        while let Some(record) = reader.read().map_err(|e| e.to_string())? {
            match record {
                Record::Start(start) => self.run_id = Some(start.run_id),
                Record::Token(token) => {
                    self.tokens.push(token.token);
                    self.swap_peak_bytes = self.swap_peak_bytes.max(token.memory.swap_bytes);
                }
                Record::End(end) => {
                    self.outcome = Some(end.outcome);
                    self.text = end.text;
                }
                Record::Load(_)
                | Record::Turn(_)
                | Record::Route(_)
                | Record::Read(_)
                | Record::Compute(_)
                | Record::Budget(_)
                | Record::Prefill(_) => {}
            }
        }
        Ok(())
    }
}

/// The last line of the log that says `error: ...`.
pub(super) fn last_error(log: &Path) -> Option<String> {
    let mut reader = BufReader::new(File::open(log).ok()?);
    let (mut line, mut last) = (Vec::new(), None);
    while matches!(read_line(&mut reader, &mut line, LINE_BYTES), Ok(true)) {
        if let Some(error) = String::from_utf8_lossy(&line).strip_prefix("error: ") {
            last = Some(error.trim_end().to_owned());
        }
    }
    last
}
