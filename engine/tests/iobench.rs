//! `bmoe-engine iobench`: what it prints and writes, what it refuses, and that it cleans up.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

fn iobench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bmoe-engine")).arg("iobench").args(arguments).output().unwrap()
}

#[track_caller]
fn refused(arguments: &[&str], parts: &[&str]) {
    let output = iobench(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{arguments:?}: {stderr}");
    for part in parts {
        assert!(stderr.contains(part), "no {part:?} in {stderr}");
    }
}

#[test]
fn a_model_s_slices_are_read_every_way() {
    let _place = common::place(2);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", Some(2));
    let json = folder.path().join("io.json");
    for more in [&[][..], &["--no-odirect"]] {
        let base = ["--from-model", model.to_str().unwrap(), "--lanes", "1,3", "--seconds", "0.02"];
        let out = ["--repeats", "2", "--json", json.to_str().unwrap()];
        let output = iobench(&[&base[..], &out, more].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        let rows = report["rows"].as_array().unwrap();
        let uring = report["uring_unavailable"].is_null();
        // The tiny model mixes types: its slices have two sizes.
        assert_eq!(rows.len(), 2 * 2 * if uring { 2 } else { 1 }, "{report:#}");
        for row in rows {
            assert_eq!(row["mib_s"].as_array().unwrap().len(), 2);
            assert!(row["median_mib_s"].as_f64().unwrap() > 0.0);
            assert!(row["p99_ms"].as_f64().unwrap() >= row["p50_ms"].as_f64().unwrap());
        }
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(stdout.matches("--io-ceiling ").count(), 2, "{stdout}");
        assert!(stdout.contains("m-00001-of-00002.gguf; O_DIRECT "), "{stdout}");
        assert_eq!(stdout.contains("off, as asked for"), !more.is_empty(), "{stdout}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = common::folder();
    let file = folder.path().join("f");
    std::fs::write(&file, vec![1; 1 << 20]).unwrap();
    let file = file.to_str().unwrap();
    refused(&["--file", file, "--sizes", "2048"], &["2048 KiB", "which has 1024", "--sizes"]);
    refused(&["--file", file, "--lanes", "9"], &["--lanes 9", "1 to 8"]);
    refused(&["--file", file, "--sizes", "0"], &["--sizes 0", "at least 1"]);
    refused(&["--file", file, "--seconds", "0"], &["--seconds"]);
    refused(&["--file", file, "--seconds=-1"], &["--seconds -1"]);
    refused(&["--file", "/nowhere/f"], &["/nowhere/f", "--file"]);
    refused(&["--file", "/dev/null"], &["/dev/null is not a file"]);
    refused(&["--from-model", file], &["not a GGUF"]);
    let here = folder.path().to_str().unwrap();
    refused(&["--dir", here, "--scratch-mb", "99999999"], &["MiB free", "--scratch-mb"]);
    assert_eq!(iobench(&["--file", file, "--scratch-mb", "5"]).status.code(), Some(2));
}

#[test]
fn a_signal_ends_it_and_removes_the_scratch_file() {
    let folder = common::folder();
    let mut child = Command::new(env!("CARGO_BIN_EXE_bmoe-engine"))
        .args(["iobench", "--scratch-mb", "8", "--sizes", "64", "--seconds", "1000", "--dir"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("writing 8 MiB to "));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let last = lines.map(Result::unwrap).last();
    assert_eq!(last.as_deref(), Some("error: interrupted by SIGTERM"));
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// What is measured must still be there afterwards.
#[test]
fn results_do_not_overwrite_what_is_read() {
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let before = std::fs::read(&model).unwrap();
    let path = model.to_str().unwrap();
    refused(&["--file", path, "--json", path], &["--json", "m.gguf", "is a GGUF model"]);
    assert_eq!(std::fs::read(&model).unwrap(), before);

    let plain = folder.path().join("plain");
    std::fs::write(&plain, vec![1; 1 << 20]).unwrap();
    let path = plain.to_str().unwrap();
    refused(&["--file", path, "--json", path], &["--json", "is the file that is read"]);
    assert_eq!(std::fs::read(&plain).unwrap(), vec![1; 1 << 20]);
}
