//! Standard output: the published line protocol, or the plain text.

use std::io::{self, Write};
use std::path::Path;

use bmoe_trace::line::{Begin, ErrorLine, Line, Load, Prefill, Progress, Ready};
use bmoe_trace::record::{Outcome, Published, Record, RunEnd, TokenRecord};
use bmoe_trace::{Mode, RunConfig};
use serde_json::Value;

use super::people;
use super::sinks::{Event, RecordSink, output_error};
use super::summary::{Totals, mib, seconds};
use crate::chat::Delta;
use crate::error::EngineError;

/// Standard output: the published line protocol, or the plain text (with a summary on standard error).
pub struct Lines<W> {
    out: W,
    protocol: bool,
    /// What no token's line has said yet.
    delta: Delta,
    ready: Ready,
    steps: u32,
    config: RunConfig,
    totals: Totals,
    /// Plain text: thoughts were printed and the answer was not yet.
    thinking: bool,
}

impl<W: Write> Lines<W> {
    /// `protocol` chooses between `BMOE_` lines and plain text.
    pub fn new(out: W, protocol: bool) -> Self {
        Self {
            out,
            protocol,
            delta: Delta::default(),
            ready: Ready {
                load_s: 0.0,
                arch: String::new(),
                n_ctx: 0,
                n_expert_used: 0,
                think_ctl: String::new(),
            },
            steps: 0,
            config: RunConfig::default(),
            totals: Totals::default(),
            thinking: false,
        }
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }

    fn progress(&mut self, token: &TokenRecord) -> Progress {
        let cost = &token.cost;
        let delta = std::mem::take(&mut self.delta);
        let published = Published::of(cost, self.config.overlaps());
        // The kernel or nobody reads experts in the other modes: -1 = not measured.
        let streaming = self.config.mode == Mode::Stream;
        let measured = |value: f64| if streaming { value } else { -1.0 };
        Progress {
            step: token.step,
            steps: self.steps,
            wall_ms: ms(cost.wall_ns),
            io_ms: measured(ms(published.io_ns)),
            compute_ms: ms(cost.compute_ns),
            mgmt_ms: measured(ms(cost.mgmt_ns)),
            stall_ms: ms(published.stall_ns),
            read_mb: measured(mib(published.read_bytes)),
            cache_hit_pct: self.totals.hit_pct(token),
            majflt: cost.major_faults,
            cpu_ms: ms(cost.cpu_ns),
            dense_resident_frac: token
                .memory
                .dense_resident_permille
                .map_or(-1.0, |permille| f64::from(permille) / 1000.0),
            delta_reasoning: delta.reasoning,
            delta_text: delta.text,
            reset: delta.reset.into(),
            io_wait_ms: measured(ms(cost.io_wait_ns)),
            lane_busy_ms: measured(ms(cost.lane_busy_ns)),
            other_ms: ms(cost.other_ns),
        }
    }

    /// One record in the protocol.
    fn protocol_line(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::Load(load) => {
                self.ready.load_s = seconds(load.load_ns);
                Ok(())
            }
            Record::Prefill(prefill) => self.line(&Line::Prefill(Prefill {
                n_prompt: prefill.prompt_tokens,
                prefill_s: seconds(prefill.cost.wall_ns),
                ttft_s: seconds(prefill.time_to_first_token_ns),
            })),
            Record::Token(token) => {
                let line = self.progress(token);
                if line.read_mb > 0.0 {
                    self.line(&Line::Load(Load { mb: line.read_mb, ms: line.io_ms }))?;
                }
                self.line(&Line::Progress(line))
            }
            Record::Start(_)
            | Record::End(_)
            | Record::Turn(_)
            | Record::Route(_)
            | Record::Read(_)
            | Record::Compute(_)
            | Record::Budget(_) => Ok(()),
        }
    }

    /// One event in the protocol.
    fn protocol_event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match event {
            Event::Opened { think_control } => {
                think_control.as_str().clone_into(&mut self.ready.think_ctl);
                let line = Line::Ready(self.ready.clone());
                self.line(&line)
            }
            Event::TurnStarted { turn, .. } => {
                self.line(&Line::Begin(Begin { id: name(&turn.id) }))
            }
            Event::Text(delta) => {
                if delta.reset {
                    self.delta = (*delta).clone();
                } else {
                    self.delta.reasoning.push_str(&delta.reasoning);
                    self.delta.text.push_str(&delta.text);
                }
                Ok(())
            }
            Event::TurnEnded(_) => {
                let done = self.totals.last_done().cloned().unwrap_or_default();
                self.line(&Line::Done(Box::new(done)))
            }
            Event::Rejected { id, message } => {
                let msg = (*message).to_owned();
                self.line(&Line::Error(ErrorLine { id: name(id), fatal: false, msg }))
            }
        }
    }

    /// One event in plain text.
    fn plain_event(&mut self, event: &Event<'_>) -> io::Result<()> {
        let Event::Text(delta) = event else { return Ok(()) };
        if !delta.reasoning.is_empty() && !delta.reset {
            self.thinking = true;
            write!(self.out, "{}", delta.reasoning)?;
        }
        if delta.reset || (self.thinking && !delta.text.is_empty()) {
            self.thinking = false;
            write!(self.out, "\n\n")?;
        }
        write!(self.out, "{}", delta.text)?;
        self.out.flush()
    }

    /// The end of the plain text.
    fn finish(&mut self, end: &RunEnd) -> io::Result<()> {
        // A run that never began has no text to end.
        if !matches!(end.outcome, Outcome::Failed { .. }) || !end.text.is_empty() {
            writeln!(self.out)?;
        }
        if let (Outcome::Complete, Some(done)) = (&end.outcome, self.totals.last_done()) {
            let mut text = people::summary(done, &self.config);
            if let Some(hash) = &end.logits_sha256 {
                text += &format!("logits   sha256 {hash}\n");
            }
            // The results are out; a closed standard error is no reason to fail.
            let _ = io::stderr().write_all(text.as_bytes());
        }
        Ok(())
    }
}

impl<W: Write> RecordSink for Lines<W> {
    fn record(&mut self, record: &Record) -> Result<(), EngineError> {
        if let Record::Start(start) = record {
            self.config.clone_from(&start.config);
            self.ready.arch.clone_from(&start.model.arch);
            self.ready.n_ctx = start.config.ctx_tokens;
            self.ready.n_expert_used = start.model.n_expert_used;
        }
        self.totals.add(record);
        let written = match record {
            _ if self.protocol => self.protocol_line(record),
            Record::End(end) => self.finish(end),
            _ => Ok(()),
        };
        written.map_err(|e| output_error(Path::new("standard output"), e))
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), EngineError> {
        match event {
            Event::TurnStarted { steps, .. } => {
                self.steps = *steps;
                self.delta = Delta::default();
                self.totals.start_turn();
            }
            Event::TurnEnded(report) => self.totals.end_turn(report, name(&report.id)),
            Event::Opened { .. } | Event::Text(_) | Event::Rejected { .. } => {}
        }
        let written =
            if self.protocol { self.protocol_event(event) } else { self.plain_event(event) };
        written.map_err(|e| output_error(Path::new("standard output"), e))
    }
}

/// A request's name as it came: JSON, or any text.
fn name(id: &str) -> Value {
    match id {
        "" => Value::Null,
        id => serde_json::from_str(id).unwrap_or_else(|_| Value::from(id)),
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
