//! Finding the engine binary, for this machine or for a device.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::runner::Exit;
use crate::target::Finished;

/// Name of the engine binary.
const ENGINE: &str = "bmoe-engine";

/// The engine: as given (`--engine` or `$BMOE_ENGINE`), else beside this program.
///
/// # Errors
/// There is no such file; the message says how to build it.
pub fn find(given: Option<&Path>) -> Result<PathBuf, Error> {
    if let Some(path) = given {
        if path.is_file() {
            return Ok(path.to_owned());
        }
        return Err(Error::Refused(format!(
            "the engine {} (from --engine or $BMOE_ENGINE) is no file; build one with \
             `cargo build -p bmoe-engine`",
            path.display()
        )));
    }
    let own = own_path()?;
    let beside = own.with_file_name(ENGINE);
    if beside.is_file() {
        return Ok(beside);
    }
    Err(Error::Refused(format!(
        "no engine: {} does not exist; build it with `cargo build -p bmoe-engine`, or name another \
         with --engine or $BMOE_ENGINE",
        beside.display()
    )))
}

/// This program.
///
/// # Errors
/// The system doesn't tell.
pub fn own_path() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(Error::io("find", Path::new("the running program")))
}

/// Binary interface of 64-bit Arm devices.
const ARM64: &str = "arm64-v8a";
/// Builds of the engine for 64-bit Arm, the fastest first, with the CPU features (of /proc/cpuinfo) that each
/// needs. `scripts/build-device.sh` makes them.
const ARM64_VARIANTS: [(&str, &[&str]); 3] = [
    ("armv8.6-a+i8mm", &["atomics", "asimddp", "i8mm", "bf16"]),
    ("armv8.2-a+dotprod", &["atomics", "asimddp"]),
    (PLAIN_ARM64, &[]),
];
/// The build that runs everywhere and is several times slower on quantised weights.
pub const PLAIN_ARM64: &str = "armv8-a";

/// An engine for a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceEngine {
    /// The program, on this machine.
    pub path: PathBuf,
    /// Which build it is; `None` for one that was named by hand, or where there is only one.
    pub variant: Option<&'static str>,
    /// A faster build that the device could run, but that isn't there.
    pub better: Option<&'static str>,
}

/// The engine for a device with this binary interface and these CPU features: the given one (`--engine` or
/// `$BMOE_ENGINE`), else the fastest build below `builds` that the CPU can run, else, on a device like this
/// machine, the one beside this program.
///
/// # Errors
/// There is none, or the given one is for another machine; the message says how to build it.
pub fn for_device(
    given: Option<&Path>,
    builds: &Path,
    abi: &str,
    features: &BTreeSet<String>,
) -> Result<DeviceEngine, Error> {
    if let Some(given) = given {
        let path = find(Some(given))?;
        if let Some(machine) = machine_of(&path)
            && machine != abi
        {
            return Err(Error::Refused(format!(
                "the engine {} is for {machine}, the device is {abi}; {}",
                path.display(),
                how_to_build(abi)
            )));
        }
        return Ok(DeviceEngine { path, variant: None, better: None });
    }
    let mut better = None;
    for variant in variants(abi, features) {
        let path = builds.join(abi).join(variant).join(ENGINE);
        if path.is_file() {
            return Ok(DeviceEngine { path, variant: Some(variant), better });
        }
        better = better.or(Some(variant));
    }
    if abi == own_abi() {
        return Ok(DeviceEngine { path: find(None)?, variant: None, better: None });
    }
    Err(Error::Refused(format!(
        "no engine for {abi} below {}; {}",
        builds.display(),
        how_to_build(abi)
    )))
}

/// Where `scripts/build-device.sh` puts engines: below the target folder that this program was built in.
///
/// # Errors
/// The system doesn't tell where this program is.
pub fn device_builds() -> Result<PathBuf, Error> {
    let own = own_path()?;
    let target = own.parent().and_then(Path::parent).unwrap_or(Path::new("target"));
    Ok(target.join("device"))
}

/// The builds that a CPU can run, the fastest first.
fn variants(abi: &str, features: &BTreeSet<String>) -> impl Iterator<Item = &'static str> {
    let runs = |needs: &[&str]| needs.iter().all(|feature| features.contains(*feature));
    let known = if abi == ARM64 { &ARM64_VARIANTS[..] } else { &[] };
    known.iter().filter(move |(_, needs)| runs(needs)).map(|(name, _)| *name)
}

/// This machine's binary interface, in Android's words.
fn own_abi() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => ARM64,
        other => other,
    }
}

fn how_to_build(abi: &str) -> String {
    match abi {
        ARM64 => "build it with `scripts/build-device.sh arm64`".to_owned(),
        abi if abi == own_abi() => "build it with `cargo build -p bmoe-engine`".to_owned(),
        _ => format!("bmoe has no build for {abi}; name one of your own with --engine"),
    }
}

