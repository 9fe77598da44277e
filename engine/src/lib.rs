//! Runs Mixture-of-Experts models larger than memory on stock llama.cpp, reading from flash only the
//! experts that each token routes to.
//!
//! * [`run`]: [`Engine`] opens a model and generates; [`Session`] is a
//!   conversation; records go to a [`RecordSink`](run::RecordSink). [`generate`] is a run from
//!   beginning to end.
//! * [`chat`]: the model's own chat template, and thoughts apart from answers.
//! * [`serve`]: a session over the published line protocol.
//! * [`arch`], [`iobench`]: what is known of architectures; what the storage can do.
//! * [`flash`], [`llama`]: experts on flash, and the seam with llama.cpp.
//!
//! `examples/minimal.rs`, `examples/own_sink.rs` and `examples/own_source.rs` are the shortest programs with it.

pub mod arch;
pub mod chat;
pub mod error;
pub mod flash;
pub mod iobench;
pub mod llama;
pub mod run;
pub mod serve;

pub use error::{EngineError, ModelError};
pub use run::{Engine, RunOptions, Session, generate};
