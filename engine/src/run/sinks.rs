//! Where records go.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use bmoe_trace::codec::TraceWriter;
use bmoe_trace::csv::{MetricsCsv, RouteCsv};
use bmoe_trace::record::{Record, TurnRecord};

use super::request::TurnReport;
use crate::chat::{Delta, ThinkControl};
use crate::error::EngineError;

/// What happens beside the records: text, and where requests begin and end.
#[derive(Debug)]
pub enum Event<'a> {
    /// The engine is ready; comes behind the load record.
    Opened {
        /// How thinking is switched off.
        think_control: ThinkControl,
    },
    /// A request begins. (A turn's own record comes in sessions only.)
    TurnStarted {
        /// The turn.
        turn: &'a TurnRecord,
        /// Most decode steps that it takes.
        steps: u32,
    },
    /// What a token added, as far as it makes whole characters; comes before the token's record. The last
    /// one of a request comes behind its tokens.
    Text(&'a Delta),
    /// A request came to its end.
    TurnEnded(&'a TurnReport),
    /// A request was rejected.
    Rejected {
        /// Its name; empty = it has none.
        id: &'a str,
        /// Why.
        message: &'a str,
    },
}

/// Receives a run's records in order.
pub trait RecordSink {
    /// Takes one record.
    ///
    /// # Errors
    /// It can't be written; the run ends with that error.
    fn record(&mut self, record: &Record) -> Result<(), EngineError>;

    /// Takes what happens beside the records.
    ///
    /// # Errors
    /// It can't be written; the run ends with that error.
    fn event(&mut self, _event: &Event<'_>) -> Result<(), EngineError> {
        Ok(())
    }

    /// Whether route records are wanted.
    fn wants_routes(&self) -> bool {
        false
    }
}

pub(super) fn output_error(what: &Path, error: impl std::fmt::Display) -> EngineError {
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
