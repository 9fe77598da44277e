//! The machine: its description, its noise, and the settings that a run needs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::data::{MachineFacts, Noise};
use crate::error::BenchError;

/// Root of the version 1 memory controller.
const MEMORY_GROUPS: &str = "/sys/fs/cgroup/memory";

fn word(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).map(|t| t.trim().to_owned()).unwrap_or_default()
}

/// The line of a file that begins with `key` and a colon.
fn field(path: &str, key: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    });
    value.unwrap_or_default()
}

/// Describes the machine; `disk` is the one below the model.
#[must_use]
pub fn facts(disk: &Disk) -> MachineFacts {
    let kib: u64 = field("/proc/meminfo", "MemTotal")
        .split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    let huge_pages = word("/sys/kernel/mm/transparent_hugepage/enabled");
    MachineFacts {
        cpu: field("/proc/cpuinfo", "model name"),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        mem_total_mib: kib / 1024,
        kernel: word("/proc/sys/kernel/osrelease"),
        disk: disk.name(),
        read_ahead_kib: disk.read_ahead_kib,
        huge_pages: huge_pages
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'))
            .map_or(huge_pages.clone(), |(mode, _)| mode.to_owned()),
    }
}

/// Forgets all pages that the kernel has cached.
///
/// # Errors
/// Not allowed.
pub fn drop_caches() -> Result<(), BenchError> {
    let path = Path::new("/proc/sys/vm/drop_caches");
    // Dirty pages would stay.
    let _ = std::process::Command::new("sync").status();
    fs::write(path, "3").map_err(BenchError::io("drop the page cache (as root) through", path))
}

/// The block device below a file.
#[derive(Debug, Clone)]
pub struct Disk {
    queue: PathBuf,
    /// Its readahead as it was found.
    pub read_ahead_kib: u64,
}

impl Disk {
    /// Finds it.
    ///
    /// # Errors
    /// The file is on none, or it tells no readahead.
    pub fn below(file: &Path) -> Result<Self, BenchError> {
        let device = fs::metadata(file).map_err(BenchError::io("look at", file))?.dev();
        // The kernel's layout of device numbers.
        let major = (device >> 8) & 0xfff;
        let minor = (device & 0xff) | ((device >> 12) & 0xfff00);
        let refused = |why: &str| {
            BenchError::Refused(format!(
                "{}: no block device with a readahead below it ({major}:{minor}: {why}); put the model on a \
                 local disk",
                file.display()
            ))
        };
        let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))
            .map_err(|e| refused(&e.to_string()))?;
        // A partition lies inside its disk.
        let queue = [folder.as_path(), folder.parent().unwrap_or(&folder)]
            .into_iter()
            .map(|f| f.join("queue"))
            .find(|q| q.is_dir())
            .ok_or_else(|| refused("no queue"))?;
        let found = word(queue.join("read_ahead_kb"));
        let read_ahead_kib = found.parse().map_err(|_| refused("no readahead"))?;
        Ok(Self { queue, read_ahead_kib })
    }

    fn name(&self) -> String {
        let name = self.queue.parent().and_then(Path::file_name);
        name.map_or_else(String::new, |n| n.to_string_lossy().into_owned())
    }

    /// Sets the readahead until the value that is returned is dropped.
    ///
    /// # Errors
    /// Not allowed.
    pub fn with_read_ahead(&self, kib: u64) -> Result<ReadAhead, BenchError> {
        let path = self.queue.join("read_ahead_kb");
        fs::write(&path, kib.to_string())
            .map_err(BenchError::io("set the readahead (as root) in", &path))?;
        Ok(ReadAhead { path, before: self.read_ahead_kib })
    }
}

/// Puts a readahead back.
#[derive(Debug)]
pub struct ReadAhead {
    path: PathBuf,
    before: u64,
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let _ = fs::write(&self.path, self.before.to_string());
    }
}

