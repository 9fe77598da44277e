//! Runs Mixture-of-Experts models larger than memory on stock llama.cpp, reading from flash only the
//! experts that each token routes to.

pub mod arch;
pub mod error;
pub mod flash;
pub mod iobench;
pub mod llama;
pub mod run;

pub use error::{EngineError, ModelError};
pub use run::{RunOptions, generate};
