//! What the results depend on besides the configuration: the machine and its settings.
//!
//! Everything is read from files below a root folder, so that tests can give a machine of their own.
//! What can't be read is `None`, never a guess.

mod cgroup;
mod program;
mod storage;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use bmoe_analysis::result_set::Environment;

pub use program::NoAnswer;
pub use storage::Storage;

/// What a program may take that is asked for its version.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A machine's file system, as seen from `root` (`/` for the machine that this runs on).
#[derive(Debug, Clone)]
pub struct Machine {
    root: PathBuf,
}

impl Machine {
    /// The machine whose `/` is `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        Self::at("/")
    }

    fn path(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    fn read(&self, absolute: &str) -> Option<String> {
        std::fs::read_to_string(self.path(absolute)).ok()
    }

    /// The trimmed content of a file, unless it is empty.
    fn word(&self, absolute: &str) -> Option<String> {
        let text = self.read(absolute)?;
        Some(text.trim().to_owned()).filter(|t| !t.is_empty())
    }

    /// Everything that files tell. `model` is a file or folder on the storage that is measured.
    #[must_use]
    pub fn environment(&self, model: &Path) -> Environment {
        let storage = self.storage(model);
        Environment {
            cpu: self.cpu(),
            mem_total_bytes: self.meminfo("MemTotal"),
            mem_available_bytes: self.meminfo("MemAvailable"),
            cgroup_limit_bytes: self.cgroup_limit_bytes(),
            kernel: self.word("/proc/sys/kernel/osrelease"),
            os: self.os(),
            virtualisation: self.virtualisation(),
            disk: storage.disk,
            read_ahead_kib: storage.read_ahead_kib,
            file_system: storage.file_system,
            huge_pages: self.huge_pages(),
            ..Environment::default()
        }
    }

    fn cpu(&self) -> Option<String> {
        let text = self.read("/proc/cpuinfo")?;
        let field = |name: &str| {
            text.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned()).filter(|v| !v.is_empty())
            })
        };
        field("model name").or_else(|| field("Hardware")).or_else(|| {
            // Arm kernels print numbers only.
            Some(format!("implementer {} part {}", field("CPU implementer")?, field("CPU part")?))
        })
    }

    fn meminfo(&self, key: &str) -> Option<u64> {
        let text = self.read("/proc/meminfo")?;
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    }

    fn os(&self) -> Option<String> {
        let text = self.read("/etc/os-release")?;
        let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
        Some(value.trim_matches(['"', '\'']).to_owned())
    }

    fn virtualisation(&self) -> Option<String> {
        let mut found = Vec::new();
        if self.path("/.dockerenv").exists() {
            found.push("container (docker)".to_owned());
        } else if let Some(kind) = self.word("/run/systemd/container") {
            found.push(format!("container ({kind})"));
        } else if self.path("/run/.containerenv").exists() {
            found.push("container (podman)".to_owned());
        }
        let flagged = self.read("/proc/cpuinfo").is_some_and(|text| {
            text.lines().any(|l| {
                l.starts_with("flags") && l.split_ascii_whitespace().any(|f| f == "hypervisor")
            })
        });
        if flagged {
            let vendor = self.word("/sys/class/dmi/id/sys_vendor");
            found.push(vendor.map_or_else(
                || "virtual machine".to_owned(),
                |vendor| format!("virtual machine ({vendor})"),
            ));
        }
        (!found.is_empty()).then(|| found.join(", "))
    }

    /// The word in brackets: `always [madvise] never`.
    fn huge_pages(&self) -> Option<String> {
        let text = self.read("/sys/kernel/mm/transparent_hugepage/enabled")?;
        let (_, rest) = text.split_once('[')?;
        rest.split_once(']').map(|(mode, _)| mode.to_owned())
    }
}

/// Cores that this process may use: its affinity and the quota of its control groups.
#[must_use]
pub fn cores() -> Option<u32> {
    std::thread::available_parallelism().ok().and_then(|n| u32::try_from(n.get()).ok())
}

/// The commit of the working tree that holds `folder`, with `-dirty` when tracked files were changed.
#[must_use]
pub fn commit(folder: &Path) -> Option<String> {
    let args = ["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"];
    let mut git = Command::new("git");
    program::ask(git.arg("-C").arg(folder).args(args), ANSWER_LIMIT, &|| false).ok().flatten()
}

/// The first line that `engine --version` prints; `None` when it fails.
///
/// # Errors
/// It takes longer than [`ANSWER_LIMIT`], or until `stop` says that enough is enough.
pub fn engine_version(engine: &Path, stop: &dyn Fn() -> bool) -> Result<Option<String>, NoAnswer> {
    program::ask(Command::new(engine).arg("--version"), ANSWER_LIMIT, stop)
}

/// Now, RFC 3339, UTC, whole seconds.
#[must_use]
pub fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}
