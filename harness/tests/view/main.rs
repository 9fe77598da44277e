//! The viewer: its screens with fixed data, its keys one by one, and inputs of every kind.

mod chat;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod experts;
mod fixed;
mod inputs;
mod keys;
mod screens;
mod terminal;
