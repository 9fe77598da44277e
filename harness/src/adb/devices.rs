//! The list of devices that the server knows (`adb devices -l`).

use std::fmt;

/// A device in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its serial number; of a wireless device its address.
    pub serial: String,
    /// Whether it can be used.
    pub state: State,
    /// Its model, when it is connected; spaces are underscores here.
    pub model: Option<String>,
}

/// Whether a device can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It can.
    Device,
    /// Nobody allowed it yet.
    Unauthorized,
    /// Known, but it does not answer.
    Offline,
    /// The connection is being made.
    Connecting,
    /// This user may not open the USB device.
    NoPermissions,
    /// Something else, in adb's word: `recovery`, `bootloader`, `sideload`.
    Other(String),
}

impl State {
    fn parse(text: &str) -> Self {
        if text.starts_with("no permissions") {
            return Self::NoPermissions;
        }
        match text.split_whitespace().next().unwrap_or_default() {
            "device" => Self::Device,
            "unauthorized" => Self::Unauthorized,
            "offline" => Self::Offline,
            "authorizing" | "connecting" => Self::Connecting,
            "noperm" => Self::NoPermissions,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Whether it may change by itself within seconds.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Offline | Self::Connecting)
    }

    /// What to do so that the device can be used; `None` when it can.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Self::Device => return None,
            Self::Unauthorized => {
                "unlock it and allow USB debugging for this computer in the question that it shows; \
                 when it shows none: `adb kill-server`, unplug it, plug it in again"
            }
            Self::Offline => {
                "wake it up, unplug it and plug it in again (a wireless one: switch wireless debugging \
                 off and on), or `adb reconnect offline`"
            }
            Self::Connecting => "wait a moment and try again; unlock it if it asks something",
            Self::NoPermissions => {
                "allow this user to open it: install udev rules (Debian: apt-get install \
                 android-sdk-platform-tools-common), log in again, then `adb kill-server`"
            }
            Self::Other(_) => "start Android on it (`adb reboot`)",
        })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "ready",
            Self::Unauthorized => "unauthorised",
            Self::Offline => "offline",
            Self::Connecting => "connecting",
            Self::NoPermissions => "no permission",
            Self::Other(word) => word,
        })
    }
}

/// Reads the answer to `host:devices-l`.
#[must_use]
pub fn parse(text: &str) -> Vec<Listed> {
    text.lines().filter_map(parse_line).collect()
}

/// `SERIAL  STATE [usb:1-1] [product:P model:M device:D] transport_id:N`
fn parse_line(line: &str) -> Option<Listed> {
    let line = line.trim();
    // A device that does not tell its serial number is listed under these words.
    const NAMELESS: &str = "(no serial number)";
    let (serial, rest) = match line.strip_prefix(NAMELESS) {
        Some(rest) => (NAMELESS, rest),
        None => line.split_once(char::is_whitespace)?,
    };
    let model = rest.split_whitespace().find_map(|word| word.strip_prefix("model:"));
    Some(Listed {
        serial: serial.to_owned(),
        state: State::parse(rest.trim_start()),
        model: model.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_cannot_be_used_are_listed_beside_those_that_can() {
        // Lines as adb 34 prints them.
        let text = "\
R5CT10ABCDE            device usb:1-1 product:dm3q model:SM_S918B device:dm3q transport_id:3
0123456789             unauthorized usb:1-2 transport_id:4
192.168.1.20:5555      offline product:x model:Y device:z transport_id:5
XYZ                    no permissions (user in plugdev group; are your udev rules wrong?); see [http://developer.android.com/tools/device.html] usb:1-3 transport_id:6
(no serial number)     no permissions; see [http://developer.android.com/tools/device.html] usb:1-4 transport_id:7
emulator-5554          authorizing transport_id:8
QQ2013                 recovery 20-4 product:p model:NOH_AN00 device:d transport_id:9
";
        let devices = parse(text);
        let states: Vec<_> = devices.iter().map(|d| (d.serial.as_str(), d.state.clone())).collect();
        assert_eq!(
            states,
            [
                ("R5CT10ABCDE", State::Device),
                ("0123456789", State::Unauthorized),
                ("192.168.1.20:5555", State::Offline),
                ("XYZ", State::NoPermissions),
                ("(no serial number)", State::NoPermissions),
                ("emulator-5554", State::Connecting),
                ("QQ2013", State::Other("recovery".to_owned())),
            ]
        );
        assert_eq!(devices[0].model.as_deref(), Some("SM_S918B"));
        assert_eq!(devices[1].model, None);
        assert!(devices.iter().all(|d| d.state.remedy().is_none() == (d.state == State::Device)));
    }

    #[test]
    fn no_devices_are_an_empty_list() {
        assert!(parse("\n").is_empty());
    }
}
