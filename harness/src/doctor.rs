//! Whether a target has what a run needs, and how to mend what is missing.

use serde::Serialize;

use crate::engine::{DeviceEngine, PLAIN_ARM64};
use crate::facts::Facts;
use crate::progress::mib;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What.
    pub name: &'static str,
    /// How it stands.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub mend: Option<String>,
}

/// How a thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// Runs work, but what they measure suffers.
    Warning,
    /// Runs don't work.
    Missing,
}

impl Check {
    /// A check that passed.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Ok, found: found.into(), mend: None }
    }

    /// One that did not.
    pub fn bad(
        name: &'static str,
        state: State,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { name, state, found: found.into(), mend: Some(mend.into()) }
    }
}

/// What is known of a run besides the target's own facts.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The engine, or why there is none.
    pub engine: Option<Result<DeviceEngine, String>>,
    /// What is to be stored on the target: the engine and models.
    pub needed_bytes: u64,
    /// Whether the file system takes O_DIRECT; `None` = nobody looked.
    pub direct_io: Option<bool>,
    /// Readahead of the disk.
    pub read_ahead_kib: Option<u32>,
}

/// Tools without which nothing works on a device; `flock` and `setsid` are helpful only.
const OPTIONAL_TOOLS: [&str; 2] = ["flock", "setsid"];
/// What a device keeps free besides.
const ROOM_BYTES: u64 = 256 << 20;
/// Less than this is no memory to run a model in.
const MEMORY_BYTES: u64 = 512 << 20;
/// Below this a device may save power or end in the middle of the night.
const BATTERY_PCT: u32 = 30;
/// What a memory map should be compared with (docs/method.md).
const USUAL_READ_AHEAD_KIB: u32 = 128;

/// Looks at everything. The order is that of a run: what it needs first, what it measures last.
#[must_use]
pub fn checks(facts: &Facts, plan: &Plan) -> Vec<Check> {
    let mut checks = Vec::new();
    checks.extend(plan.engine.as_ref().map(engine));
    checks.extend(cpu(facts));
    checks.push(tools(facts));
    checks.push(folder(facts));
    checks.push(room(facts, plan.needed_bytes));
    checks.push(memory(facts));
    checks.extend(power(facts));
    checks.push(temperatures(facts));
    checks.push(clocks(facts));
    checks.push(pressure(facts));
    checks.extend(storage(facts, plan));
    checks
}

fn engine(engine: &Result<DeviceEngine, String>) -> Check {
    const NAME: &str = "engine";
    match engine {
        Err(reason) => {
            let (found, mend) = reason.split_once("; ").unwrap_or((reason, "build it"));
            Check::bad(NAME, State::Missing, found, mend)
        }
        Ok(engine) => {
            let found = match engine.variant {
                Some(variant) => format!("{} ({variant})", engine.path.display()),
                None => engine.path.display().to_string(),
            };
            match engine.better {
                Some(better) => Check::bad(
                    NAME,
                    State::Warning,
                    format!("{found}; its CPU could run {better}, which is faster"),
                    "`scripts/build-device.sh arm64` builds all of them",
                ),
                None => Check::ok(NAME, found),
            }
        }
    }
}

fn cpu(facts: &Facts) -> Option<Check> {
    const NAME: &str = "CPU";
    if facts.abi() != Some("arm64-v8a") {
        return None;
    }
    let has: Vec<&str> = [("asimddp", "dot products"), ("i8mm", "8-bit matrix products")]
        .iter()
        .filter(|(feature, _)| facts.cpu_features.contains(*feature))
        .map(|(_, name)| *name)
        .collect();
    Some(if has.is_empty() {
        Check::bad(
            NAME,
            State::Warning,
            format!("no dot products: only the plain {PLAIN_ARM64} engine runs"),
            "expect several times fewer tokens a second from quantised models than newer devices have",
        )
    } else {
        Check::ok(NAME, has.join(", "))
    })
}

