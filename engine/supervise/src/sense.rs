//! What a device tells about itself at one moment. What it does not tell is absent, never 0.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use bmoe_trace::supervised::Sample;

use crate::process::Stat;
use crate::thermal::{self, Sensor, numbered, word};

/// A device whose sensors have been found.
#[derive(Debug)]
pub struct Device {
    root: PathBuf,
    sensors: Vec<Sensor>,
    /// Folders of the CPU clusters.
    clusters: Vec<PathBuf>,
    battery: Option<PathBuf>,
}

impl Device {
    /// Finds the sensors below `root`, `/` but for tests.
    #[must_use]
    pub fn find(root: &Path) -> Self {
        let clusters = numbered(&root.join("sys/devices/system/cpu/cpufreq"), "policy");
        let supplies = fs::read_dir(root.join("sys/class/power_supply"));
        let mut supplies: Vec<PathBuf> =
            supplies.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        supplies.sort();
        let battery =
            supplies.into_iter().find(|s| word(&s.join("type")).as_deref() == Some("Battery"));
        Self { root: root.to_owned(), sensors: thermal::find(root), clusters, battery }
    }

    /// How it is now. `engine` is a process whose memory is wanted, too. The times are left 0 apart from the
    /// clock's.
    #[must_use]
    pub fn sample(&self, engine: Option<u32>) -> Sample {
        let meminfo = self.text("proc/meminfo");
        let vmstat = self.text("proc/vmstat");
        let swap = kib(&meminfo, "SwapTotal:").zip(kib(&meminfo, "SwapFree:"));
        let temperatures: Vec<(&Sensor, i32)> =
            self.sensors.iter().filter_map(|s| Some((s, s.read()?))).collect();
        let clock = |file: &str| -> Vec<u32> {
            self.clusters.iter().filter_map(|c| word(&c.join(file))?.parse().ok()).collect()
        };
        let battery = |file: &str| word(&self.battery.as_ref()?.join(file))?.parse::<i32>().ok();
        let status = engine.map(|pid| self.text(&format!("proc/{pid}/status"))).unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Sample {
            unix_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            elapsed_ms: 0,
            rss_bytes: kib(&status, "VmRSS:"),
            major_faults: engine.and_then(|pid| Stat::of(&self.root, pid)?.major_faults()),
            mem_available_bytes: kib(&meminfo, "MemAvailable:"),
            swap_used_bytes: swap.map(|(total, free)| total.saturating_sub(free)),
            swap_in_pages: counter(&vmstat, "pswpin"),
            swap_out_pages: counter(&vmstat, "pswpout"),
            cpu_temperature_millic: temperatures
                .iter()
                .filter(|(sensor, _)| sensor.of_cpu)
                .map(|(_, millic)| *millic)
                .max(),
            temperatures_millic: temperatures
                .into_iter()
                .map(|(sensor, millic)| (sensor.name.clone(), millic))
                .collect(),
            clocks_khz: clock("scaling_cur_freq"),
            max_clocks_khz: clock("scaling_max_freq"),
            battery_pct: battery("capacity").and_then(|pct| u32::try_from(pct).ok()),
            // Tenths of a degree.
            battery_temperature_millic: battery("temp").map(|tenths| tenths.saturating_mul(100)),
            psi_memory_some_pct: self.pressure("memory"),
            psi_io_some_pct: self.pressure("io"),
            psi_cpu_some_pct: self.pressure("cpu"),
            load_average: self.text("proc/loadavg").split(' ').next().and_then(|n| n.parse().ok()),
        }
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }

    /// `some avg10=0.12 avg60=...`
    fn pressure(&self, of: &str) -> Option<f64> {
        let text = self.text(&format!("proc/pressure/{of}"));
        let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
        some.split(' ').find_map(|field| field.strip_prefix("avg10=")?.parse().ok())
    }
}

/// Bytes of a line `name   1024 kB`.
fn kib(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The number of a line `name 7`.
fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}
