//! What `bmoe-engine supervise` leaves beside a run: how it stands, and how the device was meanwhile.
//!
//! ```text
//! DIR/run.toml        the run (written by the harness)
//! DIR/trace.bin       the engine's trace
//! DIR/lines.txt       the engine's standard output: `BMOE_<TAG> {json}` lines
//! DIR/engine.log      the engine's standard error
//! DIR/samples.jsonl   append-only, one [`Sample`] a line, about one a second
//! DIR/status.json     [`Status`], replaced whole
//! ```
//!
//! `bmoe-engine follow` prints these as [`Followed`] lines while they grow.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::line::Line;

/// The run, written by the harness.
pub const RUN_FILE: &str = "run.toml";
/// The engine's trace.
pub const TRACE_FILE: &str = "trace.bin";
/// The engine's standard output.
pub const LINES_FILE: &str = "lines.txt";
/// The engine's standard error.
pub const LOG_FILE: &str = "engine.log";
/// The [`Sample`]s.
pub const SAMPLES_FILE: &str = "samples.jsonl";
/// The [`Status`].
pub const STATUS_FILE: &str = "status.json";
/// A folder with such a file is never started any more: whoever wrote it has given the attempt up.
pub const ABANDONED_FILE: &str = "abandoned";

/// How a supervised run stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Status {
    /// The supervisor runs.
    Running(Supervisor),
    /// The engine ended.
    Ended {
        /// Who watched it.
        supervisor: Supervisor,
        /// The engine's exit code; `None` when a signal ended it.
        exit_code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
        /// Why the supervisor ended it, when it did.
        stopped: Option<StoppedBy>,
        /// From the start of the engine's process to its end.
        wall_ns: u64,
        /// Processes that the kernel killed for lack of memory meanwhile; `None` when it does not count.
        oom_kills: Option<u64>,
    },
    /// The engine could not be started.
    Refused {
        /// Why.
        message: String,
    },
    /// The supervisor is gone and left no other state. Never in a file: what `follow` makes of `Running`.
    Lost {
        /// Who watched it.
        supervisor: Supervisor,
    },
    /// Nobody has begun to watch it. Never in a file: what `follow` makes of a folder without one.
    Absent,
}

impl Status {
    /// Whether nothing will happen any more.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Running(_))
    }
}

/// The process that watches an engine. Its number alone could belong to another one meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Supervisor {
    /// Its process id.
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`: ticks from the boot to its start.
    pub start_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id`; empty where it can't be read.
    pub boot_id: String,
}

/// Why a supervisor ended an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoppedBy {
    /// Its time was up.
    Timeout,
    /// It was asked to (by SIGTERM).
    Request,
}

/// How far somebody has read: bytes of [`LINES_FILE`] and of [`SAMPLES_FILE`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offsets {
    /// Bytes of the engine's standard output.
    pub lines: u64,
    /// Bytes of the samples.
    pub samples: u64,
}

/// A line of `bmoe-engine follow`.
#[derive(Debug, Clone, PartialEq)]
pub enum Followed {
    /// What the engine said.
    Line(Line),
    /// `BMOE_SAMPLE`
    Sample(Box<Sample>),
    /// `BMOE_AT`: what came before ends here; whoever loses the connection goes on from it. Comes also
    /// when there was nothing new, as a sign of life.
    At(Offsets),
    /// `BMOE_STATUS`, the last line.
    Status(Status),
}

impl Followed {
    /// Reads a line; `None` for everything that is not of this kind.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let (tag, json) = line.trim_end().split_once(' ')?;
        match tag {
            "BMOE_SAMPLE" => serde_json::from_str(json).ok().map(Self::Sample),
            "BMOE_AT" => serde_json::from_str(json).ok().map(Self::At),
            "BMOE_STATUS" => serde_json::from_str(json).ok().map(Self::Status),
            _ => Line::parse(line).map(Self::Line),
        }
    }
}

impl fmt::Display for Followed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = |json: Result<String, serde_json::Error>| json.map_err(|_| fmt::Error);
        match self {
            Self::Line(line) => write!(f, "{line}"),
            Self::Sample(sample) => {
                write!(f, "BMOE_SAMPLE {}", json(serde_json::to_string(sample))?)
            }
            Self::At(offsets) => write!(f, "BMOE_AT {}", json(serde_json::to_string(offsets))?),
            Self::Status(status) => {
                write!(f, "BMOE_STATUS {}", json(serde_json::to_string(status))?)
            }
        }
    }
}

/// A device at one moment. What it does not tell is `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Milliseconds since the engine started; 0 before.
    pub elapsed_ms: u64,
    /// Resident memory of the engine.
    pub rss_bytes: Option<u64>,
    /// Major faults of the engine so far.
    pub major_faults: Option<u64>,
    /// `MemAvailable`.
    pub mem_available_bytes: Option<u64>,
    /// `SwapTotal` - `SwapFree`.
    pub swap_used_bytes: Option<u64>,
    /// `pswpin` of /proc/vmstat.
    pub swap_in_pages: Option<u64>,
    /// `pswpout` of /proc/vmstat.
    pub swap_out_pages: Option<u64>,
    /// Thermal zones that measure, by name, in millidegrees Celsius. Not those that are constants
    /// (`cpu-hw-trip-*`) nor those that answer nonsense.
    pub temperatures_millic: Vec<(String, i32)>,
    /// The hottest zone of the CPU: what gates and verdicts use. Never the battery's.
    pub cpu_temperature_millic: Option<i32>,
    /// `scaling_cur_freq` of each cluster (cpufreq policy), kHz.
    pub clocks_khz: Vec<u32>,
    /// `scaling_max_freq` of each cluster, kHz: falls when the device throttles.
    pub max_clocks_khz: Vec<u32>,
    /// Battery charge.
    pub battery_pct: Option<u32>,
    /// Battery temperature, for the record only: it lags by minutes.
    pub battery_temperature_millic: Option<i32>,
    /// `some avg10` of /proc/pressure/memory.
    pub psi_memory_some_pct: Option<f64>,
    /// `some avg10` of /proc/pressure/io.
    pub psi_io_some_pct: Option<f64>,
    /// `some avg10` of /proc/pressure/cpu.
    pub psi_cpu_some_pct: Option<f64>,
    /// First number of /proc/loadavg.
    pub load_average: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_followed_reads_back() {
        let supervisor = Supervisor { pid: 7, start_ticks: 8, boot_id: "b".into() };
        for followed in [
            Followed::Sample(Box::new(Sample { rss_bytes: Some(5), ..Sample::default() })),
            Followed::At(Offsets { lines: 3, samples: 4 }),
            Followed::Status(Status::Running(supervisor.clone())),
            Followed::Status(Status::Lost { supervisor }),
            Followed::Status(Status::Absent),
        ] {
            assert_eq!(Followed::parse(&followed.to_string()), Some(followed));
        }
        assert_eq!(Followed::parse("llama_load: 12"), None);
    }
}
