//! The seam: everything that touches llama.cpp, unmodified, through its C interface.
//!
//! * [`gguf`]: what a model file says about itself, before anything is loaded.
//! * [`model`], [`context`]: loading and decoding.
//! * [`memory`], [`sampler`]: what a context remembers of its text; choosing tokens.
//! * `hidden_buffer`: a buffer type that makes llama.cpp load everything but the experts; `dense`: the weights
//!   that are mapped instead.
//! * [`hook`]: replaces nodes of the compute graph while it runs; `fetch` and `matmul` are what runs in
//!   their place, `kernel` the products underneath.
//!
//! `docs/seam.md` lists what is relied on and how to move to a newer llama.cpp.
#![expect(unsafe_code, reason = "the one place where C and Rust meet")]

mod abi;
mod clock;
pub mod context;
mod dense;
mod fetch;
pub mod forced;
pub mod gguf;
mod hidden_buffer;
pub mod hook;
mod kernel;
pub mod log;
mod matmul;
pub mod memory;
pub mod model;
mod node;
mod nodes;
mod predict;
mod routes;
pub mod sampler;
mod shared;
mod work;

pub use llama_cpp_sys_2 as sys;

/// Version of the bindings crate, which names the llama.cpp sources inside it.
pub const LLAMA_VERSION: &str = "llama-cpp-sys-2 0.1.161";
