//! What a person sees while something takes time: bars on a terminal, plain lines elsewhere.
//!
//! All of it goes to standard error; results go to standard output.

mod bars;
mod bytes;
mod plain;
mod work;

use std::io::IsTerminal;
use std::time::Duration;

use bmoe_analysis::result_set::{CellRecord, Verdict};
use bmoe_trace::line::Done;
use indicatif::MultiProgress;

use crate::matrix::Cell;
use crate::runner::Observer;

pub use bytes::Bytes;
pub use work::Work;

/// What all targets of a matrix show together.
pub struct Views(Option<MultiProgress>);

impl Default for Views {
    fn default() -> Self {
        Self::new()
    }
}

impl Views {
    /// The views that fit standard error.
    #[must_use]
    pub fn new() -> Self {
        Self(is_terminal().then(MultiProgress::new))
    }

    /// The view of one target, which is named when there are several.
    #[must_use]
    pub fn observer(&self, target: Option<String>, runs: usize) -> Box<dyn Observer> {
        match &self.0 {
            Some(all) => Box::new(bars::Bars::new(all.clone(), target, runs)),
            None => Box::new(plain::Plain::new(std::io::stderr(), target)),
        }
    }
}

fn is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// `512.3 MiB`
#[must_use]
pub fn mib(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib >= 10_240.0 { format!("{:.1} GiB", mib / 1024.0) } else { format!("{mib:.1} MiB") }
}

/// `42 s`, `3 min`, `2 h 05 min`: rounded up, since a wait that ends early annoys nobody.
#[must_use]
pub fn about(time: Duration) -> String {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    match seconds {
        0..=90 => format!("{seconds} s"),
        91..=5400 => format!("{} min", seconds.div_ceil(60)),
        _ => {
            let minutes = seconds.div_ceil(60);
            format!("{} h {:02} min", minutes / 60, minutes % 60)
        }
    }
}

fn label(cell: &Cell, repetition: u32) -> String {
    let again = match repetition {
        0 => String::new(),
        n => format!(", repetition {}", n + 1),
    };
    format!("{}: {}{again}", cell.model, cell.name)
}

/// How a run ended, in a few words.
fn outcome(record: &CellRecord, done: Option<&Done>) -> String {
    let reason = record.reason.as_deref().unwrap_or("no reason given");
    if record.verdict != Verdict::Valid {
        return format!("{}: {reason}", record.verdict.words().to_uppercase());
    }
    let Some(done) = done else { return format!("valid, {:.1} s", record.wall_s) };
    let hits = if record.config.cache_mib.is_on() {
        format!("hit {:.1} %, ", done.cache_hit_pct)
    } else {
        String::new()
    };
    format!("{:.2} tok/s, {hits}{:.1} s", done.tok_s, record.wall_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_to_what_a_person_wants_to_know() {
        let about = |s: f64| super::about(Duration::from_secs_f64(s));
        assert_eq!(about(0.0), "0 s");
        assert_eq!(about(41.2), "42 s");
        assert_eq!(about(130.0), "3 min");
        assert_eq!(about(7390.0), "2 h 04 min");
    }
}
