//! Standard output.

use std::io::{self, Write};
use std::path::Path;

use bmoe_trace::line::{Line, Prefill, Progress, Ready};
use bmoe_trace::record::{Outcome, Published, Record, RunEnd, TokenRecord};
use bmoe_trace::{Mode, RunConfig};

use super::{RecordSink, output_error};
use crate::error::EngineError;
use crate::run::people;
use crate::run::summary::{Totals, mib, seconds};

/// Standard output: the published line protocol, or the plain text (with a summary on standard error).
pub struct Lines<W> {
    out: W,
    protocol: bool,
    delta: String,
    ready: Ready,
    config: RunConfig,
    totals: Totals,
}

impl<W: Write> Lines<W> {
    /// `protocol` chooses between `BMOE_` lines and plain text.
    pub fn new(out: W, protocol: bool) -> Self {
        Self {
            out,
            protocol,
            delta: String::new(),
            ready: Ready { load_s: 0.0, arch: String::new(), n_ctx: 0, n_expert_used: 0 },
            config: RunConfig::default(),
            totals: Totals::default(),
        }
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }

    fn progress(&mut self, token: &TokenRecord) -> Progress {
        let cost = &token.cost;
        let published = Published::of(cost, self.config.overlaps());
        // The kernel or nobody reads experts in the other modes: -1 = not measured.
        let streaming = self.config.mode == Mode::Stream;
        let measured = |value: f64| if streaming { value } else { -1.0 };
        Progress {
            step: token.step,
            steps: self.config.n_predict,
            wall_ms: ms(cost.wall_ns),
            io_ms: measured(ms(published.io_ns)),
            compute_ms: ms(cost.compute_ns),
            mgmt_ms: measured(ms(cost.mgmt_ns)),
            stall_ms: ms(published.stall_ns),
            read_mb: measured(mib(published.read_bytes)),
            cache_hit_pct: self.totals.hit_pct(token),
            majflt: cost.major_faults,
            cpu_ms: ms(cost.cpu_ns),
            dense_resident_frac: -1.0,
            delta_text: std::mem::take(&mut self.delta),
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
                let line = Line::Ready(self.ready.clone());
                self.line(&line)
            }
            Record::Prefill(prefill) => self.line(&Line::Prefill(Prefill {
                n_prompt: prefill.prompt_tokens,
                prefill_s: seconds(prefill.cost.wall_ns),
                ttft_s: seconds(prefill.time_to_first_token_ns),
            })),
            Record::Token(token) => {
                let line = self.progress(token);
                self.line(&Line::Progress(line))
            }
            Record::End(end) if end.outcome == Outcome::Complete => {
                let line = Line::Done(self.totals.done(end));
                self.line(&line)
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

    /// The end of the plain text.
    fn finish(&mut self, end: &RunEnd) -> io::Result<()> {
        writeln!(self.out)?;
        if end.outcome == Outcome::Complete {
            let mut text = people::summary(&self.totals.done(end), &self.config);
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
            self.config = start.config.clone();
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

    fn text(&mut self, text: &str) -> Result<(), EngineError> {
        if self.protocol {
            self.delta.push_str(text);
            return Ok(());
        }
        write!(self.out, "{text}")
            .and_then(|()| self.out.flush())
            .map_err(|e| output_error(Path::new("standard output"), e))
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
