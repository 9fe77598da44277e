//! The viewer without a screen: a line when something happens, for pipes, logs and screen readers.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::app::Left;
use super::figures::{bytes, number, percent};
use super::source::Source;
use super::terminal::Signals;
use super::world::{Mode, RunData, World};

/// How often a run in progress gets a line.
const EVERY: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(200);

/// What has been told.
#[derive(Debug, Default)]
pub struct Plain {
    /// Of each run: that it began, and that it ended.
    told: HashMap<usize, bool>,
    notice: Option<String>,
    last: Option<Instant>,
}

impl Plain {
    /// Tells what is new.
    ///
    /// # Errors
    /// The output is closed.
    pub fn tell(&mut self, world: &World, out: &mut dyn Write) -> io::Result<()> {
        if world.notice != self.notice {
            self.notice.clone_from(&world.notice);
            if let Some(notice) = &self.notice {
                writeln!(out, "{notice}")?;
            }
        }
        let due = self.last.is_none_or(|last| last.elapsed() >= EVERY);
        for (index, run) in world.runs.iter().enumerate() {
            match (self.told.get(&index), run.over) {
                (Some(true), _) => {}
                (_, true) if run.steps().is_empty() && run.trouble.is_none() => {}
                (_, true) => {
                    writeln!(out, "{}: {}", run.name, outcome(run))?;
                    self.told.insert(index, true);
                }
                (told, false) => {
                    if told.is_none() {
                        writeln!(out, "{}: started", run.name)?;
                        self.told.insert(index, false);
                    } else if due && !run.steps().is_empty() {
                        writeln!(out, "{}: {}", run.name, figures(run))?;
                    }
                }
            }
        }
        if due {
            self.last = Some(Instant::now());
        }
        out.flush()
    }
}

fn outcome(run: &RunData) -> String {
    match &run.trouble {
        Some(trouble) => trouble.clone(),
        None => figures(run),
    }
}

fn figures(run: &RunData) -> String {
    let steps = run.steps();
    let seconds = run.decode_ns() as f64 / 1e9;
    let mut text = format!("{} tokens", steps.len());
    if !run.untimed() && seconds > 0.0 {
        text.push_str(&format!(", {} tok/s", number(Some(steps.len() as f64 / seconds), 2)));
    }
    let last = steps.last();
    let cached = run.policy.is_some() || run.mode.is_empty();
    if let Some(rate) = last.and_then(|step| step.cumulative_hit_rate).filter(|_| cached) {
        text.push_str(&format!(", hit {}", percent(Some(rate))));
    }
    let read: Option<u64> = steps.iter().map(|step| step.read_bytes).sum();
    if let Some(read) = read.filter(|_| !steps.is_empty()) {
        text.push_str(&format!(", {} a token", bytes(Some(read as f64 / steps.len() as f64))));
    }
    text
}

/// Tells until everything is over, or a signal comes.
///
/// # Errors
/// The output is closed.
pub fn run(
    source: &mut dyn Source,
    world: &mut World,
    out: &mut dyn Write,
    signals: &Signals,
) -> io::Result<Left> {
    let mut plain = Plain::default();
    // A folder is read run by run: it is over when several looks found nothing new.
    let (mut quiet, mut before) = (0, 0);
    loop {
        source.poll(world);
        plain.tell(world, out)?;
        if let Some(signal) = signals.take() {
            return Ok(Left::Signal(signal));
        }
        let known = world.runs.iter().map(|run| run.steps().len() + 1).sum::<usize>();
        quiet = if known == before && world.mode == Mode::Replay { quiet + 1 } else { 0 };
        before = known;
        if quiet >= 3 && world.runs.iter().all(|run| run.over) && source.is_settled() {
            return Ok(Left::Quit);
        }
        if world.mode == Mode::Live {
            std::thread::sleep(LOOK);
        }
    }
}
