//! Where records go.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use bmoe_trace::Mode;
use bmoe_trace::codec::TraceWriter;
use bmoe_trace::csv::{MetricsCsv, RouteCsv};
use bmoe_trace::line::{Line, Prefill, Progress, Ready};
use bmoe_trace::record::{Outcome, Record, RunEnd, TokenRecord};

use super::summary::{self, Totals, mib, seconds};

use crate::error::EngineError;

/// Receives a run's records in order.
pub trait RecordSink {
    /// Takes one record.
    ///
    /// # Errors
    /// It can't be written; the run ends with that error.
    fn record(&mut self, record: &Record) -> Result<(), EngineError>;

    /// Takes the text of a token, as far as it makes whole characters; comes before the token's record.
    ///
    /// # Errors
    /// It can't be written; the run ends with that error.
    fn text(&mut self, _text: &str) -> Result<(), EngineError> {
        Ok(())
    }

    /// Whether route records are wanted.
    fn wants_routes(&self) -> bool {
        false
    }
}

fn output_error(what: &Path, error: impl std::fmt::Display) -> EngineError {
    EngineError::Output { what: what.display().to_string(), message: error.to_string() }
}

fn create(path: &Path) -> Result<File, EngineError> {
    File::create(path).map_err(|e| output_error(path, e))
}

/// The binary trace. Everything up to the last finished token reaches the system at once, so it
/// survives the death of the process.
///
/// Like all file sinks it creates its file, replacing an older one, when the run starts to load: a run
/// that is refused before leaves older results alone.
pub struct TraceFile {
    path: PathBuf,
    writer: Option<TraceWriter<BufWriter<File>>>,
}

impl TraceFile {
    /// Writes to `path`.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), writer: None }
    }
}

impl RecordSink for TraceFile {
    fn record(&mut self, record: &Record) -> Result<(), EngineError> {
        let error = |e| output_error(&self.path, e);
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                none.insert(TraceWriter::new(BufWriter::new(create(&self.path)?)).map_err(error)?)
            }
        };
        writer.write(record).map_err(error)?;
        if !matches!(record, Record::Route(_) | Record::Read(_) | Record::Compute(_)) {
            writer.flush().map_err(error)?;
        }
        Ok(())
    }

    fn wants_routes(&self) -> bool {
        true
    }
}

/// `--csv`
pub struct MetricsFile {
    path: PathBuf,
    csv: Option<MetricsCsv<File>>,
}

impl MetricsFile {
    /// Writes to `path`.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), csv: None }
    }
}

impl RecordSink for MetricsFile {
    fn record(&mut self, record: &Record) -> Result<(), EngineError> {
        let csv = match &mut self.csv {
            Some(csv) => csv,
            none => none.insert(MetricsCsv::new(create(&self.path)?)),
        };
        csv.record(record).map_err(|e| output_error(&self.path, e))
    }
}

/// `--route-trace`
pub struct RouteFile {
    path: PathBuf,
    csv: Option<RouteCsv<BufWriter<File>>>,
}

impl RouteFile {
    /// Writes to `path`.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), csv: None }
    }
}

impl RecordSink for RouteFile {
    fn record(&mut self, record: &Record) -> Result<(), EngineError> {
        let csv = match &mut self.csv {
            Some(csv) => csv,
            none => none.insert(RouteCsv::new(BufWriter::new(create(&self.path)?))),
        };
        csv.record(record).map_err(|e| output_error(&self.path, e))
    }

    fn wants_routes(&self) -> bool {
        true
    }
}

/// Standard output: the published line protocol, or the plain text (with a summary on standard error).
pub struct Lines<W> {
    out: W,
    protocol: bool,
    delta: String,
    ready: Ready,
    steps: u32,
    streaming: bool,
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
            steps: 0,
            streaming: false,
            totals: Totals::default(),
        }
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }

    fn progress(&mut self, token: &TokenRecord) -> Progress {
        let cost = &token.cost;
        // The kernel or nobody reads experts in the other modes: -1 = not measured.
        let measured = |value: f64| if self.streaming { value } else { -1.0 };
        Progress {
            step: token.step,
            steps: self.steps,
            wall_ms: ms(cost.wall_ns),
            io_ms: measured(ms(cost.io_wait_ns)),
            compute_ms: ms(cost.compute_ns),
            mgmt_ms: measured(ms(cost.mgmt_ns)),
            stall_ms: 0.0,
            read_mb: measured(mib(cost.expert_read_bytes)),
            cache_hit_pct: self.totals.hit_pct(token),
            majflt: cost.major_faults,
            cpu_ms: ms(cost.cpu_ns),
            delta_text: std::mem::take(&mut self.delta),
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
            let mut text = summary::for_people(&self.totals.done(end), self.streaming);
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
            self.steps = start.config.n_predict;
            self.streaming = start.config.mode == Mode::Stream;
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
