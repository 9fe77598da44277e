//! The block device and file system below a path.

use std::path::{Component, Path, PathBuf};

use bmoe_supervise::mounts::{self, Mount};

use super::Machine;

/// Where a file lies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Storage {
    /// The whole disk, with its model when it tells one.
    pub disk: Option<String>,
    /// Its readahead.
    pub read_ahead_kib: Option<u32>,
    /// The file system's type.
    pub file_system: Option<String>,
}

impl Machine {
    /// Finds the storage of an absolute path (symbolic links resolved).
    #[must_use]
    pub fn storage(&self, path: &Path) -> Storage {
        let mounts = self.read("/proc/self/mountinfo").map(|text| mounts::parse(&text));
        let Some(mount) = mounts.as_deref().and_then(|m| mount_of(m, path)) else {
            return Storage::default();
        };
        let mut storage = Storage { file_system: Some(mount.kind.clone()), ..Storage::default() };
        let below = match mount.option("upperdir") {
            // New files of an overlay lie in its upper folder, when that can be seen from here.
            Some(upper) if mount.kind == "overlay" => mounts
                .as_deref()
                .and_then(|m| mount_of(m, Path::new(upper)))
                .filter(|m| m.kind != "overlay"),
            _ => Some(mount),
        };
        let Some(below) = below else { return storage };
        let Some(device) = self.block_device(below) else {
            // No block device, for example a network file system: readahead is the mount's own.
            storage.read_ahead_kib =
                self.number(&format!("/sys/class/bdi/{}/read_ahead_kb", below.device));
            storage.disk = Some(below.source.clone());
            return storage;
        };
        storage.disk = device.file_name().map(|name| {
            let name = name.to_string_lossy();
            let model = std::fs::read_to_string(device.join("device/model")).unwrap_or_default();
            let model = model.trim();
            if model.is_empty() { name.into_owned() } else { format!("{name} ({model})") }
        });
        storage.read_ahead_kib = std::fs::read_to_string(device.join("queue/read_ahead_kb"))
            .ok()
            .and_then(|text| text.trim().parse().ok());
        storage
    }

    fn number(&self, absolute: &str) -> Option<u32> {
        self.word(absolute)?.parse().ok()
    }

    /// The whole disk's folder in /sys; a partition's folder lies inside it.
    fn block_device(&self, mount: &Mount) -> Option<PathBuf> {
        let by_number = self.path(&format!("/sys/dev/block/{}", mount.device));
        let entry = if mount.device.starts_with("0:") {
            // btrfs and others count as devices of their own; their source names the real one.
            let name = Path::new(&mount.source).file_name()?;
            self.path("/sys/class/block").join(name)
        } else {
            by_number
        };
        let folder = entry.canonicalize().ok()?;
        if folder.join("queue").exists() {
            return Some(folder);
        }
        folder.parent().filter(|parent| parent.join("queue").exists()).map(Path::to_owned)
    }
}

/// The mount that holds a path: the longest mount point above it, the latest of equal ones.
fn mount_of<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    let depth = |point: &str| {
        Path::new(point).components().filter(|c| matches!(c, Component::Normal(_))).count()
    };
    mounts.iter().filter(|m| path.starts_with(&m.point)).max_by_key(|m| depth(&m.point))
}
