//! From raw traces to tables and pictures.
//!
//! * [`result_set`]: the files of a result folder, written by the runner.
//! * [`journal`]: reads them.
//! * [`data`]: binary traces to Parquet and back.
//! * [`stats`]: percentiles and rates, on plain numbers.
//! * [`routes`]: the routes of a run in memory, and what can be asked of them.
//! * [`simulate`]: their replay through any cache policy; [`curve`]: LRU at every budget; [`device_model`]: what the
//!   bytes cost on a device.
//! * [`tabular`]: a table for terminals and programs.
//! * [`measured`], [`cells`]: a folder's attempts grouped into cells, their runs pooled.
//! * [`compare`], [`tells`]: cells against each other; [`pressure`]: cells and the target.
//! * [`table`], [`plots`]: Markdown tables, SVG and PNG pictures.
//! * [`report`]: all of it for one folder, as Markdown and as one HTML file.

mod atomic;
pub mod cells;
pub mod compare;
pub mod curve;
pub mod data;
pub mod device_model;
pub mod error;
mod html;
pub mod journal;
mod markdown;
pub mod measured;
pub mod plots;
pub mod pressure;
pub mod report;
pub mod result_set;
pub mod routes;
pub mod simulate;
pub mod stats;
pub mod table;
pub mod tabular;
pub mod tells;

pub use data::{Ingested, ingest};
pub use error::AnalysisError;
pub use report::{ReportPaths, render};
