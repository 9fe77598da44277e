//! Which device is meant, and whether it can be used.

use std::time::{Duration, Instant};

use super::super::{TargetError, TargetName};
use super::is_address;
use crate::adb::{AdbError, Listed, Server, State};

/// A USB device comes back within a second or two after the server was restarted.
const PATIENCE: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(200);

/// The serial number of the device that is meant; it is there and can be used.
pub(super) fn select(server: Server, wanted: &TargetName) -> Result<String, TargetError> {
    let unusable = |target: String, reason: String, remedy: &str| TargetError::Unusable {
        target,
        reason,
        remedy: remedy.to_owned(),
    };
    let asked = |error: AdbError| {
        unusable(wanted.to_string(), error.to_string(), "see `bmoe doctor --target adb`")
    };
    server.start().map_err(asked)?;
    let serial = match wanted {
        TargetName::Device(serial) => serial.clone(),
        TargetName::Local | TargetName::OnlyDevice => only(&server.devices().map_err(asked)?)
            .map_err(|(reason, remedy)| unusable(wanted.to_string(), reason, &remedy))?,
    };
    let name = format!("adb:{serial}");
    wait_until_ready(server, &serial).map_err(|(state, said)| match state {
        Some(state) => {
            let remedy = state.remedy().unwrap_or("try again");
            unusable(name, format!("it is {state}"), remedy)
        }
        None if is_address(&serial) => unusable(
            name,
            said.unwrap_or_else(|| "it does not answer".to_owned()),
            "see that wireless debugging is on, that both are in one network, and that they are paired \
             (`adb pair`); the port changes each time (docs/android.md)",
        ),
        None => {
            let others = server.devices().unwrap_or_default();
            unusable(name, "adb does not see it".to_owned(), &what_is_there(&others))
        }
    })?;
    Ok(serial)
}

/// The one device, or why it isn't clear which, and what to do.
fn only(devices: &[Listed]) -> Result<String, (String, String)> {
    match devices {
        [device] => Ok(device.serial.clone()),
        [] => Err(("no device is connected".to_owned(), what_is_there(devices))),
        several => {
            let count = several.len();
            Err((format!("{count} devices are connected"), what_is_there(devices)))
        }
    }
}

fn what_is_there(devices: &[Listed]) -> String {
    if devices.is_empty() {
        return "connect one with USB debugging on, or name a wireless one: adb:HOST:PORT \
                (docs/android.md)"
            .to_owned();
    }
    let names: Vec<_> = devices
        .iter()
        .map(|d| match d.state {
            State::Device => format!("adb:{}", d.serial),
            ref state => format!("adb:{} ({state})", d.serial),
        })
        .collect();
    format!("name one of: {}", names.join(", "))
}

/// Waits while a device is on its way; connects a wireless one.
///
/// # Errors
/// How it stands instead (`None` = it isn't in the list), and what adb said.
pub(super) fn wait_until_ready(
    server: Server,
    serial: &str,
) -> Result<(), (Option<State>, Option<String>)> {
    let end = Instant::now() + PATIENCE;
    let mut said = None;
    let mut state = server.state(serial).ok().flatten();
    if is_address(serial) && state != Some(State::Device) {
        if state.is_some() {
            // It hangs in the list since its connection broke; only forgetting it helps.
            let _ = server.disconnect_device(serial);
        }
        if let Err(error) = server.connect_device(serial) {
            said = Some(error.to_string());
            state = None;
        } else {
            state = server.state(serial).ok().flatten();
        }
    }
    loop {
        match &state {
            Some(State::Device) => return Ok(()),
            // `adb connect` has waited already.
            None if said.is_some() => return Err((None, said)),
            Some(state) if !state.is_passing() => return Err((Some(state.clone()), said)),
            _ if Instant::now() >= end => return Err((state, said)),
            _ => std::thread::sleep(TICK),
        }
        state = server.state(serial).ok().flatten();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(serial: &str, state: State) -> Listed {
        Listed { serial: serial.to_owned(), state, model: None }
    }

    #[test]
    fn one_device_needs_no_name_and_several_do() {
        let a = device("A1", State::Device);
        let b = device("B2", State::Unauthorized);
        assert_eq!(only(std::slice::from_ref(&a)), Ok("A1".to_owned()));
        let (reason, remedy) = only(&[a, b]).unwrap_err();
        assert_eq!(reason, "2 devices are connected");
        assert_eq!(remedy, "name one of: adb:A1, adb:B2 (unauthorised)");
        let (reason, remedy) = only(&[]).unwrap_err();
        assert_eq!(reason, "no device is connected");
        assert!(remedy.contains("adb:HOST:PORT"), "{remedy}");
    }
}
