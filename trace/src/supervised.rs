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

use serde::{Deserialize, Serialize};

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
