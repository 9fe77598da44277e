//! The target against a server and a device whose faults can be chosen.

use std::time::Instant;

use sha2::{Digest, Sha256};

use super::*;
use crate::adb::fake::{Fake, Faults, SERIAL};

/// Silence is noticed soon.
const IMPATIENT: Duration = Duration::from_millis(300);

fn device(faults: Faults) -> (Fake, AdbTarget) {
    let fake = Fake::start(faults);
    let target = AdbTarget {
        silence: IMPATIENT,
        patience: IMPATIENT,
        ..AdbTarget::at(fake.server, SERIAL.to_owned())
    };
    (fake, target)
}

fn run(
    target: &AdbTarget,
    script: &str,
    limit: Duration,
) -> (Result<Finished, TargetError>, String) {
    let mut out = Vec::new();
    let finished = target.exec(&Command::new(["sh", "-c", script], limit), &mut |bytes| {
        out.extend_from_slice(bytes);
        ControlFlow::Continue(())
    });
    (finished, String::from_utf8(out).unwrap())
}

const LONG: Duration = Duration::from_secs(60);

/// A file to stage, with its hash.
fn file(folder: &tempfile::TempDir, content: &[u8]) -> (PathBuf, String) {
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, content).unwrap();
    (path, Sha256::digest(content).iter().map(|b| format!("{b:02x}")).collect())
}

#[test]
fn output_and_exit_codes_arrive() {
    let (_fake, target) = device(Faults::default());
    let (finished, out) = run(&target, "echo out; cat; echo err >&2; exit 7", LONG);
    let finished = finished.unwrap();
    assert_eq!((finished.exit, finished.stderr.as_str()), (Some(Exit::Code(7)), "err\n"));
    assert_eq!(out, "out\n", "its input is empty");
    let (killed, _) = run(&target, "kill -9 $$", LONG);
    assert_eq!(killed.unwrap().exit, Some(Exit::Signal(9)));
}

#[test]
fn a_device_that_does_not_say_how_a_command_ended_is_lost() {
    let (_fake, target) = device(Faults { no_exit_packet: true, ..Faults::default() });
    let (finished, out) = run(&target, "echo whole", LONG);
    assert!(finished.unwrap_err().is_lost());
    assert_eq!(out, "whole\n");
}

#[test]
fn a_connection_that_breaks_in_the_middle_of_output_is_lost() {
    let (_fake, target) =
        device(Faults { drop_after_output_bytes: Some(1000), ..Faults::default() });
    let (finished, _) = run(&target, "head -c 100000 /dev/zero", LONG);
    assert!(finished.unwrap_err().is_lost());
}

#[test]
fn a_silent_device_that_does_not_answer_is_lost_and_one_that_does_is_waited_for() {
    let (fake, target) = device(Faults::default());
    let (finished, _) = run(&target, "sleep 1", LONG);
    assert_eq!(finished.unwrap().exit, Some(Exit::Code(0)));
    // The command starts, and then nothing else does.
    let started = Instant::now();
    let mut seen = false;
    let command = Command::new(["sh", "-c", "echo on; sleep 30"], LONG);
    let finished = target.exec(&command, &mut |bytes| {
        if !bytes.is_empty() && !seen {
            seen = true;
            let refusals = Some((usize::MAX, "device offline"));
            fake.set(Faults { refusals, ..Faults::default() });
        }
        ControlFlow::Continue(())
    });
    assert!(finished.unwrap_err().is_lost());
    assert!(started.elapsed() < Duration::from_secs(20), "it isn't waited for the command's end");
}

#[test]
fn time_limits_hold() {
    let (_fake, target) = device(Faults::default());
    let (late, out) = run(&target, "echo on; sleep 30", Duration::from_millis(500));
    let error = late.unwrap_err();
    assert!(matches!(error, TargetError::TimedOut { .. }), "{error}");
    assert_eq!(out, "on\n");
}

