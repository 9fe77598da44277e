//! Reads what `gather.sh` prints.

use std::collections::BTreeMap;

use super::{Battery, Cluster, Facts, Zone};

/// What a zone may say and be believed: no device is colder or hotter and answers.
const BELIEVABLE_MILLIC: std::ops::RangeInclusive<i32> = -30_000..=150_000;

/// Sections by name. Those of several lines hold all of them; those that repeat are one after the other.
struct Sections<'t>(BTreeMap<&'t str, Vec<&'t str>>);

impl<'t> Sections<'t> {
    fn new(text: &'t str) -> Self {
        let mut sections: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut current = None;
        for line in text.lines() {
            if let Some(heading) = line.strip_prefix('@') {
                let (name, value) = heading.split_once(' ').unwrap_or((heading, ""));
                current = Some(name);
                let lines = sections.entry(name).or_default();
                if !value.trim().is_empty() {
                    lines.push(value.trim());
                }
            } else if let Some(name) = current
                && !line.trim().is_empty()
            {
                sections.entry(name).or_default().push(line);
            }
        }
        Self(sections)
    }

    fn lines(&self, name: &str) -> &[&'t str] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    fn first(&self, name: &str) -> Option<&'t str> {
        self.lines(name).first().map(|line| line.trim())
    }

    /// The value of the first line `key<separator>value` that isn't empty.
    fn value(&self, name: &str, key: &str, separator: char) -> Option<&'t str> {
        self.lines(name).iter().find_map(|line| {
            let (found, value) = line.split_once(separator)?;
            (found.trim() == key).then(|| value.trim()).filter(|value| !value.is_empty())
        })
    }
}

/// Reads the script's output; `None` when its end is missing.
#[must_use]
pub fn parse(text: &str) -> Option<Facts> {
    let sections = Sections::new(text);
    sections.0.get("end")?;
    let mut facts = Facts {
        os: sections
            .value("os-release", "PRETTY_NAME", '=')
            .map(|name| name.trim_matches(['"', '\'']).to_owned()),
        kernel: sections.lines("uname").get(1).map(|line| line.trim().to_owned()),
        user: sections.first("user").map(str::to_owned),
        writable: sections.first("writable") == Some("yes"),
        pressure: owned(sections.lines("psi")),
        missing_tools: owned(sections.lines("no-tool")),
        huge_pages: sections.first("huge-pages").and_then(bracketed),
        io_uring_forbidden: sections
            .first("io-uring-disabled")
            .and_then(|value| value.parse::<u32>().ok())
            .map(|value| value == 2),
        file_system: sections.first("file-system").map(str::to_owned),
        used_bytes: sections.first("used").and_then(|line| kib(line.split_whitespace().next()?)),
        free_bytes: sections.first("df").and_then(|line| kib(line.split_whitespace().nth(3)?)),
        ..Facts::default()
    };
    properties(&sections, &mut facts);
    cpu(&sections, &mut facts);
    memory(&sections, &mut facts);
    sensors(&sections, &mut facts);
    power(&sections, &mut facts);
    Some(facts)
}

fn owned(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| line.trim().to_owned()).collect()
}

fn kib(number: &str) -> Option<u64> {
    number.parse::<u64>().ok()?.checked_mul(1024)
}

