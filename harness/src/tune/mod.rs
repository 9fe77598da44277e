//! Finding the fastest lossless configuration of a device (`docs/tune.md` is the method).
//!
//! * [`disk`]: what the storage does, from the engine's own reads.
//! * [`candidates`]: configurations, and what the device model says of each.
//! * [`race`]: which of those measured are still in it.
//! * [`matrices`]: the matrices that measure them.
//! * [`recipe`]: the answer, and why.
//! * [`log`]: what a tune has done so far.

pub mod candidates;
pub mod disk;
pub mod log;
pub mod matrices;
pub mod race;
pub mod recipe;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::matrix::Synth;

/// What is tuned, and within what; kept as `tune.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// A GGUF file, absolute.
    pub model: Option<PathBuf>,
    /// Or a shape that is made.
    pub synth: Option<Synth>,
    /// Where to run.
    pub target: String,
    /// The engine that was named.
    pub engine: Option<PathBuf>,
    /// Where synthetic models are.
    pub models: PathBuf,
    /// The time for everything, seconds.
    pub time_s: u64,
    /// Memory for the dense weights and the cache; `None` = what the device has available, less a margin.
    pub memory_mib: Option<u64>,
    /// Fewer experts per token are allowed, too.
    pub lossy: bool,
    /// The prompt.
    pub prompt: String,
    /// Tokens of each run.
    pub tokens: u32,
}
