//! Files that records are written to.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use bmoe_trace::codec::{CodecError, TraceWriter};
use bmoe_trace::csv::{MetricsCsv, RouteCsv};
use bmoe_trace::record::Record;

use super::{RecordSink, output_error};
use crate::error::EngineError;

/// The binary trace (`--trace`). Everything up to the last finished token reaches the system at once, so
/// it survives the death of the process.
pub type TraceFile = FileSink<TraceWriter<BufWriter<File>>>;

/// What each token cost (`--csv`).
pub type MetricsFile = FileSink<MetricsCsv<BufWriter<File>>>;

/// Which experts each token used (`--route-trace`).
pub type RouteFile = FileSink<RouteCsv<BufWriter<File>>>;

/// Writes records to a file, which it creates, replacing an older one, when the run starts to load: a run
/// that is refused before leaves older results alone.
#[derive(Debug)]
pub struct FileSink<F> {
    path: PathBuf,
    format: Option<F>,
}

impl<F> FileSink<F> {
    /// Writes to `path`.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), format: None }
    }
}

/// How records look in a file.
pub trait Format: Sized {
    /// Whether the format holds routes.
    const ROUTES: bool;

    /// Writes what stands before the first record.
    ///
    /// # Errors
    /// The file can't be written.
    fn start(out: BufWriter<File>) -> io::Result<Self>;

    /// Writes one record.
    ///
    /// # Errors
    /// The file can't be written.
    fn put(&mut self, record: &Record) -> io::Result<()>;
}

impl<F: Format> RecordSink for FileSink<F> {
    fn record(&mut self, record: &Record) -> Result<(), EngineError> {
        let put = |format: &mut Option<F>| {
            let format = match format {
                Some(format) => format,
                none => none.insert(F::start(BufWriter::new(File::create(&self.path)?))?),
            };
            format.put(record)
        };
        put(&mut self.format).map_err(|e| output_error(&self.path, e))
    }

    fn wants_routes(&self) -> bool {
        F::ROUTES
    }
}

impl Format for TraceWriter<BufWriter<File>> {
    const ROUTES: bool = true;

    fn start(out: BufWriter<File>) -> io::Result<Self> {
        Self::new(out).map_err(as_io)
    }

    fn put(&mut self, record: &Record) -> io::Result<()> {
        self.write(record).map_err(as_io)?;
        if matches!(record, Record::Route(_) | Record::Read(_) | Record::Compute(_)) {
            return Ok(());
        }
        self.flush().map_err(as_io)
    }
}

fn as_io(error: CodecError) -> io::Error {
    match error {
        CodecError::Write(error) => error,
        error => io::Error::other(error),
    }
}

impl Format for MetricsCsv<BufWriter<File>> {
    const ROUTES: bool = false;

    fn start(out: BufWriter<File>) -> io::Result<Self> {
        Ok(Self::new(out))
    }

    fn put(&mut self, record: &Record) -> io::Result<()> {
        self.record(record)
    }
}

impl Format for RouteCsv<BufWriter<File>> {
    const ROUTES: bool = true;

    fn start(out: BufWriter<File>) -> io::Result<Self> {
        Ok(Self::new(out))
    }

    fn put(&mut self, record: &Record) -> io::Result<()> {
        self.record(record)
    }
}
