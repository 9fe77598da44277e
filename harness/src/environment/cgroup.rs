//! Memory limits of control groups, versions 1 and 2.

use bmoe_supervise::groups::{MemoryGroup, Version, memory_groups};

use super::Machine;

/// Version 1 writes "no limit" as the largest multiple of a page; nothing real is that large.
const NO_LIMIT: u64 = 1 << 60;

impl Machine {
    /// The lowest memory limit of the control groups that this process is in, ancestors included.
    pub(super) fn cgroup_limit_bytes(&self) -> Option<u64> {
        memory_groups(&self.root).iter().filter_map(lowest_limit).min()
    }
}

/// Walks from a group up to the mount point.
fn lowest_limit(group: &MemoryGroup) -> Option<u64> {
    let file = match group.version {
        Version::One => "memory.limit_in_bytes",
        Version::Two => "memory.max",
    };
    let mut inside = group.inside.as_str();
    let mut lowest: Option<u64> = None;
    loop {
        let folder = group.point.join(inside.trim_start_matches('/'));
        let limit = std::fs::read_to_string(folder.join(file))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .filter(|limit| *limit < NO_LIMIT);
        lowest = lowest.into_iter().chain(limit).min();
        match inside.rfind('/') {
            Some(parent) => inside = &inside[..parent],
            None => return lowest,
        }
    }
}
