//! Writes GGUF mixture-of-experts models of any shape, with random but well-behaved weights.
//!
//! Anyone can exercise an 18 GB model without a download, and tests can have tiny ones of every architecture
//! and weight type. The weights carry no knowledge, but the router behaves like a real model's: some experts
//! are popular, neighbouring tokens share experts, and greedy decoding doesn't run into a loop. How that is
//! done and measured is in `docs/synthetic-models.md`.
//!
//! ```no_run
//! use bmoe_synth::{Shape, WriteOptions, write_model};
//!
//! let shape = Shape::builtin("quickstart")?;
//! let report = write_model(&shape, &WriteOptions::new("quickstart.gguf"), &mut |_| {})?;
//! println!("{} bytes", report.file_bytes);
//! # Ok::<(), bmoe_synth::SynthError>(())
//! ```

mod arch;
mod attention;
mod error;
mod fill;
mod gguf;
mod plan;
mod quant;
mod residual;
mod rng;
mod shape;
mod tokenizer;
mod weight_type;
mod write;

pub use arch::Arch;
pub use error::{Result, SynthError};
pub use plan::{Plan, TensorInfo, file_paths, plan};
pub use shape::{
    Dims, LayerTypes, Mixed, Routing, Shape, Tokenizer, Types, Window, builtin_names, builtin_toml,
};
pub use weight_type::WeightType;
pub use write::{Progress, WriteOptions, WriteReport, write_model};
