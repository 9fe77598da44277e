//! What an attempt counts for, and the evidence in one line. Nothing here looks at anything but its arguments.

use bmoe_analysis::result_set::{Conditions, State, Verdict};
use bmoe_trace::record::Outcome;
use bmoe_trace::supervised::StoppedBy;

use super::attempt::{Observed, TraceSummary};
use super::executor::{Ended, ExecutorError, Exit, signal_name};

/// `scaling_max_freq` of the fastest cluster below this share of what it was counts as throttled: governors
/// round by less.
const CLOCK_SHARE: f64 = 0.97;
/// A CPU this hot is throttled by its own hardware, whether the kernel shows it or not.
const TOO_HOT_MILLIC: i32 = 95_000;
/// Swap that came into use, or went to and fro, below this is the ordinary housekeeping of a system.
const SWAP_BYTES: u64 = 64 << 20;
/// Of the engine's own memory hardly anything may be swapped out: what it computes with waits for that.
const ENGINE_SWAP_BYTES: u64 = 1 << 20;
/// What `/proc/vmstat` counts in. (Larger pages exist: then this is less than it was.)
const PAGE_BYTES: u64 = 4096;

/// What is known of how an attempt ended.
pub(super) struct End<'a> {
    pub(super) ended: Result<&'a Ended, &'a ExecutorError>,
    pub(super) observed: &'a Observed,
    pub(super) trace: &'a TraceSummary,
    /// The last error in the engine's log.
    pub(super) logged: Option<String>,
    pub(super) timeout_s: u64,
    /// The signal by which the user asked this runner to stop.
    pub(super) interrupt: Option<i32>,
    /// An earlier runner began it.
    pub(super) adopted: bool,
}

