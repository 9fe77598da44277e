//! `/proc/self/mountinfo`.

/// One mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// `MAJ:MIN` of the file system's device; major 0 for those without a block device of their own.
    pub device: String,
    /// The folder of the file system that is mounted.
    pub root: String,
    /// Where it is mounted.
    pub point: String,
    /// Its type.
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// Options of the file system itself.
    pub options: String,
}

impl Mount {
    /// Whether the file system has an option.
    #[must_use]
    pub fn has_option(&self, option: &str) -> bool {
        self.options.split(',').any(|o| o == option)
    }

    /// The value of `key=value`.
    #[must_use]
    pub fn option(&self, key: &str) -> Option<&str> {
        self.options.split(',').find_map(|o| o.strip_prefix(key)?.strip_prefix('='))
    }
}

/// All mounts, in their order; lines that aren't understood are left out.
#[must_use]
pub fn parse(mountinfo: &str) -> Vec<Mount> {
    mountinfo.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mount> {
    // A varying number of optional fields stands before the lone hyphen.
    let (place, file_system) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(2);
    let (device, root, point) = (place.next()?, place.next()?, place.next()?);
    let mut file_system = file_system.split(' ');
    Some(Mount {
        device: device.to_owned(),
        root: unescape(root),
        point: unescape(point),
        kind: file_system.next()?.to_owned(),
        source: unescape(file_system.next()?),
        options: file_system.next().unwrap_or_default().to_owned(),
    })
}

/// Spaces, tabs, line ends and backslashes are written as three octal digits.
fn unescape(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part.as_bytes()[3..]);
            }
            None => {
                bytes.push(b'\\');
                bytes.extend_from_slice(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_fields_and_escapes_are_understood() {
        let text = "36 35 98:0 /a /mnt/my\\040disk rw,noatime master:1 shared:2 - ext4 /dev/sda1 rw\n\
                    37 35 0:31 / /proc rw - proc proc rw\nnot a mount\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].point, "/mnt/my disk");
        assert_eq!((mounts[0].device.as_str(), mounts[0].kind.as_str()), ("98:0", "ext4"));
        assert_eq!(mounts[1].source, "proc");
    }
}
