//! Runs an engine beyond the life of whoever started it, and watches the device meanwhile.
//!
//! Everything here works with files, so that it is the same whether the engine runs beside the harness or on
//! a device whose cable may be pulled at any time:
//!
//! * [`mod@supervise`]: starts the engine with its output in files, ends it when its time is up, and leaves a
//!   [`Status`](bmoe_trace::supervised::Status).
//! * [`mod@follow`]: prints what a supervised run appends, until it is over.
//! * [`mod@stop`]: asks a supervisor to end its engine.
//! * [`sense`]: what a device tells about itself at one moment.
//! * [`command`]: all of these as subcommands of the engine.
//! * [`groups`], [`mounts`]: control groups and mounted file systems.
//!
//! Nothing here loads llama.cpp, and every process of it is small: it shares the memory that is measured.

pub mod command;
mod error;
pub mod follow;
pub mod groups;
mod lock;
pub mod mounts;
pub mod process;
mod room;
pub mod sense;
mod status;
pub mod stop;
pub mod supervise;
mod thermal;

pub use error::SuperviseError;
pub use lock::{Held, Lock, is_held};
