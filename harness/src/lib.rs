//! The `bmoe` harness: makes synthetic models, runs matrices of engine runs, renders reports, chats.
//!
//! * [`cmd`]: the command line, one module a command.
//! * [`matrix`]: matrix files, their cells and the order of the runs.
//! * [`models`]: finding, making and hashing models.
//! * [`runner`]: runs the cells, judges and records them.
//! * [`target`]: places where engines run.
//! * [`adb`]: devices behind the adb server.
//! * [`chat`]: a conversation with a model in a terminal.
//! * [`environment`]: what the results depend on besides the configuration.
//! * [`facts`]: what machines and devices tell about themselves.
//! * [`doctor`]: whether a target has what a run needs.
//! * [`progress`]: what a person sees meanwhile.
//! * [`view`]: runs in a terminal, live or replayed.
//! * [`refine`]: from a coarse sweep to a fine one.
//! * [`tune`]: the fastest lossless configuration of a device.
//! * [`splice`]: tables of reports within other documents.
//! * [`results`], [`engine`], [`error`]: result folders, the engine binary, exit codes.

pub mod adb;
mod atomic;
pub mod chat;
pub mod cmd;
mod console;
pub mod doctor;
pub mod engine;
pub mod environment;
pub mod error;
pub mod facts;
pub mod matrix;
pub mod models;
pub mod progress;
pub mod refine;
pub mod results;
pub mod runner;
mod say;
pub mod splice;
pub mod target;
pub mod tune;
pub mod view;
