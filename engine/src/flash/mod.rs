//! Experts on flash and in memory: where their slices are, who holds which frame, and the reads that
//! bring them in.
//!
//! A *slice* is one expert's part of one weight tensor: the unit of reading and of memory. It knows
//! nothing of llama.cpp. The `unsafe` here is confined to [`arena`] (raw memory), [`mapped`] (maps of files),
//! [`lanes`] and `uring` (reads into the arena), and to those who hand frames of the one to the other
//! ([`store`], [`read_loop`]).

pub mod arena;
pub mod fault;
pub mod file;
pub mod lanes;
pub mod layout;
pub mod mapped;
pub mod memory;
pub mod probe;
pub mod queue;
pub mod read_loop;
pub mod regions;
pub mod source;
pub mod store;
#[cfg(target_os = "linux")]
mod uring;
mod window;
