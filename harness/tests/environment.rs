//! The environment of made-up machines.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use bmoe::environment::{Machine, Storage};
use bmoe_supervise::groups::oom_kills;

/// A folder that plays `/`.
struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new(files: &[(&str, &str)]) -> Self {
        let fixture = Self(tempfile::tempdir().unwrap());
        for (path, text) in files {
            fixture.file(path, text);
        }
        fixture
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.at(target), path).unwrap();
    }

    fn machine(&self) -> Machine {
        Machine::at(self.0.path())
    }
}

#[test]
fn a_virtual_machine_with_a_partitioned_disk() {
    let fixture = Fixture::new(&[
        (
            "/proc/cpuinfo",
            "processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\nflags\t\t: fpu avx2 hypervisor\n",
        ),
        ("/proc/meminfo", "MemTotal:       16000 kB\nMemAvailable:    9000 kB\n"),
        ("/proc/sys/kernel/osrelease", "6.1.0-test\n"),
        ("/etc/os-release", "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
        ("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
        ("/sys/class/dmi/id/sys_vendor", "QEMU\n"),
        (
            "/proc/self/mountinfo",
            "1 0 8:2 / / rw - ext4 /dev/sda2 rw\n2 1 8:17 / /data rw - xfs /dev/sdb1 rw\n",
        ),
        ("/sys/devices/pci/block/sdb/queue/read_ahead_kb", "128\n"),
        ("/sys/devices/pci/block/sdb/device/model", "Flash Disk  \n"),
        ("/sys/devices/pci/block/sdb/sdb1/partition", "1\n"),
    ]);
    fixture.link("/sys/dev/block/8:17", "/sys/devices/pci/block/sdb/sdb1");
    let mut environment = fixture.machine().environment(Path::new("/data/models/m.gguf"));
    environment.models.clear();
    insta::assert_snapshot!(serde_json::to_string_pretty(&environment).unwrap());
}

#[test]
fn nothing_is_guessed_where_nothing_can_be_read() {
    let environment = Fixture::new(&[]).machine().environment(Path::new("/m.gguf"));
    assert_eq!(environment, bmoe_analysis::result_set::Environment::default());
}

#[test]
fn arm_cpus_are_told_by_number() {
    let cpuinfo = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4d\n";
    let fixture = Fixture::new(&[("/proc/cpuinfo", cpuinfo)]);
    let environment = fixture.machine().environment(Path::new("/m.gguf"));
    assert_eq!(environment.cpu.as_deref(), Some("implementer 0x41 part 0xd4d"));
}

#[test]
fn the_lowest_limit_of_nested_version_2_groups_holds() {
    let fixture = Fixture::new(&[
        ("/proc/self/cgroup", "0::/user/session\n"),
        ("/proc/self/mountinfo", "5 1 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ("/sys/fs/cgroup/user/session/memory.max", "max\n"),
        ("/sys/fs/cgroup/user/memory.max", "4096000\n"),
    ]);
    let environment = fixture.machine().environment(Path::new("/m.gguf"));
    assert_eq!(environment.cgroup_limit_bytes, Some(4_096_000));
}

#[test]
fn version_1_groups_in_a_container_that_sees_its_own_part() {
    let mounts = "5 1 0:28 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                  6 1 0:29 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
    let limit = |own: &str, top: &str| {
        Fixture::new(&[
            ("/proc/self/cgroup", "3:cpu:/docker/abc\n2:memory:/docker/abc/job\n"),
            ("/proc/self/mountinfo", mounts),
            ("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", own),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", top),
        ])
        .machine()
        .environment(Path::new("/m.gguf"))
        .cgroup_limit_bytes
    };
    assert_eq!(limit("9223372036854771712\n", "1048576\n"), Some(1 << 20));
    assert_eq!(limit("9223372036854771712\n", "9223372036854771712\n"), None);
}

#[test]
fn processes_killed_for_lack_of_memory_are_counted_by_the_own_group_first() {
    let vmstat = ("/proc/vmstat", "pgfault 1\noom_kill 7\n");
    let kills = |files: &[(&str, &str)]| oom_kills(Fixture::new(files).0.path());
    assert_eq!(kills(&[]), None);
    assert_eq!(kills(&[vmstat]), Some(7));
    let version_1 = [
        vmstat,
        ("/proc/self/cgroup", "2:memory:/job\n"),
        ("/proc/self/mountinfo", "5 1 0:28 / /cg/memory rw - cgroup cgroup rw,memory\n"),
        ("/cg/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
    ];
    assert_eq!(kills(&version_1), Some(2));
    let version_2 = [
        vmstat,
        ("/proc/self/cgroup", "0::/user\n"),
        ("/proc/self/mountinfo", "5 1 0:28 / /cg rw - cgroup2 cgroup2 rw\n"),
        ("/cg/user/memory.events", "low 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n"),
    ];
    assert_eq!(kills(&version_2), Some(1));
}

#[test]
fn file_systems_without_a_number_of_their_own_name_their_disk() {
    let fixture = Fixture::new(&[
        (
            "/proc/self/mountinfo",
            "1 0 0:31 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/disk/upper,workdir=/w\n\
             2 1 0:40 / /disk rw - btrfs /dev/nvme0n1p3 rw\n\
             3 1 0:50 / /net rw - nfs4 server:/share rw\n",
        ),
        ("/sys/devices/nvme0n1/queue/read_ahead_kb", "256\n"),
        ("/sys/devices/nvme0n1/nvme0n1p3/partition", "3\n"),
        ("/sys/class/bdi/0:50/read_ahead_kb", "15360\n"),
    ]);
    fixture.link("/sys/class/block/nvme0n1p3", "/sys/devices/nvme0n1/nvme0n1p3");
    let storage = |path: &str| fixture.machine().storage(Path::new(path));
    let disk = |kind: &str| Storage {
        disk: Some("nvme0n1".to_owned()),
        read_ahead_kib: Some(256),
        file_system: Some(kind.to_owned()),
    };
    assert_eq!(storage("/disk/m.gguf"), disk("btrfs"));
    assert_eq!(storage("/home/m.gguf"), disk("overlay"));
    assert_eq!(storage("/net/m.gguf").read_ahead_kib, Some(15360));
    assert_eq!(storage("/net/m.gguf").disk.as_deref(), Some("server:/share"));
}