fn tools(facts: &Facts) -> Check {
    const NAME: &str = "tools";
    let (optional, needed): (Vec<&str>, Vec<&str>) = facts
        .missing_tools
        .iter()
        .map(String::as_str)
        .partition(|tool| OPTIONAL_TOOLS.contains(tool));
    if !needed.is_empty() {
        let found = format!("without {}", needed.join(", "));
        return Check::bad(NAME, State::Missing, found, "Android 8 or later has them (toybox)");
    }
    if optional.is_empty() {
        Check::ok(NAME, "all there")
    } else {
        let found = format!("without {}", optional.join(", "));
        let mend = "start one `bmoe` for this device at a time";
        Check::bad(NAME, State::Note, found, mend)
    }
}

fn folder(facts: &Facts) -> Check {
    const NAME: &str = "folder";
    if facts.writable {
        return Check::ok(NAME, "can be written");
    }
    let user = facts.user.as_deref().unwrap_or("this user");
    let mend = "free some room; on Android /data/local/tmp belongs to `shell`, and a restart mends its rights";
    Check::bad(NAME, State::Missing, format!("{user} cannot write it"), mend)
}

fn room(facts: &Facts, needed_bytes: u64) -> Check {
    const NAME: &str = "room";
    let Some(free) = facts.free_bytes else {
        return Check::bad(NAME, State::Note, "unknown", "look yourself: `df` does not tell");
    };
    let needed = needed_bytes.saturating_add(ROOM_BYTES);
    let found = format!("{} free, {} needed", mib(free), mib(needed));
    if free >= needed {
        Check::ok(NAME, found)
    } else {
        let mend = "`bmoe clean` removes what bmoe put there; or delete something else";
        Check::bad(NAME, State::Missing, found, mend)
    }
}

fn memory(facts: &Facts) -> Check {
    const NAME: &str = "memory";
    match facts.mem_available_bytes {
        Some(bytes) if bytes >= MEMORY_BYTES => {
            Check::ok(NAME, format!("{} available", mib(bytes)))
        }
        Some(bytes) => {
            let mend = "close what runs there, or restart it";
            Check::bad(NAME, State::Warning, format!("only {} available", mib(bytes)), mend)
        }
        None => {
            let mend = "state the cache's size: `auto` can't work";
            Check::bad(NAME, State::Warning, "/proc/meminfo can't be read", mend)
        }
    }
}

fn power(facts: &Facts) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(battery) = facts.battery {
        let pct = battery.pct.map_or_else(|| "charge unknown".to_owned(), |pct| format!("{pct} %"));
        let low = battery.pct.is_some_and(|pct| pct < BATTERY_PCT);
        checks.push(match (low, battery.powered) {
            (true, false) => Check::bad(
                "battery",
                State::Warning,
                format!("{pct}, not charging"),
                "charge it first: devices slow down when they save power",
            ),
            (true, true) => Check::bad(
                "battery",
                State::Note,
                format!("{pct}, charging"),
                "charging warms the device; let it charge first",
            ),
            (false, powered) => {
                Check::ok("battery", format!("{pct}{}", if powered { ", charging" } else { "" }))
            }
        });
    }
    if let Some(awake) = facts.awake {
        checks.push(if awake {
            Check::bad(
                "screen",
                State::Note,
                "on",
                "leave it as it is for the whole run (off draws less and warms less); `adb shell svc power \
                 stayon usb` keeps it on",
            )
        } else {
            Check::bad(
                "screen",
                State::Note,
                "off",
                "some devices put background work on slow cores; compare a run with the screen on",
            )
        });
    }
    if let Some(status @ 1..) = facts.thermal_status {
        let found = format!("Android's thermal status is {status}, it throttles");
        checks.push(Check::bad("heat", State::Warning, found, "let it cool down first"));
    }
    checks
}

fn temperatures(facts: &Facts) -> Check {
    const NAME: &str = "temperatures";
    let cpu = facts.cpu_zones().count();
    if cpu > 0 {
        return Check::ok(NAME, format!("{cpu} sensors of the CPU"));
    }
    let found = "no sensor of the CPU can be read";
    let mend =
        "runs can't wait for it to cool down: give them a fixed pause, and compare repetitions";
    Check::bad(NAME, State::Note, found, mend)
}

