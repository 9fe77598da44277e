//! What a run of the engine is told and what it tells back.
//!
//! * [`config`]: one run, described by one file.
//! * [`supervised`]: what a supervised run leaves beside its trace.
//! * [`record`]: what the engine measures, with units in the names.
//! * [`codec`]: the binary trace file (length-prefixed, checksummed, versioned).
//! * [`command`]: what a session is asked for, one JSON object a line.
//! * [`csv`]: the published text formats, written while a run goes on.
//! * [`import`]: traces and logs of this and other programs, read row by row.
//! * [`mod@line`]: the `BMOE_<TAG> {json}` lines that an engine prints while it works.
//!
//! The crate does no measuring and knows neither llama.cpp nor Parquet.

pub mod codec;
pub mod command;
pub mod config;
pub mod csv;
pub mod import;
pub mod line;
pub mod profile;
pub mod record;
mod setting;
pub mod supervised;

pub use config::{CacheBudget, Mode, RunConfig};
pub use record::Record;
