//! What is known of a machine or device: found by one shell script there, read by pure functions here.

mod parse;
mod show;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::target::{Command, Target, TargetError};

pub use parse::parse;

/// Prints what `parse` reads.
const SCRIPT: &str = include_str!("gather.sh");
/// A phone with a hundred sensors takes two seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// Asks a target. Files go to its home, unless `room` names another folder.
///
/// # Errors
/// It can't be reached, or its shell can't run the script.
pub fn gather(target: &dyn Target, room: Option<&Path>) -> Result<Facts, TargetError> {
    let mut words: Vec<OsString> = ["sh", "-c", SCRIPT, "sh"].map(OsString::from).into();
    words.push(target.home().into());
    words.extend(room.map(OsString::from));
    let mut out = Vec::new();
    let finished = target.exec(&Command::new(words, LIMIT), &mut |bytes| {
        out.extend_from_slice(bytes);
        ControlFlow::Continue(())
    })?;
    parse(&String::from_utf8_lossy(&out)).ok_or_else(|| TargetError::Failed {
        target: target.name().to_owned(),
        what: "find out what it is".to_owned(),
        source: io::Error::other(format!(
            "its shell broke off: {:?}, {}",
            finished.exit,
            finished.stderr.trim()
        )),
    })
}

/// A machine or device. What it does not tell is `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Facts {
    /// Manufacturer and model of a device.
    pub model: Option<String>,
    /// Its system on a chip.
    pub soc: Option<String>,
    /// Android's version.
    pub android: Option<String>,
    /// Android's API level.
    pub api_level: Option<u32>,
    /// Name of another operating system.
    pub os: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// The user that commands run as.
    pub user: Option<String>,
    /// Binary interfaces, the best one first: `arm64-v8a`, `x86_64`.
    pub abis: Vec<String>,
    /// Name of the CPU.
    pub cpu: Option<String>,
    /// Cores.
    pub cores: u32,
    /// The `Features` (Arm) or `flags` (x86) of /proc/cpuinfo.
    #[serde(skip)]
    pub cpu_features: BTreeSet<String>,
    /// Groups of cores that share a clock.
    pub clusters: Vec<Cluster>,
    /// `MemTotal`.
    pub mem_total_bytes: Option<u64>,
    /// `MemAvailable`.
    pub mem_available_bytes: Option<u64>,
    /// `SwapTotal`.
    pub swap_total_bytes: Option<u64>,
    /// Temperature sensors that measure.
    pub zones: Vec<Zone>,
    /// Temperature sensors whose value can't be read, is nonsense or a constant.
    pub mute_zones: u32,
    /// Which of `memory`, `io` and `cpu` tell their pressure (/proc/pressure).
    pub pressure: Vec<String>,
    /// The battery.
    pub battery: Option<Battery>,
    /// Whether the screen is on.
    pub awake: Option<bool>,
    /// Android's thermal status: 0 = none, 1 light, 2 moderate, 3 severe and more.
    pub thermal_status: Option<u32>,
    /// Mode of transparent huge pages: `always`, `madvise`, `never`.
    pub huge_pages: Option<String>,
    /// Whether the kernel forbids io_uring for everybody.
    pub io_uring_forbidden: Option<bool>,
    /// Whether the folder that bmoe uses can be written.
    pub writable: bool,
    /// Room for files of bmoe's.
    pub free_bytes: Option<u64>,
    /// What lies in bmoe's folder.
    pub used_bytes: Option<u64>,
    /// The file system there.
    pub file_system: Option<String>,
    /// Programs that are wanted and missing.
    pub missing_tools: Vec<String>,
}

/// Cores that share a clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cluster {
    /// Numbers of the cores.
    pub cpus: Vec<u32>,
    /// The highest clock that the hardware has.
    pub top_khz: Option<u32>,
    /// The highest one that is allowed now (`scaling_max_freq`): falls when the device throttles.
    pub limit_khz: Option<u32>,
    /// The clock now.
    pub now_khz: Option<u32>,
    /// The governor.
    pub governor: Option<String>,
}

/// A temperature sensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Zone {
    /// Its name.
    pub name: String,
    /// What it measures, in thousandths of a degree Celsius.
    pub millic: i32,
}

/// A battery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Battery {
    /// Its charge.
    pub pct: Option<u32>,
    /// Its temperature, in thousandths of a degree Celsius. It lags by minutes.
    pub millic: Option<i32>,
    /// Whether the device has power from outside.
    pub powered: bool,
}

impl Facts {
    /// The best binary interface.
    #[must_use]
    pub fn abi(&self) -> Option<&str> {
        self.abis.first().map(String::as_str)
    }

    /// Whether it runs Android.
    #[must_use]
    pub fn is_android(&self) -> bool {
        self.android.is_some() || self.api_level.is_some()
    }

    /// Sensors of the CPU: those that a run can be gated on.
    pub fn cpu_zones(&self) -> impl Iterator<Item = &Zone> {
        self.zones.iter().filter(|zone| parse::is_of_cpu(&zone.name))
    }

    /// Whether some core's allowed clock can be read.
    #[must_use]
    pub fn reads_clock_limits(&self) -> bool {
        self.clusters.iter().any(|cluster| cluster.limit_khz.is_some())
    }
}
