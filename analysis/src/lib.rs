//! From raw traces to tables and pictures.
//!
//! * [`result_set`]: the files of a result folder, written by the runner.
//! * [`journal`]: reads them.
//! * [`data`]: binary traces to Parquet and back.
//! * [`stats`], [`routing`]: percentiles, rates and routing figures, on plain numbers.
//! * [`routes`]: the routes of a run in memory.
//! * [`measured`], [`cells`]: a folder's attempts grouped into cells, their runs pooled.
//! * [`compare`], [`tells`]: cells against each other; [`pressure`]: cells and the target.
//! * [`table`], [`plots`]: Markdown tables, SVG and PNG pictures.
//! * [`report`]: all of it for one folder.

mod atomic;
pub mod cells;
pub mod compare;
pub mod data;
pub mod error;
pub mod journal;
mod markdown;
pub mod measured;
pub mod plots;
pub mod pressure;
pub mod report;
pub mod result_set;
pub mod routes;
pub mod routing;
pub mod stats;
pub mod table;
pub mod tells;

pub use data::{Ingested, ingest};
pub use error::AnalysisError;
pub use report::{ReportPaths, render};