impl End<'_> {
    /// By how the process ended and what it left. The text and the conditions are judged elsewhere.
    pub(super) fn verdict(&self) -> (Verdict, Option<String>) {
        let (verdict, reason) = match self.ended {
            Ok(ended) => return self.of_process(ended),
            Err(ExecutorError::Gone(reason)) if self.adopted => {
                (Verdict::Interrupted, format!("cut off {}: {reason}", self.so_far()))
            }
            Err(ExecutorError::Absent) => {
                (Verdict::Interrupted, "cut off before the engine began".to_owned())
            }
            Err(ExecutorError::Gone(reason) | ExecutorError::Lost(reason)) => {
                (Verdict::Lost, format!("{} {reason}", self.so_far()))
            }
            Err(error) => (Verdict::Failed, error.to_string()),
        };
        (verdict, Some(reason))
    }

    fn so_far(&self) -> String {
        match self.observed.steps {
            Some((step, steps)) => format!("after {step} of {steps} tokens"),
            None => "before the first token".to_owned(),
        }
    }

    fn of_process(&self, ended: &Ended) -> (Verdict, Option<String>) {
        let so_far = self.so_far();
        let (verdict, reason) = match (ended.stopped, ended.exit) {
            (_, Exit::Code(0)) => return self.of_success(),
            (Some(StoppedBy::Timeout), _) => {
                let limit = self.timeout_s;
                let reason = format!(
                    "not done within {limit} s, ended {so_far}; raise `timeout_s` or ask for less"
                );
                (Verdict::TimedOut, reason)
            }
            (Some(StoppedBy::Request), _) if self.adopted || self.interrupt.is_some() => {
                let by = self.interrupt.map_or_else(|| "an earlier runner".to_owned(), signal_name);
                (Verdict::Interrupted, format!("by {by} {so_far}"))
            }
            (Some(StoppedBy::Request), _) => (
                Verdict::Killed,
                format!("its supervisor was asked to stop {so_far}, which bmoe did not do"),
            ),
            (None, Exit::Signal(signal)) => return killed(signal, ended.oom_kills, &so_far),
            (None, Exit::Code(code @ (130 | 143))) => {
                let signal = signal_name(code - 128);
                let reason = format!("asked to stop by {signal} {so_far}, which bmoe did not send");
                (Verdict::Killed, reason)
            }
            (None, Exit::Code(code)) => {
                let said = self.observed.error.clone().or_else(|| self.logged.clone());
                let silent =
                    || format!("exit code {code} {so_far} and no error line; see engine.log");
                (Verdict::Failed, said.unwrap_or_else(silent))
            }
        };
        (verdict, Some(reason))
    }

    /// Exit code 0 is believed only together with a whole trace.
    fn of_success(&self) -> (Verdict, Option<String>) {
        let problem = if let Some(damage) = &self.trace.damage {
            damage.clone()
        } else if self.observed.done.is_none() {
            "exit code 0, but the engine printed no BMOE_DONE".to_owned()
        } else {
            match &self.trace.outcome {
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
}

/// A crash is the engine's own doing, but SIGKILL always comes from somewhere else.
fn killed(signal: i32, oom_kills: Option<u64>, so_far: &str) -> (Verdict, Option<String>) {
    let by = signal_name(signal);
    let (verdict, hint) = match oom_kills {
        _ if signal != signal_hook::consts::SIGKILL => (Verdict::Killed, String::new()),
        Some(0) => (
            Verdict::Killed,
            ": a signal from outside, for the kernel did not run out of memory".to_owned(),
        ),
        Some(n) => {
            (Verdict::OutOfMemory, format!(": the kernel killed {n} for lack of memory meanwhile"))
        }
        None => (
            Verdict::Killed,
            ", which bmoe did not send: out of memory, or a signal from outside".to_owned(),
        ),
    };
    (verdict, Some(format!("by {by} {so_far}{hint}")))
}

/// By what the device did meanwhile; `None` = nothing that spoils the figures. `baseline` is how it was before
/// the first run.
pub(super) fn of_conditions(
    conditions: &Conditions,
    baseline: &State,
    engine_swap_bytes: Option<u64>,
) -> Option<(Verdict, String)> {
    swapped(conditions, engine_swap_bytes)
        .map(|evidence| (Verdict::Swapped, evidence))
        .or_else(|| throttled(conditions, baseline).map(|evidence| (Verdict::Throttled, evidence)))
}

fn swapped(c: &Conditions, engine: Option<u64>) -> Option<String> {
    if let Some(bytes) = engine.filter(|bytes| *bytes >= ENGINE_SWAP_BYTES) {
        return Some(format!("{} MiB of the engine were swapped out", bytes >> 20));
    }
    let bytes = |pages: Option<u64>| pages.unwrap_or(0).saturating_mul(PAGE_BYTES);
    let (read, written) = (bytes(c.swap_in_pages), bytes(c.swap_out_pages));
    let grown = c.swap_peak_bytes.zip(c.entry.swap_used_bytes);
    let grown = grown.map_or(0, |(peak, entry)| peak.saturating_sub(entry));
    (read.max(written).max(grown) >= SWAP_BYTES).then(|| {
        format!(
            "the system wrote {} MiB to swap and read {} MiB; swap in use grew by {} MiB",
            written >> 20,
            read >> 20,
            grown >> 20
        )
    })
}

fn throttled(c: &Conditions, baseline: &State) -> Option<String> {
    // A device that was throttled when the matrix began is measured by what it may do now.
    let fastest = |state: &State| state.max_clock_khz.iter().max().copied();
    let full = fastest(baseline).max(fastest(&c.entry));
    if let Some((floor, full)) = c.clock_floor_khz.zip(full)
        && f64::from(floor) < f64::from(full) * CLOCK_SHARE
    {
        return Some(format!(
            "the fastest cluster was held at {} of {} MHz",
            floor / 1000,
            full / 1000
        ));
    }
    let peak = c.cpu_temperature_peak_millic.filter(|peak| *peak >= TOO_HOT_MILLIC)?;
    Some(format!("the CPU reached {:.1} °C", f64::from(peak) / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions() -> Conditions {
        Conditions {
            entry: State {
                max_clock_khz: vec![1_800_000, 2_800_000],
                swap_used_bytes: Some(1 << 30),
                ..State::default()
            },
            clock_floor_khz: Some(2_800_000),
            swap_peak_bytes: Some(1 << 30),
            swap_in_pages: Some(100),
            swap_out_pages: Some(100),
            cpu_temperature_peak_millic: Some(71_000),
            samples: 9,
            ..Conditions::default()
        }
    }

    #[test]
    fn what_the_device_did_is_evidence_beyond_a_threshold() {
        let c = conditions;
        let table = [
            (c(), None, None),
            (Conditions::default(), None, None),
            // A virtual machine tells of memory alone.
            (
                Conditions { swap_out_pages: Some(0), samples: 3, ..Conditions::default() },
                Some(0),
                None,
            ),
            (c(), Some((1 << 20) - 1), None),
            (c(), Some(3 << 20), Some("Swapped: 3 MiB of the engine were swapped out")),
            (
                Conditions { swap_out_pages: Some(20_480), ..c() },
                None,
                Some(
                    "Swapped: the system wrote 80 MiB to swap and read 0 MiB; swap in use grew by 0 MiB",
                ),
            ),
            (
                Conditions { swap_peak_bytes: Some((1 << 30) + (70 << 20)), ..c() },
                None,
                Some(
                    "Swapped: the system wrote 0 MiB to swap and read 0 MiB; swap in use grew by 70 MiB",
                ),
            ),
            (Conditions { clock_floor_khz: Some(2_750_000), ..c() }, None, None),
            (
                Conditions { clock_floor_khz: Some(2_400_000), ..c() },
                None,
                Some("Throttled: the fastest cluster was held at 2400 of 2800 MHz"),
            ),
            (
                Conditions { cpu_temperature_peak_millic: Some(96_500), ..c() },
                None,
                Some("Throttled: the CPU reached 96.5 °C"),
            ),
        ];
        for (conditions, engine, expected) in table {
            let found = of_conditions(&conditions, &State::default(), engine);
            let found = found.map(|(verdict, evidence)| format!("{verdict:?}: {evidence}"));
            assert_eq!(found.as_deref(), expected, "{conditions:?}");
        }
    }

    #[test]
    fn a_device_that_is_slower_than_before_the_first_run_is_throttled() {
        let slow = State { max_clock_khz: vec![2_000_000], ..State::default() };
        let was = State { max_clock_khz: vec![2_800_000], ..State::default() };
        let conditions =
            Conditions { entry: slow, clock_floor_khz: Some(2_000_000), ..Conditions::default() };
        assert!(of_conditions(&conditions, &was, None).is_some());
        assert!(of_conditions(&conditions, &conditions.entry, None).is_none());
    }

    #[test]
    fn ends_are_told_apart() {
        let ended = |exit, stopped, oom_kills| {
            Ok(Ended { exit, stopped, wall: std::time::Duration::ZERO, oom_kills })
        };
        let gone = || Err(ExecutorError::Gone("gone".into()));
        let table = [
            (ended(Exit::Signal(9), None, Some(2)), false, Verdict::OutOfMemory),
            (ended(Exit::Signal(9), None, Some(0)), false, Verdict::Killed),
            (ended(Exit::Signal(11), None, Some(1)), false, Verdict::Killed),
            (ended(Exit::Signal(9), Some(StoppedBy::Timeout), None), false, Verdict::TimedOut),
            (ended(Exit::Code(143), Some(StoppedBy::Request), None), false, Verdict::Killed),
            (ended(Exit::Code(143), Some(StoppedBy::Request), None), true, Verdict::Interrupted),
            (ended(Exit::Code(3), None, None), false, Verdict::Failed),
            (gone(), false, Verdict::Lost),
            (gone(), true, Verdict::Interrupted),
            (Err(ExecutorError::Absent), true, Verdict::Interrupted),
            (Err(ExecutorError::Lost("away".into())), true, Verdict::Lost),
            (Err(ExecutorError::Refused("no".into())), false, Verdict::Failed),
        ];
        for (ended, adopted, expected) in table {
            let end = End {
                ended: ended.as_ref(),
                observed: &Observed::default(),
                trace: &TraceSummary::default(),
                logged: None,
                timeout_s: 9,
                interrupt: None,
                adopted,
            };
            let (verdict, reason) = end.verdict();
            assert_eq!(verdict, expected, "{ended:?}");
            assert!(reason.is_some());
        }
    }
}
