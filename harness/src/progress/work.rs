//! Progress of work that is counted in steps.

use indicatif::{ProgressBar, ProgressStyle};

use super::is_terminal;

/// A bar on a terminal, nothing elsewhere.
#[derive(Debug)]
pub struct Work {
    bar: Option<ProgressBar>,
}

impl Work {
    /// `what` is a verb as in "replaying".
    #[must_use]
    pub fn new(what: &'static str, steps: u64) -> Self {
        let bar = is_terminal().then(|| {
            let template = "{msg} [{bar:30}] {percent} %, {eta} left";
            let style = ProgressStyle::with_template(template).expect("the template is valid");
            ProgressBar::new(steps).with_style(style.progress_chars("=> ")).with_message(what)
        });
        Self { bar }
    }

    /// So many steps are done.
    pub fn at(&mut self, steps: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(steps);
        }
    }

    /// The work is done, or it ends; the bar goes.
    pub fn clear(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
