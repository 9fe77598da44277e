//! How much memory can still be had: from the system, and from the control groups that this process is in.
//!
//! Of the system it is `MemAvailable`. Of a group it is its limit less its usage, plus the page cache in it
//! that the kernel gives up first (`inactive_file`, what is also taken off to get a container's working
//! set). The smallest of all counts, ancestors included: version 1 (`limit_in_bytes`) and version 2 (`max`,
//! and `high`, above which a group is slowed down).

use std::path::{Path, PathBuf};

/// Version 1 writes "no limit" as the largest multiple of a page; nothing real is that large.
const NO_LIMIT: u64 = 1 << 60;

/// Memory that can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Available {
    /// How much.
    pub(super) bytes: u64,
    /// All that there is where it comes from: the machine's memory, or a group's limit.
    pub(super) total_bytes: u64,
    /// Where it comes from, for people.
    pub(super) source: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A control group with memory accounting.
#[derive(Debug)]
struct Group {
    folder: PathBuf,
    /// As it is named in its hierarchy, for messages.
    name: String,
    version: Version,
}

/// Where this process's memory comes from. Found once, so that a look costs a few small reads.
#[derive(Debug)]
pub(super) struct MemorySources {
    meminfo: PathBuf,
    /// Innermost first.
    groups: Vec<Group>,
}

impl MemorySources {
    /// Finds them below `root`, `/` but for tests.
    pub(super) fn find(root: &Path) -> Self {
        let text = |path: &str| std::fs::read_to_string(below(root, path)).unwrap_or_default();
        let (own, mounts) = (text("/proc/self/cgroup"), text("/proc/self/mountinfo"));
        let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
        let groups = own.lines().filter_map(|line| find_group(line, &mounts)).flat_map(
            |(mount, inside, version)| {
                ancestors(inside).into_iter().map(move |name| Group {
                    folder: below(root, &format!("{}{name}", mount.point)),
                    name: if name.is_empty() { "/".into() } else { name.to_owned() },
                    version,
                })
            },
        );
        Self { meminfo: below(root, "/proc/meminfo"), groups: groups.collect() }
    }

    /// What can be had now; `None` when nothing tells.
    pub(super) fn available(&self) -> Option<Available> {
        let of_groups = self.groups.iter().filter_map(Group::available);
        self.of_system().into_iter().chain(of_groups).min_by_key(|a| a.bytes)
    }

    fn of_system(&self) -> Option<Available> {
        let text = std::fs::read_to_string(&self.meminfo).ok()?;
        let bytes = |name: &str| value(&text, name)?.checked_mul(1024);
        Some(Available {
            bytes: bytes("MemAvailable:")?,
            total_bytes: bytes("MemTotal:")?,
            source: "the system".into(),
        })
    }
}

impl Group {
    fn number(&self, file: &str) -> Option<u64> {
        std::fs::read_to_string(self.folder.join(file)).ok()?.trim().parse().ok()
    }

    fn available(&self) -> Option<Available> {
        let (limits, usage, inactive): (&[_], _, _) = match self.version {
            Version::One => {
                (&["memory.limit_in_bytes"], "memory.usage_in_bytes", "total_inactive_file")
            }
            Version::Two => (&["memory.max", "memory.high"], "memory.current", "inactive_file"),
        };
        // "max" is no number, and no limit.
        let limit = limits.iter().filter_map(|f| self.number(f)).min().filter(|l| *l < NO_LIMIT)?;
        let stat = std::fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let used = self.number(usage)?.saturating_sub(value(&stat, inactive).unwrap_or(0));
        Some(Available {
            bytes: limit.saturating_sub(used),
            total_bytes: limit,
            source: format!("control group {}", self.name),
        })
    }
}

/// The first number on the line that begins with a word.
fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == name).then(|| words.next()?.parse().ok())?
    })
}

struct Mount {
    /// The part of the hierarchy that is mounted.
    root: String,
    point: String,
    kind: String,
    options: String,
}

impl Mount {
    /// `36 35 98:0 /root /mount/point rw,noatime shared:1 - cgroup cgroup rw,memory`
    fn parse(line: &str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (unescape(mount.next()?), unescape(mount.next()?));
        let mut system = system.split(' ');
        let kind = system.next()?.to_owned();
        let options = system.nth(1).unwrap_or("").to_owned();
        Some(Self { root, point, kind, options })
    }
}

/// Undoes `\040` and the like.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or("").to_owned();
    for part in parts {
        match part.get(..3).and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(byte) => {
                plain.push(char::from(byte));
                plain.push_str(&part[3..]);
            }
            None => plain.push_str(part),
        }
    }
    plain
}

