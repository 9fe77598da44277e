//! The programs under `examples/`, run.

mod common;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Once;

/// An example as a program. Cargo builds examples along with all tests of the package, but not with a single
/// one of them; asking again costs nothing.
fn example(name: &str) -> PathBuf {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--offline", "--locked", "-p", "bmoe-engine", "--examples"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(status.success());
    });
    let tests = std::env::current_exe().unwrap();
    tests.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name)
}

fn run(name: &str, arguments: &[&str]) -> (String, String) {
    let output = Command::new(example(name)).args(arguments).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{name}: {stderr}");
    (String::from_utf8(output.stdout).unwrap(), stderr)
}

#[test]
fn minimal_prints_the_text() {
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let (text, stderr) = run("minimal", &[model.to_str().unwrap(), "Once upon a time"]);
    assert!(text.split_whitespace().count() > 4 && text.ends_with('\n'), "{text}");
    assert!(stderr.starts_with("16 tokens in "), "{stderr}");
}

#[test]
fn a_sink_of_ones_own_sees_every_record() {
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let (text, _) = run("own_sink", &[model.to_str().unwrap(), "Hello", "And?"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("turn 0: ") && lines[0].contains(" 0 kept; "), "{text}");
    assert!(lines[1].starts_with("turn 1: ") && !lines[1].contains(" 0 kept; "), "{text}");
    assert!(lines[2].starts_with("layer 0: ") && lines.len() > 3, "{text}");
}

/// Experts from elsewhere give the same logits as the resident model.
#[test]
fn a_source_of_ones_own_is_lossless() {
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("gemma4"), "m", None);
    let (text, _) = run("own_source", &[model.to_str().unwrap(), "Once upon a time"]);
    let (answer, hash) = text.trim_end().rsplit_once('\n').unwrap();
    let config = bmoe_trace::RunConfig {
        prompt: "Once upon a time".into(),
        n_predict: 16,
        ctx_tokens: 2048,
        ..common::config(&model, bmoe_trace::Mode::Resident)
    };
    let (resident, _) = common::run(&config).unwrap();
    assert_eq!(Some(hash), resident.logits_sha256.as_deref());
    assert_eq!(answer, resident.text);
}
