//! Progress of work that is counted in bytes.

use std::path::Path;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use super::{about, is_terminal, mib};

/// Less than this isn't worth a line: it is done before the line is read.
const WORTH_A_LINE_BYTES: u64 = 128 << 20;

/// A bar on a terminal; elsewhere a line at the start (of large work) and one at the end.
#[derive(Debug)]
pub struct Bytes {
    bar: Option<ProgressBar>,
    what: String,
    total_bytes: u64,
    started: Instant,
    announced: bool,
}

impl Bytes {
    /// `what` is a verb as in "making" and is followed by the path.
    #[must_use]
    pub fn new(what: &str, path: &Path, total_bytes: u64) -> Self {
        let what = format!("{what} {}", path.display());
        let bar = is_terminal().then(|| {
            let template = "{msg}\n  [{bar:30}] {bytes}/{total_bytes}, {bytes_per_sec}, \
                            {eta} left";
            let style = ProgressStyle::with_template(template).expect("the template is valid");
            ProgressBar::new(total_bytes)
                .with_style(style.progress_chars("=> "))
                .with_message(what.clone())
        });
        Self { bar, what, total_bytes, started: Instant::now(), announced: false }
    }

    /// So many bytes are done.
    pub fn at(&mut self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        } else if !self.announced && self.total_bytes >= WORTH_A_LINE_BYTES {
            self.announced = true;
            eprintln!("{} ({}) ...", self.what, mib(self.total_bytes));
        }
    }

    /// The work is done.
    pub fn done(self) {
        self.clear();
        if self.announced {
            eprintln!("{}: done in {}", self.what, about(self.started.elapsed()));
        }
    }

    /// There was nothing to do, or the outcome is told otherwise.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
