//! Two bars: the run that is going on, and the whole.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bmoe_analysis::result_set::CellRecord;
use bmoe_trace::line::{Done, Line};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::{about, label, outcome};
use crate::matrix::Cell;
use crate::runner::{Observer, Place};

/// While a model generates.
const TOKENS: &str = "{prefix}\n  {spinner} [{bar:30}] {pos:>4}/{len} tokens  {msg}";
/// While a file is sent.
const BYTES: &str =
    "{prefix}\n  {spinner} [{bar:30}] {bytes} of {total_bytes} at {bytes_per_sec}, {eta} left";

/// The bars of a matrix on a terminal.
pub(super) struct Bars {
    all: MultiProgress,
    /// Stands in front of every line where there are several targets.
    target: String,
    run: ProgressBar,
    whole: ProgressBar,
    now: Option<Now>,
    /// The file that is sent.
    sent: Option<PathBuf>,
}

/// The run that is going on.
struct Now {
    label: String,
    /// There is a hit rate to show.
    cached: bool,
    started: Instant,
    place: Place,
    done: Option<Done>,
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is valid").progress_chars("=> ")
}

impl Bars {
    pub(super) fn new(all: MultiProgress, target: Option<String>, runs: usize) -> Self {
        let target = target.map_or_else(String::new, |name| format!("{name}: "));
        let run = all.add(ProgressBar::new(0));
        run.set_style(style("{prefix}\n  {spinner} {msg}"));
        let whole = all.add(ProgressBar::new(runs as u64));
        whole.set_style(style("  all [{bar:30}] {pos:>4}/{len} runs, {elapsed} so far{msg}"));
        run.enable_steady_tick(Duration::from_millis(200));
        whole.enable_steady_tick(Duration::from_secs(1));
        Self { all, target, run, whole, now: None, sent: None }
    }

    fn print(&self, text: &str) {
        let _ = self.all.println(format!("{}{text}", self.target));
    }

    /// What the whole will still take, once there is something to tell it from.
    fn show_time_left(&self, steps: Option<(u32, u32)>) {
        let Some(now) = &self.now else { return };
        let elapsed = now.started.elapsed();
        let left = match (now.place.left, steps) {
            (Some(left), _) => left.saturating_sub(elapsed),
            (None, Some((step, steps))) if step > 0 => {
                let run = elapsed.mul_f64(f64::from(steps) / f64::from(step));
                let runs = u32::try_from(now.place.total - now.place.index).unwrap_or(u32::MAX);
                run.saturating_mul(runs).saturating_sub(elapsed)
            }
            _ => return,
        };
        self.whole.set_message(format!(", about {} left", about(left)));
    }
}

impl Observer for Bars {
    fn sending(&mut self, file: &Path, done_bytes: u64, of_bytes: u64) {
        if self.sent.as_deref() != Some(file) {
            self.sent = Some(file.to_owned());
            self.run.reset();
            self.run.set_style(style(BYTES));
            // Where it goes on is no rate.
            self.run.set_length(of_bytes);
            self.run.set_position(done_bytes);
            self.run.reset_eta();
            self.run.set_prefix(format!("{}sending {}", self.target, file.display()));
        }
        self.run.set_position(done_bytes);
    }

    fn waiting(&mut self, what: &str, waited: Duration, at_most: Duration) {
        let (waited, at_most) = (about(waited), about(at_most));
        self.run.set_message(format!("waiting {waited} of {at_most} at most: {what}"));
    }

    fn started(&mut self, cell: &Cell, repetition: u32, place: Place) {
        let label = label(cell, repetition);
        self.sent = None;
        self.run.reset();
        self.run.set_style(style(TOKENS));
        self.run.set_length(u64::from(cell.config.n_predict));
        self.run.set_prefix(format!("{}{label}", self.target));
        self.run.set_message("loading");
        self.now = Some(Now {
            label,
            cached: cell.config.cache_mib.is_on(),
            started: Instant::now(),
            place,
            done: None,
        });
        self.show_time_left(None);
    }

    fn line(&mut self, line: &Line) {
        match line {
            Line::Ready(_) => self.run.set_message("computing the prompt"),
            Line::Progress(progress) => {
                self.run.set_length(u64::from(progress.steps));
                self.run.set_position(u64::from(progress.step));
                let rate = 1000.0 / progress.wall_ms.max(f64::MIN_POSITIVE);
                let hits = match &self.now {
                    Some(now) if now.cached => format!(", hit {:.0} %", progress.cache_hit_pct),
                    _ => String::new(),
                };
                self.run.set_message(format!("{rate:.1} tok/s{hits}"));
                self.show_time_left(Some((progress.step, progress.steps)));
            }
            Line::Done(done) => {
                if let Some(now) = &mut self.now {
                    now.done = Some((**done).clone());
                }
            }
            Line::Begin(_) | Line::Prefill(_) | Line::Load(_) | Line::Error(_) => {}
        }
    }

    fn ended(&mut self, record: &CellRecord) {
        if let Some(now) = self.now.take() {
            let (number, total) = (now.place.index + 1, now.place.total);
            let outcome = outcome(record, now.done.as_ref());
            self.print(&format!("[{number}/{total}] {}: {outcome}", now.label));
        }
        self.whole.inc(1);
    }

    fn notice(&mut self, text: &str) {
        self.print(&format!("note: {text}"));
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.run.finish_and_clear();
        self.whole.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::{ProgressDrawTarget, TermLike};

    use super::*;
    use crate::matrix::Matrix;

    /// A terminal that keeps what was written to it.
    #[derive(Debug, Clone, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl Screen {
        fn keep(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            100
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.keep(&format!("{text}\n"))
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.keep(text)
        }
        fn clear_line(&self) -> io::Result<()> {
            self.keep("\n")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    const MATRIX: &str = r#"
name = "m"
baseline = { cache_mib = 0 }
[[model]]
name = "a"
path = "a.gguf"
[base]
prompt = "hello"
[axes]
cache_mib = [0, 512]
"#;

    #[test]
    fn each_target_has_a_bar_for_its_run_and_one_for_all_of_them() {
        let screen = Screen::default();
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::term_like(Box::new(
            screen.clone(),
        )));
        let schedule = toml::from_str::<Matrix>(MATRIX).unwrap().schedule().unwrap();
        let mut phone = Bars::new(all.clone(), Some("adb:1".to_owned()), 2);
        let mut here = Bars::new(all.clone(), Some("local".to_owned()), 2);
        phone.sending(Path::new("model.gguf"), 3 << 20, 12 << 20);
        let left = Some(Duration::from_secs(90));
        here.started(&schedule.cells[1], 1, Place { index: 0, total: 2, left });
        here.waiting("the CPU is 60.0 C", Duration::from_secs(5), Duration::from_secs(30));
        here.notice("the target does not tell temperatures");
        let shown = screen.0.lock().unwrap().clone();
        for expected in [
            "adb:1: sending model.gguf",
            "3.00 MiB of 12.00 MiB at ",
            "local: a: stream, cache 512 MiB, 4 lanes, repetition 2",
            "waiting 5 s of 30 s at most: the CPU is 60.0 C",
            "local: note: the target does not tell temperatures",
            "0/2 runs",
            "about 90 s left",
        ] {
            assert!(shown.contains(expected), "{expected:?} is not in {shown}");
        }
    }
}
