//! The simulator against published replays, worked examples and its own promises.

mod conformance;
mod properties;
mod published;
mod traces;
