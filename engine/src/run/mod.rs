//! Running a loaded model: requests, conversations, and the records of them.

mod available;
mod budget;
mod cores;
mod engine;
mod generate;
mod governor;
mod idle;
mod keep;
mod lines;
mod load;
mod meter;
mod people;
mod prepare;
mod process;
mod profile;
mod recorder;
mod replay;
mod request;
mod session;
mod sinks;
mod summary;
mod text;
mod transcript;
mod turn;
mod watch;
mod whole_file;

pub use engine::{Canceller, Engine};
pub use generate::{RunOptions, generate};
pub use lines::Lines;
pub use prepare::default_threads;
pub use profile::ProfileFile;
pub use request::{Finish, GeneratedToken, Prefix, Request, TurnReport};
pub use session::Session;
pub use sinks::{Event, MetricsFile, RecordSink, RouteFile, TraceFile};
pub use watch::MemoryWatch;
pub use whole_file::write_whole;
