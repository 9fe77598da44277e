//! Where records go.

mod file;

use std::path::Path;

use bmoe_trace::record::{Record, TurnRecord};

use super::request::TurnReport;
use crate::chat::{Delta, ThinkControl};
use crate::error::EngineError;

pub use file::{MetricsFile, RouteFile, TraceFile};

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
