//! The streaming engine.
pub mod flash;
