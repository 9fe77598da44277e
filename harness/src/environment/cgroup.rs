//! Memory limits of control groups, versions 1 and 2.

use super::Machine;
use super::mounts::{self, Mount};

/// Version 1 writes "no limit" as the largest multiple of a page; nothing real is that large.
const NO_LIMIT: u64 = 1 << 60;

impl Machine {
    /// The lowest memory limit of the control groups that this process is in, ancestors included.
    pub(super) fn cgroup_limit_bytes(&self) -> Option<u64> {
        let groups = self.read("/proc/self/cgroup")?;
        let mounts = mounts::parse(&self.read("/proc/self/mountinfo")?);
        groups
            .lines()
            .filter_map(|line| {
                // hierarchy:controllers:path
                let mut fields = line.splitn(3, ':').skip(1);
                let (controllers, path) = (fields.next()?, fields.next()?);
                let (mount, file) = if controllers.is_empty() {
                    (mounts.iter().find(|m| m.kind == "cgroup2")?, "memory.max")
                } else if controllers.split(',').any(|c| c == "memory") {
                    let memory = |m: &&Mount| m.kind == "cgroup" && m.has_option("memory");
                    (mounts.iter().find(memory)?, "memory.limit_in_bytes")
                } else {
                    return None;
                };
                self.lowest_limit(mount, path, file)
            })
            .min()
    }

    /// Walks from a group up to the mount point.
    fn lowest_limit(&self, mount: &Mount, path: &str, file: &str) -> Option<u64> {
        // In a container the mount may show a part of the hierarchy only.
        let root = mount.root.trim_end_matches('/');
        let mut inside = path.strip_prefix(root).unwrap_or("").trim_end_matches('/');
        let mut lowest: Option<u64> = None;
        loop {
            let limit = self
                .word(&format!("{}{inside}/{file}", mount.point))
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
