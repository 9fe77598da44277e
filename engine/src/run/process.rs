//! What the process costs, as the kernel counts it.

use bmoe_trace::record::MemoryState;
use rustix::time::{ClockId, clock_gettime};

/// Counters of the process since its start. A counter that the system doesn't tell stays 0.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    /// CPU time of all threads.
    pub(super) cpu_ns: u64,
    /// Page faults that had to wait for storage.
    pub(super) major_faults: u64,
}

impl Counters {
    pub(super) fn now() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Self {
            cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
            major_faults: major_faults(&stat),
        }
    }

    /// What came since an earlier reading.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
        }
    }
}

/// `majflt` of /proc/PID/stat: the tenth field behind the command's name, which may hold spaces.
fn major_faults(stat: &str) -> u64 {
    stat.rsplit_once(')')
        .and_then(|(_, fields)| fields.split_ascii_whitespace().nth(9))
        .and_then(|field| field.parse().ok())
        .unwrap_or(0)
}

fn status() -> String {
    std::fs::read_to_string("/proc/self/status").unwrap_or_default()
}

/// Resident bytes now and at most so far.
pub(super) fn rss() -> (u64, u64) {
    let status = status();
    let field = |name| kib_field(&status, name).unwrap_or(0);
    (field("VmRSS:"), field("VmHWM:"))
}

/// Resident bytes now, and where memory is. Two small files of the kernel: about 10 us.
pub(super) fn memory() -> (u64, MemoryState) {
    let status = status();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let state = MemoryState {
        anon_bytes: kib_field(&status, "RssAnon:"),
        file_bytes: kib_field(&status, "RssFile:"),
        swap_bytes: kib_field(&status, "VmSwap:"),
        available_bytes: kib_field(&meminfo, "MemAvailable:"),
        free_bytes: kib_field(&meminfo, "MemFree:"),
        swap_free_bytes: kib_field(&meminfo, "SwapFree:"),
        dense_resident_permille: None,
    };
    (kib_field(&status, "VmRSS:").unwrap_or(0), state)
}

/// Addresses that the process has reserved, and how much of them is in memory. What is reserved and never
/// touched takes no memory yet, but will when it is used.
#[derive(Debug, Clone, Copy)]
pub(super) struct AddressSpace {
    reserved_bytes: u64,
    resident_bytes: u64,
}

impl AddressSpace {
    pub(super) fn now() -> Self {
        let status = status();
        let field = |name| kib_field(&status, name).unwrap_or(0);
        Self { reserved_bytes: field("VmSize:"), resident_bytes: field("VmRSS:") }
    }

    /// Bytes reserved since then and not touched yet.
    pub(super) fn untouched_since(self) -> u64 {
        let now = Self::now();
        let reserved = now.reserved_bytes.saturating_sub(self.reserved_bytes);
        reserved.saturating_sub(now.resident_bytes.saturating_sub(self.resident_bytes))
    }
}

/// Bytes of a line `name   1024 kB`.
fn kib_field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Bytes that the process has read through system calls (`rchar`); `None` when the system hides it.
pub(super) fn bytes_read() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("rchar: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let stat = "42 (a name) with) R 1 2 3 4 5 6 70 80 91 100 11 12";
        assert_eq!(major_faults(stat), 91);
        let status = "VmHWM:\t  2048 kB\nVmRSS:\t 1024 kB\n";
        assert_eq!(kib_field(status, "VmRSS:"), Some(1024 * 1024));
        assert_eq!(kib_field(status, "RssAnon:"), None);
        let (now, peak) = rss();
        assert!(now > 0 && peak >= now);
        let (now, state) = memory();
        assert!(now > 0 && state.anon_bytes.is_some_and(|anon| anon > 0 && anon <= now));
        assert!(state.available_bytes.is_some() && state.free_bytes.is_some());
        assert!(Counters::now().cpu_ns > 0);
    }
}
