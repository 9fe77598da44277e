//! `bmoe devices`

use std::path::Path;

use serde::Serialize;

use crate::adb::{Server, State};
use crate::error::Error;
use crate::facts::{self, Facts};
use crate::say::say;
use crate::target::{self, AdbTarget, TargetName};

/// Show this machine and the devices behind adb, and what can be read of them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The name in front is what --target takes. A device that can't be used is shown with what to do about it.
A wireless device is shown once it is connected: `adb connect HOST:PORT`, or name it as
adb:HOST:PORT.

Examples:
  bmoe devices
  bmoe devices --json
  bmoe doctor --target adb:R5CT10ABCDE")]
pub(super) struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// A line of the list.
#[derive(Debug, Serialize)]
struct Device {
    /// What `--target` takes.
    target: String,
    /// `ready`, or why it can't be used.
    state: String,
    /// What to do about that.
    remedy: Option<String>,
    facts: Option<Facts>,
}

/// All of it.
#[derive(Debug, Serialize)]
struct List {
    devices: Vec<Device>,
    /// Why adb could not be asked.
    adb_error: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let local = Device {
        target: TargetName::Local.to_string(),
        state: State::Device.to_string(),
        remedy: None,
        facts: Some(facts::gather(
            &*target::open(&TargetName::Local, false)?,
            Some(Path::new(".")),
        )?),
    };
    let mut list = List { devices: vec![local], adb_error: None };
    match behind_adb() {
        Ok(devices) => list.devices.extend(devices),
        Err(error) => list.adb_error = Some(error.to_string()),
    }
    if args.json {
        say!("{}", serde_json::to_string_pretty(&list).expect("a list is JSON"));
    } else {
        print!("{}", text(&list));
    }
    Ok(())
}

fn behind_adb() -> Result<Vec<Device>, crate::adb::AdbError> {
    let server = Server::from_environment()?;
    server.start()?;
    let describe = |listed: crate::adb::Listed| {
        let name = TargetName::Device(listed.serial);
        let unusable = |state: String, remedy: Option<String>| Device {
            target: name.to_string(),
            state,
            remedy,
            facts: None,
        };
        if let Some(remedy) = listed.state.remedy() {
            return unusable(listed.state.to_string(), Some(remedy.to_owned()));
        }
        let facts = AdbTarget::connect(server, &name).and_then(|t| facts::gather(&t, None));
        match facts {
            Ok(facts) => Device {
                target: name.to_string(),
                state: State::Device.to_string(),
                remedy: None,
                facts: Some(facts),
            },
            Err(error) => unusable(error.to_string(), None),
        }
    };
    Ok(server.devices()?.into_iter().map(describe).collect())
}

fn text(list: &List) -> String {
    let width = list.devices.iter().map(|d| d.target.chars().count()).max().unwrap_or_default();
    let mut out = String::new();
    for device in &list.devices {
        let name = &device.target;
        match &device.facts {
            Some(facts) => {
                out += &format!("{name:<width$}  {}\n", facts.headline());
                for (heading, line) in facts.lines() {
                    out += &format!("{:<width$}    {heading:<9}{line}\n", "");
                }
            }
            None => {
                out += &format!("{name:<width$}  {}\n", device.state);
                if let Some(remedy) = &device.remedy {
                    out += &format!("{:<width$}    {remedy}\n", "");
                }
            }
        }
    }
    match &list.adb_error {
        Some(error) => out += &format!("no devices: {error}\n"),
        None if list.devices.len() == 1 => {
            out += "no devices behind adb; connect one with USB debugging on (docs/android.md)\n";
        }
        None => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_listed_with_what_to_do_about_them() {
        let phone = facts::parse(include_str!("../facts/fixtures/phone.txt"));
        let refused = State::Unauthorized;
        let list = List {
            devices: vec![
                Device {
                    target: "adb:R5CT10".to_owned(),
                    state: State::Device.to_string(),
                    remedy: None,
                    facts: phone,
                },
                Device {
                    target: "adb:0123456789".to_owned(),
                    state: refused.to_string(),
                    remedy: refused.remedy().map(str::to_owned),
                    facts: None,
                },
            ],
            adb_error: None,
        };
        insta::assert_snapshot!(text(&list));
    }
}
