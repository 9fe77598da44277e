//! A disk that fills up and a system without memory. Both need root; without it the tests say so.

use std::path::{Path, PathBuf};
use std::process::Command;

use bmoe_trace::record::Record;

use super::process::{end_of, engine};
use super::{common, read_trace, within_limit};

/// A small file system, unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf, size: &str) -> Result<Self, String> {
        std::fs::create_dir(&at).unwrap();
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(&at)
            .output()
            .map_err(|e| e.to_string())?;
        if output.status.success() {
            Ok(Self(at))
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_disk_that_fills_up_under_the_trace_leaves_what_was_written() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let disk = match SmallDisk::mount(folder.path().join("disk"), "64k") {
        Ok(disk) => disk,
        Err(e) => {
            eprintln!("skipped: a small tmpfs can't be mounted (only root can): {e}");
            return;
        }
    };
    let trace = disk.0.join("run.trace");
    let mut command = engine(&model, &["-p", "a", "-n", "2000", "--trace"]);
    let mut child = command.arg(&trace).spawn().unwrap();
    let (code, errors) = within_limit("a full disk", move || {
        std::io::copy(&mut child.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
        end_of(child)
    });
    assert_eq!(code, Some(4), "{errors}");
    assert!(errors.contains("run.trace") && errors.contains("No space left"), "{errors}");
    let (records, _) = read_trace(&trace);
    assert!(matches!(records[0], Record::Start(_)));
    assert!(records.iter().any(|r| matches!(r, Record::Token(_))));
    assert!(!records.iter().any(|r| matches!(r, Record::End(_))));
}

/// A version 1 memory control group, removed at the end.
struct Group(PathBuf);

impl Group {
    fn new(limit_bytes: u64) -> std::io::Result<Self> {
        let path =
            Path::new("/sys/fs/cgroup/memory").join(format!("bmoe-faults-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        let this = Self(path);
        std::fs::write(this.0.join("memory.limit_in_bytes"), limit_bytes.to_string())?;
        std::fs::write(this.0.join("memory.swappiness"), "0")?;
        Ok(this)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last page cache of the group keeps it busy for a moment.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn a_group_without_room_ends_the_run() {
    let _place = common::place(1);
    let folder = common::folder();
    let shape = common::tiny("gpt-oss").with_type(bmoe_synth::WeightType::F32).unwrap();
    let model = common::model(folder.path(), &shape, "m", None);
    let model_bytes = std::fs::metadata(&model).unwrap().len();
    let group = match Group::new(16 << 20) {
        Ok(group) => group,
        Err(e) => {
            eprintln!("skipped: no version 1 memory control group can be made here: {e}");
            return;
        }
    };
    assert!(model_bytes > 16 << 20, "the model must not fit: {model_bytes}");
    for more in [["--mode", "resident"], ["--cache-mb", "4096"]] {
        let trace = folder.path().join("run.trace");
        let engine = engine(&model, &["-p", "a", "-n", "200", "--trace"]);
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""])
            .arg(&group.0)
            .arg(engine.get_program())
            .args(engine.get_args())
            .arg(&trace)
            .args(more)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped());
        let child = command.spawn().unwrap();
        let (code, errors) = within_limit("no room", move || end_of(child));
        // Killed by the kernel, or refused.
        assert!(matches!(code, None | Some(3 | 4)), "{more:?}: {code:?} {errors}");
        if trace.exists() && std::fs::metadata(&trace).unwrap().len() > 0 {
            let (records, _) = read_trace(&trace);
            let complete = records.iter().any(|r| {
                matches!(r, Record::End(e) if e.outcome == bmoe_trace::record::Outcome::Complete)
            });
            assert!(!complete, "{more:?}");
        }
    }
}
