//! The target against AOSP's own adbd and adb server: `scripts/test-adb.sh` starts both and runs these tests.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::{Duration, Instant};

use bmoe::adb::Server;
use bmoe::runner::Exit;
use bmoe::target::{AdbTarget, Command, HOME, StagedFile, Target, TargetError, TargetName};
use sha2::{Digest, Sha256};

const LIMIT: Duration = Duration::from_secs(60);

fn phone() -> AdbTarget {
    // By its address: a restarted server knows no wireless devices.
    let name = TargetName::Device(std::env::var("ADBD_ADDR").unwrap());
    AdbTarget::connect(Server::from_environment().unwrap(), &name).unwrap()
}

fn sh(target: &dyn Target, script: &str) -> (Option<Exit>, String, String) {
    let mut out = Vec::new();
    let finished = target
        .exec(&Command::new(["sh", "-c", script], LIMIT), &mut |bytes| {
            out.extend_from_slice(bytes);
            ControlFlow::Continue(())
        })
        .unwrap();
    (finished.exit, String::from_utf8(out).unwrap(), finished.stderr)
}

fn adb(args: &[&str]) {
    assert!(Process::new("adb").args(args).status().unwrap().success(), "adb {args:?}");
}

/// A file that isn't zeros, with its hash.
struct Sample {
    _folder: tempfile::TempDir,
    path: PathBuf,
    sha256: String,
}

impl Sample {
    fn new(name: &str, mib: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut state = 1_u64;
        let mut word = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_le_bytes()
        };
        let content: Vec<u8> = (0..mib << 17).flat_map(|_| word()).collect();
        let path = folder.path().join(name);
        fs::write(&path, &content).unwrap();
        let sha256 = Sha256::digest(&content).iter().map(|b| format!("{b:02x}")).collect();
        Self { _folder: folder, path, sha256 }
    }

    fn staged(&self) -> StagedFile<'_> {
        StagedFile { path: &self.path, sha256: &self.sha256, executable: false }
    }

    fn is_whole(&self, target: &dyn Target, there: &Path) -> bool {
        let (_, out, _) = sh(target, &format!("sha256sum {}", there.display()));
        out.starts_with(&self.sha256)
    }
}

#[test]
#[ignore = "needs scripts/test-adb.sh"]
fn commands_end_as_they_end_in_a_shell() {
    let phone = phone();
    assert_eq!(sh(&phone, "cat; echo out; echo err >&2; exit 7").0, Some(Exit::Code(7)));
    assert_eq!(sh(&phone, "kill -9 $$").0, Some(Exit::Signal(9)));
    let exec = |word: &str| {
        phone.exec(&Command::new([word], LIMIT), &mut |_| ControlFlow::Continue(())).unwrap()
    };
    assert_eq!(exec("/no/such/program").exit, Some(Exit::Code(127)));

    // A program for another machine.
    let wrong = Path::new(HOME).join("wrong");
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xf3\0\x01\0\0\0".to_vec();
    elf.resize(4096, 0);
    phone.put(&elf, &wrong).unwrap();
    sh(&phone, &format!("chmod 755 {}", wrong.display()));
    let finished = exec(wrong.to_str().unwrap());
    assert_eq!(finished.exit, Some(Exit::Code(126)), "{}", finished.stderr);
    let message = bmoe::engine::cannot_run(&wrong, phone.name(), &finished).unwrap();
    assert!(message.contains("is not for its CPU"), "{message}");
}

