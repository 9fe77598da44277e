//! Traces and logs of this and other programs, read row by row.
//!
//! [`open`] tells the formats apart by their content, never by a file's name, and gives a reader:
//!
//! | content | reader |
//! |---|---|
//! | our binary trace | [`RouteReader`], and the run's log behind it |
//! | `route_trace v1` CSV | [`RouteReader`] |
//! | JSON lines `{"tok","layers"}` | [`RouteReader`] |
//! | `moe-cache-lab.routing-jsonl` version 1 | [`RouteReader`] |
//! | per-token CSV: no preamble, `bmoe_metrics v1`, `v2` | [`LogReader`] |
//! | `key=value` lines that describe a device | [`DeviceMetrics`] |
//!
//! Readers hold one chunk of rows and one line, whatever the size of the input. A row that is damaged, or
//! does not fit those before it, is an error that names line, column, value and what was expected; nothing is
//! repaired. What a writer that was ended leaves behind, an unfinished last line or token, is left out and
//! told ([`RouteReader::notes`], [`LogReader::notes`]).

mod binary;
mod cache_lab;
mod chunk;
mod device;
mod error;
mod fields;
mod json_lines;
mod keys;
mod lines;
mod metrics;
mod order;
mod route_csv;
mod sniff;
mod steps;
mod summary;
mod token_jsonl;

use std::io::{Cursor, Read};

pub use chunk::{RouteChunk, ScoreChunk};
pub use device::DeviceMetrics;
pub use error::{ImportError, Result};
pub use keys::Keys;
pub use metrics::{LOG_COLUMNS, LogChunk, LogColumnKind, LogHeader, LogReader, LogValues};

use sniff::Found;

/// Rows of a chunk, about.
pub const CHUNK_ROWS: usize = 1 << 19;

/// Bytes of text after which a chunk ends earlier.
const CHUNK_BYTES: usize = 64 << 20;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// This program's binary trace.
    Binary,
    /// `route_trace v1`.
    RouteCsv,
    /// JSON lines `{"tok","layers"}`.
    TokenJsonl,
    /// `moe-cache-lab.routing-jsonl` version 1.
    CacheLab,
    /// A per-token CSV.
    Metrics,
    /// `key=value` lines.
    Device,
}

impl Format {
    /// Its name for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Binary => "bmoe trace",
            Self::RouteCsv => "route_trace v1",
            Self::TokenJsonl => "token JSON lines",
            Self::CacheLab => "moe-cache-lab.routing-jsonl v1",
            Self::Metrics => "per-token CSV",
            Self::Device => "device metrics",
        }
    }
}

/// A reader of whatever the input turned out to be.
#[derive(Debug)]
pub enum Import<R: Read> {
    /// Routes; of a binary trace also a log.
    Routes(Box<RouteReader<R>>),
    /// Costs of decode steps.
    Log(Box<LogReader<Prefixed<R>>>),
    /// What a device was like during a run.
    Device(DeviceMetrics),
}

/// An input with its first bytes put back.
pub type Prefixed<R> = std::io::Chain<Cursor<Vec<u8>>, R>;

/// Looks at the first bytes and opens the reader for them.
///
/// # Errors
/// The input can't be read, is of no format that is known or of a version that is not, or its head is
/// damaged.
pub fn open<R: Read>(mut input: R) -> Result<Import<R>> {
    let prefix = sniff::prefix(&mut input)?;
    let found = sniff::format(&prefix)?;
    let input = Cursor::new(prefix).chain(input);
    let routes = |rows| Import::Routes(Box::new(RouteReader::new(rows)));
    Ok(match found {
        Found::Binary => routes(Rows::Binary(Box::new(binary::BinaryRoutes::open(input)?))),
        Found::RouteCsv => routes(Rows::RouteCsv(Box::new(route_csv::RouteCsvRows::open(input)?))),
        Found::TokenJsonl => routes(Rows::TokenJsonl(token_jsonl::TokenRows::open(input))),
        Found::CacheLab => routes(Rows::CacheLab(cache_lab::CacheLabRows::open(input)?)),
        Found::Metrics => Import::Log(Box::new(LogReader::open(input)?)),
        Found::Device => Import::Device(device::read(input)?),
    })
}

/// One MoE layer, as far as a trace describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedLayer {
    /// Its number in the trace.
    pub index: u32,
    /// Bytes of one of its experts; `None` = the trace does not say.
    pub expert_bytes: Option<u64>,
}

/// What a route trace says about itself.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RouteHeader {
    /// The run's own id.
    pub run_id: Option<String>,
    /// The model's file or name.
    pub model: Option<String>,
    /// The model's architecture.
    pub arch: Option<String>,
    /// Experts per MoE layer; where the trace does not say, one more than the highest seen so far.
    pub n_expert: u32,
    /// Whether the trace says so.
    pub n_expert_known: bool,
    /// Experts per token, of the header or else of the first token; 0 = not known yet.
    pub top_k: u32,
    /// The MoE layers, ascending; where the trace does not list them, those seen so far.
    pub layers: Vec<ImportedLayer>,
    /// Everything that the trace says, in its own words.
    pub keys: Keys,
    /// Columns that no reader knows, in the order of [`RouteChunk::extra`].
    pub extra_columns: Vec<String>,
}

/// Reads the routes of one run.
#[derive(Debug)]
pub struct RouteReader<R: Read> {
    rows: Rows<R>,
}

#[derive(Debug)]
enum Rows<R: Read> {
    Binary(Box<binary::BinaryRoutes<Prefixed<R>>>),
    RouteCsv(Box<route_csv::RouteCsvRows<Prefixed<R>>>),
    TokenJsonl(token_jsonl::TokenRows<Prefixed<R>>),
    CacheLab(cache_lab::CacheLabRows<Prefixed<R>>),
}

macro_rules! each {
    ($self:expr, $rows:ident => $what:expr) => {
        match $self {
            Rows::Binary($rows) => $what,
            Rows::RouteCsv($rows) => $what,
            Rows::TokenJsonl($rows) => $what,
            Rows::CacheLab($rows) => $what,
        }
    };
}

impl<R: Read> RouteReader<R> {
    fn new(rows: Rows<R>) -> Self {
        Self { rows }
    }

    /// What was read.
    #[must_use]
    pub const fn format(&self) -> Format {
        match self.rows {
            Rows::Binary(_) => Format::Binary,
            Rows::RouteCsv(_) => Format::RouteCsv,
            Rows::TokenJsonl(_) => Format::TokenJsonl,
            Rows::CacheLab(_) => Format::CacheLab,
        }
    }

    /// What the trace says about itself; complete when [`Self::next`] has given the last chunk.
    #[must_use]
    pub fn header(&self) -> &RouteHeader {
        each!(&self.rows, rows => rows.header())
    }

    /// The next rows, in file order; whole tokens only. `None` at the end.
    ///
    /// # Errors
    /// The input can't be read, or a row is damaged.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator could not be asked for the header"
    )]
    pub fn next(&mut self) -> Result<Option<RouteChunk>> {
        let chunk = each!(&mut self.rows, rows => rows.next())?;
        Ok(chunk.filter(|chunk| !chunk.is_empty()))
    }

    /// What was left out, for people; complete at the end.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        each!(&self.rows, rows => rows.notes())
    }

    /// The log of the same run as a `bmoe_metrics v2` file, when the trace holds one; complete at the end.
    #[must_use]
    pub fn log(&self) -> Option<&[u8]> {
        match &self.rows {
            Rows::Binary(rows) => rows.log(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
