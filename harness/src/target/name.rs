//! How a person names a target.

use std::fmt;
use std::str::FromStr;

/// The port that adbd listens at when it is asked to (`adb tcpip 5555`).
const ADBD_PORT: u16 = 5555;

/// A target's name: `local`, `adb`, `adb:SERIAL`, `adb:HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum TargetName {
    /// This machine.
    #[default]
    Local,
    /// The only device that adb knows.
    OnlyDevice,
    /// The device with this serial number, as `adb devices` shows it. That of a wireless device is its
    /// address, `HOST:PORT`.
    Device(String),
}

impl TargetName {
    /// Where `adb connect` finds the device, if it is named by an address.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        match self {
            Self::Device(serial) => is_address(serial).then_some(serial.as_str()),
            Self::Local | Self::OnlyDevice => None,
        }
    }
}

/// Whether a serial number is an address: `HOST:PORT`.
#[must_use]
pub fn is_address(serial: &str) -> bool {
    serial
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0))
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::OnlyDevice => f.write_str("adb"),
            Self::Device(serial) => write!(f, "adb:{serial}"),
        }
    }
}

/// A name that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the target {0:?} is not known; expected `local`, `adb` (the only device), `adb:SERIAL` (see `bmoe \
     devices`) or `adb:HOST:PORT` (a wireless one)"
)]
pub struct UnknownTarget(String);

impl FromStr for TargetName {
    type Err = UnknownTarget;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownTarget(text.to_owned());
        match text.split_once(':') {
            None if text == "local" => Ok(Self::Local),
            None if text == "adb" => Ok(Self::OnlyDevice),
            Some(("adb", serial)) => {
                if serial.is_empty()
                    || serial.contains(|c: char| c.is_whitespace() || c.is_control())
                {
                    return Err(unknown());
                }
                // An address without its port is completed as `adb connect` does it.
                if serial.parse::<std::net::Ipv4Addr>().is_ok() {
                    return Ok(Self::Device(format!("{serial}:{ADBD_PORT}")));
                }
                Ok(Self::Device(serial.to_owned()))
            }
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for (text, name, address) in [
            ("local", TargetName::Local, None),
            ("adb", TargetName::OnlyDevice, None),
            ("adb:R5CT10", TargetName::Device("R5CT10".to_owned()), None),
            ("adb:emulator-5554", TargetName::Device("emulator-5554".to_owned()), None),
            (
                "adb:phone.local:41321",
                TargetName::Device("phone.local:41321".to_owned()),
                Some("phone.local:41321"),
            ),
            (
                "adb:[fe80::1]:5555",
                TargetName::Device("[fe80::1]:5555".to_owned()),
                Some("[fe80::1]:5555"),
            ),
        ] {
            let read: TargetName = text.parse().unwrap();
            assert_eq!((&read, read.address(), read.to_string().as_str()), (&name, address, text));
        }
    }

    #[test]
    fn an_address_without_a_port_gets_the_usual_one() {
        let name: TargetName = "adb:192.168.1.20".parse().unwrap();
        assert_eq!(name.address(), Some("192.168.1.20:5555"));
    }

    #[test]
    fn other_names_are_refused_with_those_that_exist() {
        for text in ["", "adb:", "Local", "usb", "ssh:host", "adb:a b", "local:1"] {
            let message = text.parse::<TargetName>().unwrap_err().to_string();
            assert!(message.contains(&format!("{text:?}")), "{message}");
            assert!(message.contains("adb:SERIAL"), "{message}");
        }
    }
}
