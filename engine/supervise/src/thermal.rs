//! Temperature sensors: which of them measure, and which of those sit in the CPU.

use std::fs;
use std::path::{Path, PathBuf};

/// A sensor that answers.
#[derive(Debug, Clone)]
pub(crate) struct Sensor {
    /// Its type, as the kernel names it.
    pub(crate) name: String,
    /// It sits in the CPU.
    pub(crate) of_cpu: bool,
    file: PathBuf,
}

impl Sensor {
    /// Millidegrees Celsius; `None` when it answers nonsense.
    pub(crate) fn read(&self) -> Option<i32> {
        plausible(fs::read_to_string(&self.file).ok()?.trim().parse().ok()?)
    }
}

/// Sensors that are switched off answer 0 or something below -40 °C; no silicon works above 150 °C. A few
/// kernels answer in whole degrees.
fn plausible(value: i32) -> Option<i32> {
    let millic = if (1..=150).contains(&value) { value * 1000 } else { value };
    (millic != 0 && (-40_000..=150_000).contains(&millic)).then_some(millic)
}

/// All sensors of a device, by number: thermal zones, and the monitoring chips of PCs.
pub(crate) fn find(root: &Path) -> Vec<Sensor> {
    let zones = numbered(&root.join("sys/class/thermal"), "thermal_zone").into_iter().map(|zone| {
        let name = word(&zone.join("type")).unwrap_or_default();
        Sensor { of_cpu: is_cpu(&name), file: zone.join("temp"), name }
    });
    let chips = numbered(&root.join("sys/class/hwmon"), "hwmon").into_iter().filter_map(|chip| {
        let name = word(&chip.join("name"))?;
        let of_cpu = matches!(name.as_str(), "coretemp" | "k10temp" | "zenpower");
        of_cpu.then(|| Sensor { name, of_cpu, file: chip.join("temp1_input") })
    });
    zones.chain(chips).filter(|s| !is_constant(&s.name) && s.read().is_some()).collect()
}

/// Trip points that the kernel shows as zones: `cpu-hw-trip-0` is the temperature at which the hardware
/// throttles, and never changes.
fn is_constant(name: &str) -> bool {
    name.contains("-trip-")
}

/// Names of zones in CPUs: Qualcomm's `cpu-0-1`, `cpuss-2`, MediaTek's `mtktscpu`, Samsung's and Google's
/// `BIG`, `MID`, `LITTLE`, the PC's `x86_pkg_temp`, the boards' `cpu-thermal`. Never a battery.
fn is_cpu(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let clusters = ["big", "mid", "little", "x86_pkg_temp"];
    !name.contains("batt") && (name.contains("cpu") || clusters.contains(&name.as_str()))
}

/// The folders `<prefix>N` of a folder, by number.
pub(crate) fn numbered(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((number, entry.path()))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// The trimmed content of a small file.
pub(crate) fn word(file: &Path) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_no_temperature() {
        let read = [41_000, 41, 0, -274_000, -5_000, 999_000].map(plausible);
        assert_eq!(read, [Some(41_000), Some(41_000), None, None, Some(-5_000), None]);
    }

    #[test]
    fn zones_of_the_cpu_are_known_by_their_names() {
        for name in ["cpu-0-1", "cpuss-2-usr", "mtktscpu", "BIG", "x86_pkg_temp", "cpu-thermal"] {
            assert!(is_cpu(name) && !is_constant(name), "{name}");
        }
        for name in ["battery", "gpuss-0", "skin-msm-therm", "cpu-battery"] {
            assert!(!is_cpu(name), "{name}");
        }
        assert!(is_constant("cpu-hw-trip-1"));
    }
}