fn clocks(facts: &Facts) -> Check {
    const NAME: &str = "clocks";
    if !facts.reads_clock_limits() {
        let mend = "throttling can be told from the timings only";
        return Check::bad(NAME, State::Note, "scaling_max_freq can't be read", mend);
    }
    let mut governors: Vec<&str> =
        facts.clusters.iter().filter_map(|c| c.governor.as_deref()).collect();
    governors.dedup();
    let limited = facts.clusters.iter().any(|c| c.limit_khz < c.top_khz);
    let governors = if governors.is_empty() { "unknown".to_owned() } else { governors.join(", ") };
    if limited {
        let found = format!("below their top now; governor {governors}");
        let mend = "let it cool down, switch power saving off";
        return Check::bad(NAME, State::Warning, found, mend);
    }
    Check::ok(NAME, format!("limits can be read; governor {governors}"))
}

fn pressure(facts: &Facts) -> Check {
    const NAME: &str = "pressure";
    if facts.pressure.is_empty() {
        let mend = "usual on phones: MemAvailable, swap and faults stand in for it";
        return Check::bad(NAME, State::Note, "/proc/pressure can't be read", mend);
    }
    Check::ok(NAME, format!("of {}", facts.pressure.join(", ")))
}

fn storage(facts: &Facts, plan: &Plan) -> Vec<Check> {
    let mut checks = Vec::new();
    let kind = facts.file_system.as_deref().unwrap_or("unknown file system");
    match plan.direct_io {
        Some(true) => checks.push(Check::ok("O_DIRECT", kind)),
        Some(false) => checks.push(Check::bad(
            "O_DIRECT",
            State::Warning,
            format!("{kind} does not take it: reads go through the page cache"),
            "put the model on another file system (ext4, f2fs, xfs)",
        )),
        None => checks.push(Check::bad(
            "O_DIRECT",
            State::Note,
            kind,
            "the engine checks it on the model's file and says so",
        )),
    }
    checks.push(match facts.io_uring_forbidden {
        Some(true) => Check::bad(
            "io_uring",
            State::Note,
            "forbidden by the kernel",
            "`--io-engine pread`, the default, works; cells with uring fall back to it",
        ),
        Some(false) => Check::ok("io_uring", "not forbidden by the kernel"),
        None => Check::bad(
            "io_uring",
            State::Note,
            "unknown",
            "cells with uring fall back to pread where it isn't allowed, and say so",
        ),
    });
    checks.push(match facts.huge_pages.as_deref() {
        Some("never") | None => Check::bad(
            "huge pages",
            State::Note,
            facts.huge_pages.as_deref().unwrap_or("unknown"),
            "fresh cache pages cost a little more",
        ),
        Some(mode) => Check::ok("huge pages", mode),
    });
    match plan.read_ahead_kib {
        Some(kib) if kib != USUAL_READ_AHEAD_KIB => checks.push(Check::bad(
            "readahead",
            State::Note,
            format!("{kib} KiB"),
            format!(
                "it decides what a memory map can do: compare at {USUAL_READ_AHEAD_KIB} KiB \
                 (scripts/with-memory-limit.sh --readahead)"
            ),
        )),
        Some(kib) => checks.push(Check::ok("readahead", format!("{kib} KiB"))),
        None => {}
    }
    checks
}

/// A check as lines for a terminal.
#[must_use]
pub fn lines(check: &Check) -> String {
    let mark = match check.state {
        State::Ok => "ok",
        State::Note => "note",
        State::Warning => "warn",
        State::Missing => "MISS",
    };
    let mut text = format!("  {mark:<5}{:<13} {}\n", check.name, check.found);
    if let Some(mend) = &check.mend {
        text += &format!("  {:<19}{mend}\n", "");
    }
    text
}

#[cfg(test)]
mod tests;
