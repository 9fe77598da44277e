//! The engine's benchmark: all contenders on one model, interleaved, each cold; then a table from the data alone.
//!
//! * [`contender`]: what is compared, and in which order.
//! * [`measure`]: doing it.
//! * [`data`]: the files of a result folder.
//! * [`render`]: the table.
//!
//! It starts the engine as a process, and knows neither llama.cpp nor Parquet.

pub mod contender;
pub mod data;
pub mod engine;
pub mod error;
pub mod extract;
pub mod machine;
pub mod measure;
pub mod model;
pub mod render;
