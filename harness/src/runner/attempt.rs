//! What one attempt left behind, and what that means.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use bmoe_analysis::result_set::Verdict;
use bmoe_trace::codec::TraceReader;
use bmoe_trace::line::{Done, Line};
use bmoe_trace::record::{Outcome, Record};

use super::executor::{Ended, ExecutorError, Exit, Stopped, signal_name};
use super::lines::{LINE_BYTES, read_line};

/// What the runner keeps of an engine's lines.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Observed {
    /// Decode steps seen and asked for.
    pub(super) steps: Option<(u32, u32)>,
    pub(super) done: Option<Done>,
    pub(super) error: Option<String>,
}

impl Observed {
    pub(super) fn line(&mut self, line: &Line) {
        match line {
            Line::Progress(p) => self.steps = Some((p.step, p.steps)),
            Line::Done(done) => self.done = Some((**done).clone()),
            Line::Error(error) => self.error = Some(error.msg.clone()),
            Line::Ready(_) | Line::Begin(_) | Line::Prefill(_) | Line::Load(_) => {}
        }
    }
}

/// What the runner keeps of a trace.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TraceSummary {
    pub(super) run_id: Option<String>,
    /// Token ids of the decode steps.
    pub(super) tokens: Vec<i32>,
    pub(super) outcome: Option<Outcome>,
    /// Why the trace can't be read to its end.
    pub(super) damage: Option<String>,
}

impl TraceSummary {
    /// Reads as much as there is; a trace that is missing or damaged says so in `damage`.
    pub(super) fn read(path: &Path) -> Self {
        let mut summary = Self::default();
        if let Err(damage) = summary.fill(path) {
            summary.damage = Some(damage);
        }
        summary
    }

    fn fill(&mut self, path: &Path) -> Result<(), String> {
        let file = File::open(path).map_err(|e| format!("the trace cannot be opened: {e}"))?;
        let mut reader = TraceReader::new(BufReader::new(file)).map_err(|e| e.to_string())?;
        while let Some(record) = reader.read().map_err(|e| e.to_string())? {
            match record {
                Record::Start(start) => self.run_id = Some(start.run_id),
                Record::Token(token) => self.tokens.push(token.token),
                Record::End(end) => self.outcome = Some(end.outcome),
                Record::Load(_)
                | Record::Turn(_)
                | Record::Route(_)
                | Record::Read(_)
                | Record::Compute(_)
                | Record::Budget(_)
                | Record::Prefill(_) => {}
            }
        }
        Ok(())
    }
}

/// The last line of the log that says `error: ...`.
pub(super) fn last_error(log: &Path) -> Option<String> {
    let mut reader = BufReader::new(File::open(log).ok()?);
    let (mut line, mut last) = (Vec::new(), None);
    while matches!(read_line(&mut reader, &mut line, LINE_BYTES), Ok(true)) {
        if let Some(error) = String::from_utf8_lossy(&line).strip_prefix("error: ") {
            last = Some(error.trim_end().to_owned());
        }
    }
    last
}

/// Judges an attempt by how its process ended and what it left; the text is judged elsewhere.
pub(super) fn judge(
    ended: &Result<Ended, ExecutorError>,
    observed: &Observed,
    trace: &TraceSummary,
    logged_error: Option<String>,
    timeout_s: u64,
    interrupt: Option<i32>,
) -> (Verdict, Option<String>) {
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => return (Verdict::Failed, Some(error.to_string())),
    };
    let so_far = match observed.steps {
        Some((step, steps)) => format!("after {step} of {steps} tokens"),
        None => "before the first token".to_owned(),
    };
    match (ended.stopped, ended.exit) {
        (_, Exit::Code(0)) => judge_success(observed, trace),
        (Some(Stopped::Timeout), _) => (
            Verdict::TimedOut,
            Some(format!(
                "not done within {timeout_s} s, ended {so_far}; raise `timeout_s` or ask for less"
            )),
        ),
        (Some(Stopped::Interrupt), _) => {
            let by = interrupt.map_or_else(|| "the user".to_owned(), signal_name);
            (Verdict::Interrupted, Some(format!("by {by} {so_far}")))
        }
        (None, Exit::Signal(signal)) => {
            // A crash is the engine's own doing, but SIGKILL always comes from somewhere else.
            let hint = match ended.oom_kills {
                _ if signal != signal_hook::consts::SIGKILL => "",
                Some(0) => ": a signal from outside, for the kernel did not run out of memory",
                Some(_) => {
                    ": most likely for lack of memory, since the kernel killed a process for that \
                     meanwhile"
                }
                None => ", which bmoe did not send: out of memory, or a signal from outside",
            };
            (Verdict::Killed, Some(format!("by {} {so_far}{hint}", signal_name(signal))))
        }
        (None, Exit::Code(code @ (130 | 143))) => (
            Verdict::Killed,
            Some(format!(
                "asked to stop by {} {so_far}, which bmoe did not send",
                signal_name(code - 128)
            )),
        ),
        (None, Exit::Code(code)) => {
            let said = observed.error.clone().or(logged_error);
            let reason = said.unwrap_or_else(|| {
                format!("exit code {code} {so_far} and no error line; see engine.log")
            });
            (Verdict::Failed, Some(reason))
        }
    }
}

/// Exit code 0 is believed only together with a whole trace.
fn judge_success(observed: &Observed, trace: &TraceSummary) -> (Verdict, Option<String>) {
    let problem = if let Some(damage) = &trace.damage {
        damage.clone()
    } else if observed.done.is_none() {
        "exit code 0, but the engine printed no BMOE_DONE".to_owned()
    } else {
        match &trace.outcome {
            Some(Outcome::Complete) => return (Verdict::Valid, None),
            Some(Outcome::Interrupted { signal }) => {
                format!("exit code 0, but the trace says: interrupted by {signal}")
            }
            Some(Outcome::Failed { message }) => {
                format!("exit code 0, but the trace says: {message}")
            }
            None => "exit code 0, but the trace has no end record".to_owned(),
        }
    };
    (Verdict::Failed, Some(problem))
}