/// The memory group of a line `hierarchy:controllers:path`: where it is mounted, and its path from there.
fn find_group<'a>(line: &'a str, mounts: &'a [Mount]) -> Option<(&'a Mount, &'a str, Version)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let (mount, version) = if controllers.is_empty() {
        (mounts.iter().find(|m| m.kind == "cgroup2")?, Version::Two)
    } else if controllers.split(',').any(|c| c == "memory") {
        let memory = |m: &&Mount| m.kind == "cgroup" && m.options.split(',').any(|o| o == "memory");
        (mounts.iter().find(memory)?, Version::One)
    } else {
        return None;
    };
    // In a container the mount may show a part of the hierarchy only.
    let inside = path.strip_prefix(mount.root.trim_end_matches('/')).unwrap_or("");
    Some((mount, inside.trim_end_matches('/'), version))
}

/// A group's path and those above it, down to the empty one.
fn ancestors(path: &str) -> Vec<&str> {
    let mut all = vec![path];
    let mut rest = path;
    while let Some(parent) = rest.rfind('/') {
        rest = &rest[..parent];
        all.push(rest);
    }
    all
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A tree of files.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = below(root.path(), path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = (
        "/proc/meminfo",
        "MemTotal:       8388608 kB\nMemFree:          10240 kB\nMemAvailable:    4194304 kB\n",
    );
    const V2: (&str, &str) = (
        "/proc/self/mountinfo",
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
    );

    fn available(files: &[(&str, &str)]) -> Available {
        MemorySources::find(tree(files).path()).available().unwrap()
    }

    #[test]
    fn without_a_limit_it_is_the_systems() {
        let found = available(&[
            MEMINFO,
            V2,
            ("/proc/self/cgroup", "0::/user/app\n"),
            ("/sys/fs/cgroup/user/app/memory.max", "max\n"),
            ("/sys/fs/cgroup/user/app/memory.current", "1048576\n"),
        ]);
        assert_eq!((found.bytes, found.total_bytes), (4096 * MIB, 8192 * MIB));
        assert_eq!(found.source, "the system");
        assert_eq!(MemorySources::find(tree(&[]).path()).available(), None);
    }

    #[test]
    fn the_tightest_group_of_version_2_counts() {
        let files = [
            MEMINFO,
            V2,
            ("/proc/self/cgroup", "0::/user/app\n"),
            ("/sys/fs/cgroup/user/app/memory.max", "2147483648\n"),
            ("/sys/fs/cgroup/user/app/memory.high", "1073741824\n"),
            ("/sys/fs/cgroup/user/app/memory.current", "524288000\n"),
            (
                "/sys/fs/cgroup/user/app/memory.stat",
                "anon 400\ninactive_file 104857600\nactive_file 9\n",
            ),
            ("/sys/fs/cgroup/user/memory.max", "max\n"),
            ("/sys/fs/cgroup/user/memory.high", "max\n"),
            ("/sys/fs/cgroup/user/memory.current", "9999999999\n"),
        ];
        let found = available(&files);
        // high 1024 - (current 500 - inactive 100)
        assert_eq!(found.bytes, 624 * MIB);
        assert_eq!(
            (found.total_bytes, found.source.as_str()),
            (1024 * MIB, "control group /user/app")
        );

        let parent = [
            &files[..7],
            &[
                ("/sys/fs/cgroup/user/memory.max", "600000000\n"),
                ("/sys/fs/cgroup/user/memory.current", "599000000\n"),
            ],
        ]
        .concat();
        let found = available(&parent);
        assert_eq!((found.bytes, found.source.as_str()), (1_000_000, "control group /user"));
        // A group over its limit has nothing left.
        let over =
            [&parent[..8], &[("/sys/fs/cgroup/user/memory.current", "700000000\n")]].concat();
        assert_eq!(available(&over).bytes, 0);
    }

    #[test]
    fn version_1_has_its_own_names_and_mounts() {
        let files = [
            MEMINFO,
            (
                "/proc/self/mountinfo",
                "40 30 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                 41 30 0:31 /docker/abc /sys/fs/cgroup/mem\\040ory rw - cgroup cgroup rw,memory\n\
                 42 30 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            ),
            ("/proc/self/cgroup", "9:cpu:/\n4:memory:/docker/abc/run\n0::/\n"),
            ("/sys/fs/cgroup/mem ory/run/memory.limit_in_bytes", "314572800\n"),
            ("/sys/fs/cgroup/mem ory/run/memory.usage_in_bytes", "209715200\n"),
            (
                "/sys/fs/cgroup/mem ory/run/memory.stat",
                "inactive_file 1\ntotal_inactive_file 52428800\n",
            ),
            ("/sys/fs/cgroup/mem ory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/sys/fs/cgroup/mem ory/memory.usage_in_bytes", "209715200\n"),
        ];
        let found = available(&files);
        assert_eq!((found.bytes, found.total_bytes), (150 * MIB, 300 * MIB));
        assert_eq!(found.source, "control group /run");
    }
}
