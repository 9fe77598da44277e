//! From raw traces to tables and pictures.
//!
//! * [`result_set`]: the files of a result folder, written by the runner.
//! * [`journal`]: reads them.
//! * [`data`]: binary traces to Parquet and back.
//! * [`stats`]: percentiles and rates, on plain numbers.

mod atomic;
pub mod data;
pub mod error;
pub mod journal;
pub mod result_set;
pub mod stats;

pub use data::{Ingested, ingest};
pub use error::AnalysisError;
