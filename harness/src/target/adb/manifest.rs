//! What is known of a staged file, beside it on the device.

use std::fmt;

/// Tells a file from another one, and from itself before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) bytes: u64,
    pub(super) modified_s: i64,
    pub(super) inode: u64,
}

impl Stamp {
    /// Three numbers, as `stat -c '%s %Y %i'` prints them.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace();
        let stamp = Self {
            bytes: numbers.next()?.parse().ok()?,
            modified_s: numbers.next()?.parse().ok()?,
            inode: numbers.next()?.parse().ok()?,
        };
        numbers.next().is_none().then_some(stamp)
    }
}

/// `bmoe-manifest 1 SIZE MTIME INODE SHA256`: the content had this hash when the file had this stamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) stamp: Stamp,
    pub(super) sha256: String,
}

impl Manifest {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (stamp, sha256) = line.strip_prefix("bmoe-manifest 1 ")?.rsplit_once(' ')?;
        Some(Self { stamp: Stamp::parse(stamp)?, sha256: sha256.to_owned() })
    }
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stamp { bytes, modified_s, inode } = self.stamp;
        write!(f, "bmoe-manifest 1 {bytes} {modified_s} {inode} {}", self.sha256)
    }
}

/// What lies in a file's folder on the device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// The file itself.
    pub(super) file: Option<Stamp>,
    pub(super) manifest: Option<Manifest>,
    /// What an earlier transfer left.
    pub(super) partial_bytes: u64,
    /// Room on the file system.
    pub(super) free_bytes: Option<u64>,
}

impl Seen {
    /// Reads what the looking script prints.
    pub(super) fn parse(text: &str) -> Self {
        let mut seen = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("file", stamp)) => seen.file = Stamp::parse(stamp),
                Some(("partial", bytes)) => seen.partial_bytes = bytes.parse().unwrap_or_default(),
                Some(("free", kib)) => {
                    seen.free_bytes = kib.parse::<u64>().ok().and_then(|kib| kib.checked_mul(1024));
                }
                _ => seen.manifest = Manifest::parse(line).or(seen.manifest),
            }
        }
        seen
    }
}

/// What to do for a file to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Use,
    /// Hash what is there.
    Hash,
    /// Throw away the beginning that is there: it is longer than the file.
    Discard,
    /// Send the rest from this byte on.
    Send { from: u64 },
    /// There is no room for the rest.
    NoRoom { free_bytes: u64, needed_bytes: u64 },
}

/// What stays free, since a device whose storage is full misbehaves.
const MARGIN_BYTES: u64 = 64 << 20;

/// Decides what to do for a file of `bytes` with this hash. `verify` wants the hash of what is there now.
pub(super) fn step(seen: &Seen, bytes: u64, sha256: &str, verify: bool) -> Step {
    if let Some(file) = seen.file {
        let known = seen
            .manifest
            .as_ref()
            .is_some_and(|manifest| manifest.stamp == file && manifest.sha256 == sha256);
        return if known && !verify { Step::Use } else { Step::Hash };
    }
    if seen.partial_bytes > bytes {
        return Step::Discard;
    }
    let rest = bytes - seen.partial_bytes;
    let needed_bytes = rest.saturating_add(MARGIN_BYTES);
    match seen.free_bytes {
        Some(free_bytes) if rest > 0 && free_bytes < needed_bytes => {
            Step::NoRoom { free_bytes, needed_bytes }
        }
        _ => Step::Send { from: seen.partial_bytes },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Stamp = Stamp { bytes: 18_556_686_912, modified_s: 1_796_076_707, inode: 265 };

    fn seen() -> Seen {
        Seen::parse(
            "file 18556686912 1796076707 265\nbmoe-manifest 1 18556686912 1796076707 265 abc\nfree 1000000\n",
        )
    }

    #[test]
    fn what_the_device_prints_is_understood() {
        let manifest = Manifest { stamp: FILE, sha256: "abc".to_owned() };
        assert_eq!(
            seen(),
            Seen {
                file: Some(FILE),
                manifest: Some(manifest.clone()),
                partial_bytes: 0,
                free_bytes: Some(1_024_000_000)
            }
        );
        assert_eq!(Manifest::parse(&manifest.to_string()), Some(manifest));
        assert_eq!(Seen::parse("partial 12\nfree \nbmoe-manifest 2 x\n").partial_bytes, 12);
        assert_eq!(Seen::parse(""), Seen::default());
    }

    #[test]
    fn a_file_that_is_known_is_used_and_a_changed_one_hashed() {
        let step = |seen: &Seen, verify| step(seen, FILE.bytes, "abc", verify);
        assert_eq!(step(&seen(), false), Step::Use);
        assert_eq!(step(&seen(), true), Step::Hash);
        for change in [
            Stamp { bytes: 1, ..FILE },
            Stamp { modified_s: 1, ..FILE },
            Stamp { inode: 1, ..FILE },
        ] {
            assert_eq!(step(&Seen { file: Some(change), ..seen() }, false), Step::Hash);
        }
        assert_eq!(step(&Seen { manifest: None, ..seen() }, false), Step::Hash);
        let other = Manifest { stamp: FILE, sha256: "abd".to_owned() };
        assert_eq!(step(&Seen { manifest: Some(other), ..seen() }, false), Step::Hash);
    }

    #[test]
    fn the_rest_is_sent_when_there_is_room_for_it() {
        let mib = |n: u64| n << 20;
        let partial = |partial, free| Seen {
            partial_bytes: mib(partial),
            free_bytes: Some(mib(free)),
            ..Seen::default()
        };
        let step = |seen: &Seen| step(seen, mib(1000), "abc", false);
        assert_eq!(step(&partial(0, 5000)), Step::Send { from: 0 });
        // The rest and the margin, not the whole file again.
        assert_eq!(step(&partial(900, 164)), Step::Send { from: mib(900) });
        assert_eq!(
            step(&partial(900, 163)),
            Step::NoRoom { free_bytes: mib(163), needed_bytes: mib(164) }
        );
        // All of it has arrived: hashing it needs no room.
        assert_eq!(step(&partial(1000, 0)), Step::Send { from: mib(1000) });
        assert_eq!(step(&partial(1001, 5000)), Step::Discard);
        assert_eq!(step(&Seen::default()), Step::Send { from: 0 });
    }
}
