//! Where records go.

mod file;
mod lines;

use std::path::Path;

use bmoe_trace::record::Record;

use crate::error::EngineError;

pub use file::{MetricsFile, RouteFile, TraceFile};
pub use lines::Lines;

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
