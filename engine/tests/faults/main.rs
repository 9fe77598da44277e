//! What goes wrong around a run: reads that fail or come in pieces, files that change, full disks, closed
//! pipes, signals, no memory. Each run ends by itself, with the right tokens or with an error that says what
//! happened; a watchdog sees to the first.

#[path = "../common/mod.rs"]
mod common;
mod process;
mod reads;
mod system;

use std::io::BufReader;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use bmoe_trace::codec::{Tail, TraceReader};
use bmoe_trace::record::Record;

/// Far more than any of these runs takes on a machine that does other things too.
const LIMIT: Duration = Duration::from_secs(240);

/// Runs `body`; fails when it isn't over in time.
#[track_caller]
fn within_limit<T: Send + 'static>(what: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    let (say, hear) = channel();
    let thread = std::thread::spawn(move || {
        let result = body();
        let _ = say.send(());
        result
    });
    match hear.recv_timeout(LIMIT) {
        Err(RecvTimeoutError::Timeout) => panic!("{what}: not over after {LIMIT:?}"),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        },
    }
}

/// All records of a trace, and how it ends.
fn read_trace(path: &Path) -> (Vec<Record>, Tail) {
    let file = std::fs::File::open(path).unwrap();
    let mut reader = TraceReader::new(BufReader::new(file)).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.read().unwrap() {
        records.push(record);
    }
    (records, reader.tail().unwrap())
}
