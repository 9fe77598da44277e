//! Control groups that count memory, versions 1 and 2.

use std::path::{Path, PathBuf};

use crate::mounts;

/// A control group of this process that counts memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryGroup {
    /// The folder where its hierarchy is mounted.
    pub point: PathBuf,
    /// Its place below that, as in `/user/session`; empty for the topmost one that can be seen.
    pub inside: String,
    /// Version of the hierarchy.
    pub version: Version,
}

/// Version of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy for each controller.
    One,
    /// One hierarchy.
    Two,
}

impl MemoryGroup {
    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.point.join(self.inside.trim_start_matches('/'))
    }
}

/// The groups of this process, found below `root` (`/` but for tests).
#[must_use]
pub fn memory_groups(root: &Path) -> Vec<MemoryGroup> {
    let read = |path: &str| std::fs::read_to_string(root.join(path));
    let (Ok(groups), Ok(mounts)) = (read("proc/self/cgroup"), read("proc/self/mountinfo")) else {
        return Vec::new();
    };
    let mounts = mounts::parse(&mounts);
    let group = |line: &str| {
        // hierarchy:controllers:path
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (mount, version) = if controllers.is_empty() {
            (mounts.iter().find(|m| m.kind == "cgroup2")?, Version::Two)
        } else if controllers.split(',').any(|c| c == "memory") {
            let memory = |m: &&mounts::Mount| m.kind == "cgroup" && m.has_option("memory");
            (mounts.iter().find(memory)?, Version::One)
        } else {
            return None;
        };
        // In a container the mount may show a part of the hierarchy only.
        let inside = path.strip_prefix(mount.root.trim_end_matches('/')).unwrap_or("");
        let inside = inside.trim_end_matches('/').to_owned();
        Some(MemoryGroup { point: root.join(mount.point.trim_start_matches('/')), inside, version })
    };
    groups.lines().filter_map(group).collect()
}

/// Processes that the kernel has killed for lack of memory so far: those of this process's control group,
/// or all of the machine's where groups don't count them.
#[must_use]
pub fn oom_kills(root: &Path) -> Option<u64> {
    let own = memory_groups(root).iter().find_map(|group| {
        let file = match group.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        counter(&group.folder().join(file))
    });
    own.or_else(|| counter(&root.join("proc/vmstat")))
}

/// The line `oom_kill N` of a file.
fn counter(file: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())
}
