//! Facts as people read them.

use super::{Cluster, Facts};
use crate::progress::mib;

impl Facts {
    /// What it is, in one line.
    #[must_use]
    pub fn headline(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.model.clone());
        match (&self.android, self.api_level) {
            (Some(version), Some(level)) => parts.push(format!("Android {version} (API {level})")),
            (Some(version), None) => parts.push(format!("Android {version}")),
            _ => parts.extend(self.os.clone()),
        }
        parts.extend(self.abi().map(str::to_owned));
        parts.extend(self.soc.clone().or_else(|| self.cpu.clone()));
        parts.join(", ")
    }

    /// The rest, as pairs of a heading and a line.
    #[must_use]
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines =
            vec![("memory", self.memory()), ("room", self.room()), ("cores", self.clocks())];
        lines.push(("sensors", self.sensors()));
        lines.push(("readable", self.readable()));
        if let Some(battery) = self.battery {
            let mut parts = Vec::new();
            parts.extend(battery.pct.map(|pct| format!("{pct} %")));
            parts.extend(battery.millic.map(degrees));
            parts.push(if battery.powered { "charging" } else { "not charging" }.to_owned());
            lines.push(("battery", parts.join(", ")));
        }
        lines
    }

    fn memory(&self) -> String {
        let Some(total) = self.mem_total_bytes else { return "unknown".to_owned() };
        let mut line = mib(total);
        if let Some(available) = self.mem_available_bytes {
            line += &format!(", {} available", mib(available));
        }
        match self.swap_total_bytes {
            Some(0) => line += ", no swap",
            Some(swap) => line += &format!(", swap {}", mib(swap)),
            None => {}
        }
        line
    }

    fn room(&self) -> String {
        let mut line = match self.free_bytes {
            Some(free) => format!("{} free", mib(free)),
            None => "unknown".to_owned(),
        };
        if let Some(kind) = &self.file_system {
            line += &format!(" ({kind})");
        }
        if let Some(used @ 1..) = self.used_bytes {
            line += &format!(", {} of bmoe's", mib(used));
        }
        if !self.writable {
            line += ", not writable";
        }
        line
    }

    fn clocks(&self) -> String {
        if self.clusters.is_empty() {
            return format!("{}, clocks unknown", self.cores);
        }
        let cluster = |cluster: &Cluster| {
            let count = cluster.cpus.len();
            let top = cluster.top_khz.map_or_else(|| "? GHz".to_owned(), gigahertz);
            match (cluster.limit_khz, cluster.top_khz) {
                (Some(limit), Some(top_khz)) if limit < top_khz => {
                    format!("{count} x {top} (now at most {})", gigahertz(limit))
                }
                _ => format!("{count} x {top}"),
            }
        };
        self.clusters.iter().map(cluster).collect::<Vec<_>>().join(", ")
    }

    fn sensors(&self) -> String {
        let cpu: Vec<i32> = self.cpu_zones().map(|zone| zone.millic).collect();
        let mut line = match (cpu.iter().min(), cpu.iter().max()) {
            (Some(low), Some(high)) if low == high => {
                format!("{} of the CPU ({})", cpu.len(), degrees(*low))
            }
            (Some(low), Some(high)) => {
                format!("{} of the CPU ({} to {})", cpu.len(), degrees(*low), degrees(*high))
            }
            _ => "none of the CPU".to_owned(),
        };
        line += &format!(", {} others", self.zones.len() - cpu.len());
        if self.mute_zones > 0 {
            line += &format!(", {} without a usable value", self.mute_zones);
        }
        line
    }

    fn readable(&self) -> String {
        let mut parts = Vec::new();
        if !self.pressure.is_empty() {
            parts.push(format!("pressure of {}", self.pressure.join(", ")));
        }
        if self.reads_clock_limits() {
            parts.push("clock limits".to_owned());
        }
        if !self.zones.is_empty() {
            parts.push("temperatures".to_owned());
        }
        if parts.is_empty() { "nothing".to_owned() } else { parts.join("; ") }
    }
}

fn degrees(millic: i32) -> String {
    format!("{:.1} °C", f64::from(millic) / 1000.0)
}

fn gigahertz(khz: u32) -> String {
    format!("{:.2} GHz", f64::from(khz) / 1e6)
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    fn shown(text: &str) -> String {
        let facts = parse(text).unwrap();
        let lines = facts.lines().into_iter().map(|(name, line)| format!("  {name:<9}{line}\n"));
        format!("{}\n{}", facts.headline(), lines.collect::<String>())
    }

    #[test]
    fn a_phone_and_a_virtual_machine_are_described() {
        let (phone, rig) = (include_str!("fixtures/phone.txt"), include_str!("fixtures/rig.txt"));
        insta::assert_snapshot!(format!("{}\n{}\n{}", shown(phone), shown(rig), shown("@end")));
    }
}
