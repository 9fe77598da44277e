//! `bmoe clean`

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use crate::adb::Server;
use crate::error::Error;
use crate::progress::mib;
use crate::runner::Exit;
use crate::say::say;
use crate::target::{AdbTarget, Command, Target, TargetError, TargetName};

/// Remove what bmoe put on a device: engines, models, results that were fetched or given up
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Everything of bmoe's lies below /data/local/tmp/bmoe of a device; nothing else is touched. A device on
which an engine runs is left alone. On this machine results and models lie where they were asked for
(runs/, models/): those are removed by hand.

Examples:
  bmoe clean --target adb --dry-run
  bmoe clean --target adb:R5CT10ABCDE")]
pub(super) struct Args {
    /// `adb`, `adb:SERIAL` or `adb:HOST:PORT`
    #[arg(long, value_name = "TARGET", default_value = "adb")]
    target: TargetName,
    /// Show what is there, remove nothing
    #[arg(long)]
    dry_run: bool,
}

/// `$1` = the folder. Prints the size of each thing in it, and at last of the whole, in KiB.
const LIST: &str = r#"[ -e "$1" ] || exit 3
for f in "$1"/files/*/* "$1"/*; do
  case $f in */files|*/manifest|*/lock) continue;; esac
  [ -e "$f" ] && du -sk "$f"
done
du -sk "$1"
pidof bmoe-engine >/dev/null 2>&1 && echo running
exit 0"#;

/// What deleting many gigabytes may take.
const LIMIT: Duration = Duration::from_secs(600);

pub(super) fn run(args: &Args) -> Result<(), Error> {
    if args.target == TargetName::Local {
        return Err(Error::Refused(
            "nothing is copied on this machine; delete folders below runs/ and models/ by hand"
                .to_owned(),
        ));
    }
    let server = Server::from_environment().map_err(|e| Error::Refused(e.to_string()))?;
    let target = AdbTarget::connect(server, &args.target)?;
    clean(&target, args.dry_run)
}

fn clean(target: &dyn Target, dry_run: bool) -> Result<(), Error> {
    let (name, home) = (target.name(), target.home());
    let (code, listing, err) = script(target, LIST, home)?;
    if code == Exit::Code(3) {
        say!("{name}: nothing of bmoe's is there");
        return Ok(());
    }
    if code != Exit::Code(0) {
        return Err(failed(target, "look into", &err));
    }
    let found = Found::parse(&listing, home);
    for (kib, path) in &found.things {
        say!("{:>12}  {path}", mib(kib * 1024));
    }
    let total = mib(found.total_kib * 1024);
    if dry_run {
        say!("{name}: would remove {total}; nothing was removed");
        return Ok(());
    }
    if found.running {
        return Err(Error::Refused(format!(
            "an engine runs on {name}; let it end, or stop it (`adb shell pkill bmoe-engine`), then clean"
        )));
    }
    let (code, _, err) = script(target, "rm -rf \"$1\"", home)?;
    if code != Exit::Code(0) {
        return Err(failed(target, "remove", &err));
    }
    say!("{name}: removed {total}");
    Ok(())
}

fn failed(target: &dyn Target, what: &str, reason: &str) -> Error {
    Error::Target(TargetError::Failed {
        target: target.name().to_owned(),
        what: format!("{what} {}", target.home().display()),
        source: std::io::Error::other(reason.trim().to_owned()),
    })
}

fn script(
    target: &dyn Target,
    script: &str,
    folder: &Path,
) -> Result<(Exit, String, String), Error> {
    let mut words: Vec<OsString> = ["sh", "-c", script, "sh"].map(OsString::from).into();
    words.push(folder.into());
    let mut out = Vec::new();
    let finished = target.exec(&Command::new(words, LIMIT), &mut |bytes| {
        out.extend_from_slice(bytes);
        ControlFlow::Continue(())
    })?;
    let exit = finished.exit.unwrap_or(Exit::Code(0));
    Ok((exit, String::from_utf8_lossy(&out).into_owned(), finished.stderr))
}

/// What lies in the folder.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    /// KiB and the path below the folder.
    things: Vec<(u64, String)>,
    total_kib: u64,
    running: bool,
}

impl Found {
    fn parse(listing: &str, home: &Path) -> Self {
        let mut things: Vec<(u64, String)> = listing
            .lines()
            .filter_map(|line| {
                let (kib, path) = line.split_once(char::is_whitespace)?;
                Some((kib.parse().ok()?, path.trim().to_owned()))
            })
            .collect();
        let total_kib = things.pop().map_or(0, |(kib, _)| kib);
        let home = home.to_string_lossy();
        for (_, path) in &mut things {
            if let Some(rest) = path.strip_prefix(&*home) {
                *path = rest.trim_start_matches('/').to_owned();
            }
        }
        Self { things, total_kib, running: listing.lines().any(|line| line == "running") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listing_is_understood() {
        let home = Path::new("/data/local/tmp/bmoe");
        let listing = "18121740\t/data/local/tmp/bmoe/files/ab/m x.gguf\n8\t/data/local/tmp/bmoe/attempts\n\
                       18121752\t/data/local/tmp/bmoe\nrunning\n";
        assert_eq!(
            Found::parse(listing, home),
            Found {
                things: vec![
                    (18_121_740, "files/ab/m x.gguf".to_owned()),
                    (8, "attempts".to_owned())
                ],
                total_kib: 18_121_752,
                running: true
            }
        );
    }
}