/// A version 1 memory control group with a limit; gone when dropped.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// Makes one.
    ///
    /// # Errors
    /// There is no such controller, or not allowed.
    pub fn new(limit_mib: u64) -> Result<Self, BenchError> {
        let path = Path::new(MEMORY_GROUPS).join(format!("bmoe-bench.{}", std::process::id()));
        if !Path::new(MEMORY_GROUPS).join("memory.limit_in_bytes").is_file() {
            return Err(BenchError::Refused(format!(
                "no version 1 memory controller at {MEMORY_GROUPS}; boot with \
                 systemd.unified_cgroup_hierarchy=0, or leave out what needs a limit with --only"
            )));
        }
        let error = |e| BenchError::io("make the control group (as root)", &path)(e);
        fs::create_dir(&path).map_err(error)?;
        let group = Self(path.clone());
        fs::write(path.join("memory.limit_in_bytes"), (limit_mib << 20).to_string())
            .map_err(error)?;
        Ok(group)
    }

    /// The file that takes the number of a process.
    #[must_use]
    pub fn procs(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    /// Highest use, page cache included.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        word(self.0.join("memory.max_usage_in_bytes")).parse().unwrap_or(0)
    }

    /// Processes that the kernel killed for lack of memory.
    #[must_use]
    pub fn kills(&self) -> u64 {
        let text = word(self.0.join("memory.oom_control"));
        text.lines().find_map(|l| l.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its last page cache keeps it busy for a moment.
        for _ in 0..20 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

/// Counters at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moment {
    load: f64,
    /// Ticks of user code, all processes.
    user: u64,
    /// Ticks stolen by the hypervisor.
    steal: u64,
    /// Ticks of all kinds.
    all: u64,
    /// Ticks of user code, this process and its children that have ended.
    own: u64,
}

impl Moment {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self::parse(&word("/proc/loadavg"), &word("/proc/stat"), &word("/proc/self/stat"))
    }

    fn parse(loadavg: &str, stat: &str, own: &str) -> Self {
        let load = loadavg.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
        // cpu user nice system idle iowait irq softirq steal guest guest_nice (guests are in user)
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
        let tick = |i: usize| ticks.get(i).copied().unwrap_or(0);
        // Behind the name in parentheses, which may hold anything: state is field 3.
        let fields: Vec<&str> =
            own.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let field = |number: usize| -> u64 {
            fields.get(number - 3).and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        Self {
            load,
            user: tick(0) + tick(1),
            steal: tick(7),
            all: ticks.iter().take(8).sum(),
            own: field(14) + field(16),
        }
    }

    /// What happened between two moments.
    #[must_use]
    pub fn noise(before: &Self, after: &Self, cores: usize) -> Noise {
        let all = after.all.saturating_sub(before.all).max(1) as f64;
        let others = (after.user.saturating_sub(before.user))
            .saturating_sub(after.own.saturating_sub(before.own)) as f64;
        Noise {
            load_before: before.load,
            load_after: after.load,
            others_cores: others / all * cores as f64,
            steal_share: after.steal.saturating_sub(before.steal) as f64 / all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_what_others_used() {
        let own =
            |utime, cutime| format!("7 (a b) c) S 1 1 1 0 -1 0 0 0 0 0 {utime} 9 {cutime} 9 20 0");
        let before = Moment::parse("1.50 0 0", "cpu 100 0 10 1000 0 0 0 5 0 0", &own(1, 50));
        let after = Moment::parse("2.00 0 0", "cpu 250 50 10 1190 0 0 0 15 0 0", &own(2, 149));
        let noise = Moment::noise(&before, &after, 2);
        assert_eq!((noise.load_before, noise.load_after), (1.5, 2.0));
        // 200 of 400 ticks were user code, 100 of them ours.
        assert!((noise.others_cores - 0.5).abs() < 1e-12, "{noise:?}");
        assert!((noise.steal_share - 0.025).abs() < 1e-12);
        assert!(noise.others_at_work());
    }
}