/// The word in brackets: `always [madvise] never`.
fn bracketed(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

fn properties(sections: &Sections<'_>, facts: &mut Facts) {
    let property = |key: &str| sections.value("prop", key, '=').map(str::to_owned);
    let joined = |a: Option<String>, b: Option<String>| match (a, b) {
        (Some(maker), Some(model)) if model.starts_with(&maker) => Some(model),
        (Some(maker), Some(model)) => Some(format!("{maker} {model}")),
        (maker, model) => model.or(maker),
    };
    facts.model = joined(property("ro.product.manufacturer"), property("ro.product.model"));
    facts.soc = joined(property("ro.soc.manufacturer"), property("ro.soc.model"));
    facts.android = property("ro.build.version.release");
    facts.api_level = property("ro.build.version.sdk").and_then(|level| level.parse().ok());
    facts.abis = match (property("ro.product.cpu.abilist"), property("ro.product.cpu.abi")) {
        (Some(list), _) => list.split(',').map(|abi| abi.trim().to_owned()).collect(),
        (None, Some(abi)) => vec![abi],
        // Android's names for what `uname -m` calls otherwise.
        (None, None) => sections
            .first("uname")
            .map(|machine| match machine {
                "aarch64" | "arm64" => "arm64-v8a".to_owned(),
                "armv7l" | "armv8l" => "armeabi-v7a".to_owned(),
                other => other.to_owned(),
            })
            .into_iter()
            .collect(),
    };
}

fn cpu(sections: &Sections<'_>, facts: &mut Facts) {
    let field = |key: &str| sections.value("cpuinfo", key, ':');
    facts.cpu = field("model name").or_else(|| field("Hardware")).map(str::to_owned);
    let processors = sections
        .lines("cpuinfo")
        .iter()
        .filter(|line| line.split_once(':').is_some_and(|(key, _)| key.trim() == "processor"));
    facts.cores = u32::try_from(processors.count()).unwrap_or_default();
    let features = field("Features").or_else(|| field("flags")).unwrap_or_default();
    facts.cpu_features = features.split_whitespace().map(str::to_owned).collect();
    facts.clusters = sections.lines("policy").iter().map(|line| cluster(line)).collect();
    facts.clusters.sort_by_key(|cluster| cluster.cpus.first().copied());
}

/// `policy4|4 5 6|2800000|2800000|1200000|walt`
fn cluster(line: &str) -> Cluster {
    let mut fields = line.split('|').skip(1).map(str::trim);
    let mut field = || fields.next().filter(|text| !text.is_empty());
    let cpus = field().unwrap_or_default();
    let cpus = cpus.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let mut khz = || field().and_then(|text| text.parse().ok());
    let (top_khz, limit_khz, now_khz) = (khz(), khz(), khz());
    Cluster { cpus, top_khz, limit_khz, now_khz, governor: field().map(str::to_owned) }
}

fn memory(sections: &Sections<'_>, facts: &mut Facts) {
    let field = |key: &str| kib(sections.value("meminfo", key, ':')?.strip_suffix("kB")?.trim());
    facts.mem_total_bytes = field("MemTotal");
    facts.mem_available_bytes = field("MemAvailable");
    facts.swap_total_bytes = field("SwapTotal");
}

fn sensors(sections: &Sections<'_>, facts: &mut Facts) {
    for line in sections.lines("zone") {
        let Some((temperature, name)) = line.split_once('|') else { continue };
        let millic = temperature.trim().parse().ok();
        match millic.filter(|millic| BELIEVABLE_MILLIC.contains(millic) && *millic != 0) {
            Some(millic) if !is_constant(name) => {
                facts.zones.push(Zone { name: name.trim().to_owned(), millic });
            }
            _ => facts.mute_zones += 1,
        }
    }
}

/// Zones that are named after a trip point tell that point, not a temperature.
fn is_constant(zone: &str) -> bool {
    zone.contains("-trip")
}

/// Whether a zone is one of the CPU's.
pub(super) fn is_of_cpu(zone: &str) -> bool {
    let name = zone.to_ascii_lowercase();
    ["cpu", "x86_pkg_temp", "soc", "big", "mid", "little"].iter().any(|part| name.contains(part))
}

fn power(sections: &Sections<'_>, facts: &mut Facts) {
    let field = |key: &str| sections.value("battery", key, ':');
    if !sections.lines("battery").is_empty() {
        let powered = ["AC powered", "USB powered", "Wireless powered", "Dock powered"];
        facts.battery = Some(Battery {
            pct: field("level").and_then(|level| level.parse().ok()),
            // Tenths of a degree.
            millic: field("temperature").and_then(|t| t.parse::<i32>().ok()?.checked_mul(100)),
            powered: powered.iter().any(|key| field(key) == Some("true")),
        });
    }
    facts.awake = sections.value("power", "mWakefulness", '=').map(|state| state == "Awake");
    facts.thermal_status =
        sections.value("thermal", "Thermal Status", ':').and_then(|status| status.parse().ok());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by hand after what such phones print; not the output of a real one.
    const PHONE: &str = include_str!("fixtures/phone.txt");
    /// What the script printed in the rig of `scripts/rig` (a virtual machine).
    const RIG: &str = include_str!("fixtures/rig.txt");

    #[test]
    fn a_phone() {
        insta::assert_debug_snapshot!(parse(PHONE).unwrap());
    }

    #[test]
    fn a_phone_in_the_rig() {
        let facts = parse(RIG).unwrap();
        assert!(facts.cpu_features.contains("avx2"));
        insta::assert_debug_snapshot!(Facts { cpu_features: [].into(), ..facts });
    }

    #[test]
    fn output_that_was_cut_off_is_none() {
        assert_eq!(parse(&PHONE[..PHONE.len() / 2]), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_machine_that_tells_nothing_has_no_facts() {
        assert_eq!(parse("@end"), Some(Facts::default()));
    }
}
