//! Memory limits and out-of-memory kills of control groups, versions 1 and 2.

use super::Machine;
use super::mounts::{self, Mount};

/// Version 1 writes "no limit" as the largest multiple of a page; nothing real is that large.
const NO_LIMIT: u64 = 1 << 60;

/// A control group of this process that counts memory.
struct Group {
    /// Where its hierarchy is mounted.
    point: String,
    /// Its folder below that, as in `/user/session`; empty for the topmost one that can be seen.
    inside: String,
    version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Machine {
    /// The lowest memory limit of the control groups that this process is in, ancestors included.
    pub(super) fn cgroup_limit_bytes(&self) -> Option<u64> {
        self.memory_groups().iter().filter_map(|group| self.lowest_limit(group)).min()
    }

    /// Processes that the kernel has killed for lack of memory so far: those of this process's control
    /// group, or all of the machine's where groups don't count them.
    #[must_use]
    pub fn oom_kills(&self) -> Option<u64> {
        let own = self.memory_groups().iter().find_map(|group| {
            let file = match group.version {
                Version::One => "memory.oom_control",
                Version::Two => "memory.events",
            };
            self.counter(&format!("{}{}/{file}", group.point, group.inside))
        });
        own.or_else(|| self.counter("/proc/vmstat"))
    }

    /// The line `oom_kill N` of a file.
    fn counter(&self, file: &str) -> Option<u64> {
        self.read(file)?.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())
    }

    fn memory_groups(&self) -> Vec<Group> {
        let (Some(groups), Some(mounts)) =
            (self.read("/proc/self/cgroup"), self.read("/proc/self/mountinfo"))
        else {
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
                let memory = |m: &&Mount| m.kind == "cgroup" && m.has_option("memory");
                (mounts.iter().find(memory)?, Version::One)
            } else {
                return None;
            };
            // In a container the mount may show a part of the hierarchy only.
            let root = mount.root.trim_end_matches('/');
            let inside = path.strip_prefix(root).unwrap_or("").trim_end_matches('/').to_owned();
            Some(Group { point: mount.point.clone(), inside, version })
        };
        groups.lines().filter_map(group).collect()
    }

    /// Walks from a group up to the mount point.
    fn lowest_limit(&self, group: &Group) -> Option<u64> {
        let file = match group.version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        };
        let mut inside = group.inside.as_str();
        let mut lowest: Option<u64> = None;
        loop {
            let limit = self
                .word(&format!("{}{inside}/{file}", group.point))
                .and_then(|text| text.parse().ok())
                .filter(|limit| *limit < NO_LIMIT);
            lowest = lowest.into_iter().chain(limit).min();
            match inside.rfind('/') {
                Some(parent) => inside = &inside[..parent],
                None => return lowest,
            }
        }
    }
}
