//! The simulator against published replays, worked examples and its own promises.

mod conformance;
mod device;
mod properties;
mod published;
mod traces;
