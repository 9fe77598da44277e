//! One run: load, prefill, decode, and the records of it.

mod generate;
mod people;
mod prepare;
mod process;
mod sinks;
mod summary;
mod text;

pub use generate::{RunOptions, generate};
pub use prepare::default_threads;
pub use sinks::{Lines, MetricsFile, RecordSink, RouteFile, TraceFile};