#[test]
fn whoever_has_heard_enough_leaves() {
    let (_fake, target) = device(Faults::default());
    let command = Command::new(["sh", "-c", "echo on; sleep 30"], LONG).unlimited();
    let left = target.exec(&command, &mut |bytes| {
        if bytes.is_empty() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert_eq!(left.unwrap().exit, None);
}

#[test]
fn a_device_that_comes_back_is_used_and_one_that_wants_something_says_what() {
    let refusals = Some((1, "device 'FAKE1' not found"));
    let (fake, target) = device(Faults { refusals, ..Faults::default() });
    assert_eq!(run(&target, "true", LONG).0.unwrap().exit, Some(Exit::Code(0)));
    let refusals = Some((usize::MAX, "device unauthorized."));
    fake.set(Faults { refusals, state: Some("unauthorized"), ..Faults::default() });
    let error = run(&target, "true", LONG).0.unwrap_err().to_string();
    assert!(error.contains("unauthorised") && error.contains("allow USB debugging"), "{error}");
}

#[test]
fn small_files_go_there_and_back() {
    let (fake, target) = device(Faults { delay: Duration::from_millis(20), ..Faults::default() });
    let there = target.home().join("a/run.toml");
    target.put(b"content", &there).unwrap();
    assert_eq!(std::fs::read(fake.path(&there)).unwrap(), b"content");
    let parts = std::fs::read_dir(fake.path(&there).parent().unwrap()).unwrap().count();
    assert_eq!(parts, 1, "nothing is left beside it");
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("copy");
    assert!(target.fetch(&there, &to).unwrap());
    assert_eq!(std::fs::read(&to).unwrap(), b"content");
    assert!(!target.fetch(&target.home().join("none"), &here.path().join("none")).unwrap());
    assert!(!here.path().join("none").exists());
}

#[test]
fn a_push_that_fails_late_is_a_failure_and_leaves_nothing() {
    let message = "couldn't write: No space left on device";
    let (fake, target) =
        device(Faults { push_fails: Some(message.to_owned()), ..Faults::default() });
    let there = target.home().join("run.toml");
    let error = target.put(b"content", &there).unwrap_err().to_string();
    assert!(error.contains("run.toml") && error.contains(message), "{error}");
    assert!(!fake.path(&there).exists());
}

#[test]
fn a_large_file_that_breaks_off_again_and_again_is_resumed_and_sent_once() {
    let (fake, target) =
        device(Faults { drop_after_input_bytes: Some(300_000), ..Faults::default() });
    let target = AdbTarget { patience: LONG, ..target };
    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..1_000_000_u32).flat_map(|n| n.to_le_bytes()).collect();
    let (path, sha256) = file(&folder, &content);
    let staged = StagedFile { path: &path, sha256: &sha256, executable: false };
    let mut positions = Vec::new();
    let there = target.stage(&staged, &mut |at| positions.push(at)).unwrap();
    assert_eq!(there, Path::new(HOME).join("files").join(&sha256[..16]).join("model.gguf"));
    assert_eq!(std::fs::read(fake.path(&there)).unwrap(), content);
    for break_off in (0..4_000_000).step_by(300_000) {
        assert!(positions.contains(&break_off), "what had arrived counts: {break_off}");
    }
    assert_eq!(positions.last(), Some(&4_000_000));

    // Sending it again would break.
    fake.set(Faults { drop_after_input_bytes: Some(0), ..Faults::default() });
    assert_eq!(target.stage(&staged, &mut |_| ()).unwrap(), there);
    let elsewhere = tempfile::tempdir().unwrap();
    let (other_path, other_sha256) = file(&elsewhere, b"another one");
    let other = StagedFile { path: &other_path, sha256: &other_sha256, executable: false };
    let target = AdbTarget { patience: IMPATIENT, ..target };
    assert!(target.stage(&other, &mut |_| ()).unwrap_err().is_lost(), "nothing gets through");

    // Somebody changes it: with the same stamp only `verify` sees that.
    fake.set(Faults::default());
    let on_device = fake.path(&there);
    let modified = on_device.metadata().unwrap().modified().unwrap();
    let changed = std::fs::OpenOptions::new().write(true).open(&on_device).unwrap();
    std::os::unix::fs::FileExt::write_at(&changed, b"x", 5).unwrap();
    changed.set_modified(modified).unwrap();
    target.stage(&staged, &mut |_| ()).unwrap();
    assert_ne!(std::fs::read(&on_device).unwrap(), content);
    target.with_verify(true).stage(&staged, &mut |_| ()).unwrap();
    assert_eq!(std::fs::read(&on_device).unwrap(), content);
}

#[test]
fn a_file_with_another_hash_is_never_kept() {
    let (fake, target) = device(Faults::default());
    let folder = tempfile::tempdir().unwrap();
    let (path, sha256) = file(&folder, b"what was hashed");
    std::fs::write(&path, "what is there now").unwrap();
    let staged = StagedFile { path: &path, sha256: &sha256, executable: true };
    let error = target.stage(&staged, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("changed since it was hashed"), "{error}");
    let left = fake.path(&target.home().join("files").join(&sha256[..16]).join("model.gguf"));
    assert!(!left.exists());
}

#[test]
fn a_server_that_says_nothing_to_a_push_is_given_up() {
    let fake = Fake::start(Faults { hangs: Some("sync:"), ..Faults::default() });
    let error = sync::push(fake.server, SERIAL, b"x".to_vec(), "/data/local/tmp/x", IMPATIENT)
        .unwrap_err()
        .to_string();
    assert!(error.contains("nothing moved"), "{error}");
}

#[test]
fn exit_codes_of_a_shell_are_told_apart() {
    assert_eq!(exit(7, ""), Exit::Code(7));
    assert_eq!(exit(137, ""), Exit::Signal(9));
    assert_eq!(exit(255, ""), Exit::Code(255));
    let wrong = "/system/bin/sh: /data/local/tmp/x: not executable: 64-bit ELF file\n";
    assert_eq!(exit(1, wrong), Exit::Code(126));
    assert_eq!(exit(126, wrong), Exit::Code(126));
}

#[test]
fn the_end_of_a_long_standard_error_is_kept() {
    let mut kept = vec![b'a'; STDERR_BYTES];
    keep_last(&mut kept, b"end");
    assert_eq!(kept.len(), STDERR_BYTES);
    assert!(kept.ends_with(b"aend"));
}
