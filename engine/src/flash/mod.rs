//! Experts on flash and in memory: where their slices are, who holds which frame, and the reads that
//! bring them in.
//!
//! A *slice* is one expert's part of one weight tensor: the unit of reading and of memory. It knows
//! nothing of llama.cpp. The `unsafe` here is confined to [`arena`] (raw memory), [`lanes`] (reads into it)
//! and [`mapped`] (maps of files).

pub mod arena;
pub mod file;
pub mod lanes;
pub mod layout;
pub mod mapped;
pub mod memory;
pub mod queue;
pub mod regions;
pub mod store;
mod window;