#[test]
#[ignore = "needs scripts/test-adb.sh"]
fn a_command_that_is_left_ends_on_the_phone() {
    let phone = phone();
    let mark = "4711.25";
    let sleep = Command::new(["sh", "-c", &format!("echo on; exec sleep {mark}")], LIMIT);
    let left = phone.exec(&sleep, &mut |bytes| {
        if bytes.is_empty() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert_eq!(left.unwrap().exit, None);
    let end = Instant::now() + LIMIT;
    while sh(&phone, &format!("ps -ef | grep -v grep | grep 'sleep {mark}'")).0
        == Some(Exit::Code(0))
    {
        assert!(Instant::now() < end, "it still runs");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
#[ignore = "needs scripts/test-adb.sh"]
fn small_files_go_there_and_back() {
    let phone = phone();
    let sample = Sample::new("lines.txt", 5);
    let content = fs::read(&sample.path).unwrap();
    let there = Path::new(HOME).join("attempts/a b/lines.txt");
    phone.put(&content, &there).unwrap();
    phone.put(&content, &there).unwrap();
    let copy = sample.path.with_extension("copy");
    assert!(phone.fetch(&there, &copy).unwrap());
    assert_eq!(fs::read(&copy).unwrap(), content);
    assert!(!phone.fetch(&there.with_extension("none"), &copy).unwrap());
    let error = phone.put(b"x", Path::new("/proc/nothing/x")).unwrap_err().to_string();
    assert!(error.contains("/proc/nothing/x"), "{error}");
}

/// Sends a signal to whatever writes a push down on the phone.
fn signal_receiver(phone: &AdbTarget, signal: &str) {
    let script = format!(
        "for p in /proc/[0-9]*; do read c 2>/dev/null <$p/comm && [ $c = cat ] && kill -{signal} ${{p#/proc/}}; done; true"
    );
    assert_eq!(sh(phone, &script).0, Some(Exit::Code(0)));
}

/// Waits until so many bytes of a push are on the phone, stops their receiver, and returns how many are there.
fn stopped_after(phone: &AdbTarget, bytes: u64) -> u64 {
    let there = || {
        sh(phone, &format!("stat -c %s {HOME}/files/*/model.gguf.partial")).1.trim().parse().ok()
    };
    let end = Instant::now() + LIMIT;
    while there().is_none_or(|there: u64| there < bytes) {
        assert!(Instant::now() < end, "it does not arrive");
    }
    signal_receiver(phone, "STOP");
    there().expect("it is still being sent")
}

#[test]
#[ignore = "needs scripts/test-adb.sh"]
fn a_push_that_is_cut_off_goes_on_where_it_was() {
    let phone = phone();
    let sample = Sample::new("model.gguf", 512);
    let (mut cut, mut after) = (None, Vec::new());
    let there = phone
        .stage(&sample.staged(), &mut |at| match cut {
            // What is on its way may be all the rest, so that it would be whole when the server ends.
            None if at > 8 << 20 => {
                cut = Some(stopped_after(&phone, 4 << 20));
                adb(&["kill-server"]);
                signal_receiver(&phone, "KILL");
            }
            None => {}
            Some(_) => after.push(at),
        })
        .unwrap();
    // Whatever was still sent to the old receiver was further on.
    assert_eq!(after.iter().min(), cut.as_ref(), "where it went on, and what was there");
    assert!(sample.is_whole(&phone, &there));
}

#[test]
#[ignore = "needs scripts/test-adb.sh"]
fn what_is_there_is_not_sent_again_but_another_content_is_found() {
    let phone = phone();
    let sample = Sample::new("small.gguf", 64);
    let there = phone.stage(&sample.staged(), &mut |_| ()).unwrap();
    let mut positions = Vec::new();
    assert_eq!(phone.stage(&sample.staged(), &mut |at| positions.push(at)).unwrap(), there);
    assert_eq!(positions, [64 << 20], "nothing is sent again");

    // Another content under the same stamp is found when it is asked for.
    sh(
        &phone,
        &format!(
            "f={}; t=$(stat -c %y $f); printf x | dd of=$f bs=1 seek=5 conv=notrunc 2>/dev/null || \
        {{ head -c 5 $f; printf x; tail -c +7 $f; }} > $f.new; [ ! -e $f.new ] || mv $f.new $f; touch -d \"$t\" $f",
            there.display()
        ),
    );
    assert!(!sample.is_whole(&phone, &there));
    let phone = phone.with_verify(true);
    phone.stage(&sample.staged(), &mut |_| ()).unwrap();
    assert!(sample.is_whole(&phone, &there));
}

#[test]
#[ignore = "needs scripts/test-adb.sh"]
fn a_server_that_was_restarted_loses_nothing_that_runs_detached() {
    let phone = phone();
    let file = format!("{HOME}/detached");
    let script = format!(
        "mkdir -p {HOME}; setsid sh -c 'sleep 2; echo done >{file}' >/dev/null 2>&1 </dev/null &"
    );
    assert_eq!(sh(&phone, &script).0, Some(Exit::Code(0)));
    adb(&["kill-server"]);
    // The server is started and the phone connected again by whoever needs it.
    assert_eq!(sh(&phone, "true").0, Some(Exit::Code(0)));
    let end = Instant::now() + LIMIT;
    while sh(&phone, &format!("cat {file}")).1 != "done\n" {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// In a phone with 80 MiB of storage.
#[test]
#[ignore = "needs scripts/test-adb.sh"]
fn a_full_disk_is_told_before_and_while_it_fills() {
    let phone = phone();
    let large = Sample::new("large.gguf", 60);
    let error = phone.stage(&large.staged(), &mut |_| ()).unwrap_err();
    assert!(matches!(error, TargetError::NoSpace { needed_mib: 124, .. }), "{error}");
    assert!(error.to_string().contains("bmoe clean"), "{error}");
    // Somebody else takes the room between the look and the sending.
    let small = Sample::new("small.gguf", 12);
    let mut filled = false;
    let error = phone
        .stage(&small.staged(), &mut |_| {
            if !std::mem::replace(&mut filled, true) {
                sh(&phone, "head -c 75000000 /dev/zero >/data/local/tmp/other");
            }
        })
        .unwrap_err();
    assert!(matches!(error, TargetError::NoSpace { .. }), "{error}");
    sh(&phone, "rm /data/local/tmp/other");
    let there = phone.stage(&small.staged(), &mut |_| ()).unwrap();
    assert!(small.is_whole(&phone, &there));
}

/// The last one: the phone does not come back.
#[test]
#[ignore = "needs scripts/test-adb.sh"]
fn a_phone_that_vanishes_is_lost() {
    let phone = phone();
    let pid = std::env::var("ADB_RIG_PID").unwrap();
    let (started, mut killed) = (Instant::now(), false);
    let command = Command::new(["sh", "-c", "echo on; sleep 50"], LIMIT);
    let error = phone
        .exec(&command, &mut |bytes| {
            if !bytes.is_empty() && !std::mem::replace(&mut killed, true) {
                assert!(Process::new("kill").args(["-9", &pid]).status().unwrap().success());
            }
            ControlFlow::Continue(())
        })
        .unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(started.elapsed() < Duration::from_secs(40), "it isn't waited for");
    let error = phone.exec(&command, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.is_lost(), "{error}");
}