/// The binary interface that a program is for; `None` when it is no ELF file (a script) or of a machine
/// without a name here.
#[must_use]
pub fn machine_of(program: &Path) -> Option<&'static str> {
    let mut head = [0; 20];
    std::fs::File::open(program).ok()?.read_exact(&mut head).ok()?;
    elf_machine(&head)
}

fn elf_machine(head: &[u8; 20]) -> Option<&'static str> {
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    match u16::from_le_bytes([head[18], head[19]]) {
        3 => Some("x86"),
        40 => Some("armeabi-v7a"),
        62 => Some("x86_64"),
        183 => Some(ARM64),
        243 => Some("riscv64"),
        _ => None,
    }
}

/// One clear message when a program ended as one does that can't be run where it was tried.
#[must_use]
pub fn cannot_run(program: &Path, target: &str, finished: &Finished) -> Option<String> {
    let said = finished.stderr.trim();
    let why = match finished.exit? {
        Exit::Code(126) => "is not for its CPU",
        Exit::Code(127) => "is not there, or needs libraries that are not",
        Exit::Signal(4) => "uses instructions that its CPU does not have (SIGILL)",
        _ => return None,
    };
    Some(format!(
        "the engine {} cannot run on {target}: it {why}; `bmoe doctor --target {target}` names the right \
         one{}{said}",
        program.display(),
        if said.is_empty() { "" } else { "; it says: " }
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(list: &str) -> BTreeSet<String> {
        list.split(' ').map(str::to_owned).collect()
    }

    /// A folder with builds for these variants.
    fn builds(variants: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for variant in variants {
            let folder = folder.path().join(ARM64).join(variant);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(ENGINE), "").unwrap();
        }
        folder
    }

    #[test]
    fn the_fastest_build_that_the_cpu_can_run_is_taken() {
        let all = builds(&["armv8-a", "armv8.2-a+dotprod", "armv8.6-a+i8mm"]);
        let pick = |folder: &tempfile::TempDir, list: &str| {
            let found = for_device(None, folder.path(), ARM64, &features(list)).unwrap();
            (found.variant.unwrap(), found.better)
        };
        let a53 = "fp asimd aes crc32";
        let a76 = "fp asimd atomics asimddp";
        let x2 = "fp asimd atomics asimddp i8mm bf16";
        assert_eq!(pick(&all, a53), ("armv8-a", None));
        assert_eq!(pick(&all, a76), ("armv8.2-a+dotprod", None));
        assert_eq!(pick(&all, x2), ("armv8.6-a+i8mm", None));
        let plain = builds(&["armv8-a"]);
        assert_eq!(pick(&plain, a53), ("armv8-a", None));
        assert_eq!(pick(&plain, x2), ("armv8-a", Some("armv8.6-a+i8mm")));
    }

    #[test]
    fn a_missing_engine_is_named_with_the_command_that_builds_it() {
        let none = builds(&[]);
        let error = for_device(None, none.path(), ARM64, &features("asimddp")).unwrap_err();
        assert!(error.to_string().contains("scripts/build-device.sh arm64"), "{error}");
        let error = for_device(None, none.path(), "mips64", &features("")).unwrap_err();
        assert!(error.to_string().contains("--engine"), "{error}");
    }

    #[test]
    fn an_engine_of_another_machine_is_refused_before_it_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine");
        let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0".to_vec();
        elf.extend(62_u16.to_le_bytes());
        std::fs::write(&path, &elf).unwrap();
        assert_eq!(machine_of(&path), Some("x86_64"));
        let error = for_device(Some(&path), folder.path(), ARM64, &features("")).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("is for x86_64, the device is arm64-v8a"), "{error}");
        assert!(for_device(Some(&path), folder.path(), "x86_64", &features("")).is_ok());
        // A script may do anything.
        std::fs::write(&path, "#!/bin/sh\nexec something\n").unwrap();
        assert!(for_device(Some(&path), folder.path(), ARM64, &features("")).is_ok());
    }

    #[test]
    fn what_cannot_run_is_told_from_what_failed() {
        let ended = |exit| Finished { exit: Some(exit), stderr: "x: not executable\n".to_owned() };
        let told = |exit| cannot_run(Path::new("e"), "adb:X", &ended(exit));
        let message = told(Exit::Code(126)).unwrap();
        assert_eq!(
            message,
            "the engine e cannot run on adb:X: it is not for its CPU; `bmoe doctor --target adb:X` names the \
             right one; it says: x: not executable"
        );
        assert!(told(Exit::Code(127)).is_some() && told(Exit::Signal(4)).is_some());
        assert!(told(Exit::Code(1)).is_none() && told(Exit::Signal(9)).is_none());
    }
}
