//! What the program refuses, with one line and a code.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use bmoe_trace::line::Line;

fn engine(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bmoe-engine"))
        .arg("generate")
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs the engine; it must fail with the code and one line that has all the parts.
#[track_caller]
fn refused(arguments: &[&str], code: i32, parts: &[&str]) {
    let output = engine(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    let errors: Vec<&str> = stderr.lines().filter(|l| l.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    for part in parts {
        assert!(errors[0].contains(part), "no {part:?} in {:?}", errors[0]);
    }
}

/// A GGUF file of version 3 with keys and no tensors.
fn bare_gguf(path: &Path, numbers: &[(&str, u32)]) {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    let text = |bytes: &mut Vec<u8>, s: &str| {
        bytes.extend((s.len() as u64).to_le_bytes());
        bytes.extend(s.as_bytes());
    };
    bytes.extend(0u64.to_le_bytes());
    bytes.extend((numbers.len() as u64 + 1).to_le_bytes());
    text(&mut bytes, "general.architecture");
    bytes.extend(8u32.to_le_bytes());
    text(&mut bytes, "qwen3moe");
    for (key, value) in numbers {
        text(&mut bytes, &format!("qwen3moe.{key}"));
        bytes.extend(4u32.to_le_bytes());
        bytes.extend(value.to_le_bytes());
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn files_that_are_no_model() {
    let folder = common::folder();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let text = at("text.gguf");
    std::fs::write(&text, "GGML, perhaps").unwrap();
    refused(&["-m", &text, "-p", "a"], 3, &["text.gguf", "not a GGUF", "give a .gguf"]);
    std::fs::write(at("empty.gguf"), "").unwrap();
    refused(&["-m", &at("empty.gguf"), "-p", "a"], 3, &["empty.gguf", "not a GGUF"]);
    refused(&["-m", &at("gone.gguf"), "-p", "a"], 3, &["gone.gguf", "No such file", "--model"]);
    std::fs::write(at("noise.gguf"), [b"GGUF".to_vec(), vec![0xFE; 500]].concat()).unwrap();
    refused(&["-m", &at("noise.gguf"), "-p", "a"], 3, &["noise.gguf", "can't be used as a model"]);

    bare_gguf(folder.path().join("dense.gguf").as_path(), &[("block_count", 2)]);
    refused(
        &["-m", &at("dense.gguf"), "-p", "a"],
        3,
        &["dense.gguf", "not a Mixture-of-Experts", "--mode mmap"],
    );
    bare_gguf(
        folder.path().join("odd.gguf").as_path(),
        &[("block_count", 2), ("expert_count", 4), ("expert_used_count", 2)],
    );
    refused(&["-m", &at("odd.gguf"), "-p", "a"], 3, &["odd.gguf", "4 experts", "ffn_"]);
}

#[test]
fn damaged_and_incomplete_models() {
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let whole = std::fs::read(&model).unwrap();
    let cut = folder.path().join("cut.gguf");
    std::fs::write(&cut, &whole[..whole.len() - 100]).unwrap();
    let cut = cut.display().to_string();
    refused(&["-m", &cut, "-p", "a"], 3, &["cut.gguf is truncated", "tensor ", "again"]);
    // Cut off within the header.
    let stub = folder.path().join("stub.gguf");
    std::fs::write(&stub, &whole[..300]).unwrap();
    refused(&["-m", &stub.display().to_string(), "-p", "a"], 3, &["stub.gguf"]);

    let first = common::model(folder.path(), &common::tiny("qwen3moe"), "parts", Some(3));
    std::fs::remove_file(folder.path().join("parts-00002-of-00003.gguf")).unwrap();
    let first = first.display().to_string();
    refused(
        &["-m", &first, "-p", "a"],
        3,
        &["part 2 of 3", "parts-00002-of-00003.gguf", "one folder"],
    );
}

#[test]
fn settings_that_do_not_fit() {
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("gpt-oss"), "m", None);
    let model = model.display().to_string();
    let m = ["-m", &model, "-p", "a"];
    let with = |more: &[&'static str]| -> Vec<String> {
        m.iter().chain(more).map(|s| (*s).to_owned()).collect()
    };
    let refused = |more: &[&'static str], code, parts: &[&str]| {
        let arguments = with(more);
        refused(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), code, parts);
    };
    refused(&["--io-threads", "9"], 3, &["--io-threads 9", "1 to 8"]);
    refused(&["--io-threads", "0"], 3, &["--io-threads 0", "1 to 8"]);
    refused(&["--ctx", "10", "-n", "10"], 3, &["-n asks for 10", "holds 10", "--ctx"]);
    refused(&["--n-expert-used", "999"], 3, &["999", "experts"]);
    refused(&["--mode", "mmap", "--dense-weights", "warm"], 3, &["--dense-weights warm", "stream"]);
    refused(&["--cpu-mask", "1000"], 3, &["--cpu-mask 1000", "may not use"]);
    refused(&["--cpu-mask", "0x0"], 3, &["--cpu-mask 0x0", "no core"]);
    refused(&["--cpu-mask", "big"], 3, &["--cpu-mask big", "4-7,9", "0xf0"]);
    refused(&["--ubatch", "0"], 3, &["--ubatch"]);
    refused(&["--ctx", "1000000000"], 3, &["--ctx 1000000000", "context of 4096", "or less"]);

    let long = common::prompt(20);
    self::refused(
        &["-m", &model, "-p", &long, "--ctx", "25", "-n", "10"],
        3,
        &["20 tokens", "10 more", "holds 25", "--ctx 30"],
    );

    // Experts of more than 1 MiB, so that a whole MiB is too small a cache.
    let f32 = common::tiny("gpt-oss").with_type(bmoe_synth::WeightType::F32).unwrap();
    let large = common::model(folder.path(), &f32, "large", None).display().to_string();
    self::refused(
        &["-m", &large, "-p", "a", "--cache-mb", "1"],
        3,
        &["--cache-mb 1 is too small", "MiB", "or 0 for no cache"],
    );

    // One layer's experts fit, one token's don't.
    let info = bmoe_engine::llama::gguf::ModelInfo::read(large.as_ref()).unwrap();
    let layer = info.experts.top_k_bytes(info.n_expert_used).div_ceil(1 << 20).to_string();
    let demand = info.experts.token_demand_bytes(info.n_expert_used).div_ceil(1 << 20);
    self::refused(
        &["-m", &large, "-p", "a", "--cache-mb", &layer],
        3,
        &["one token's experts", &format!("give --cache-mb {demand}"), "--force-cache"],
    );
    let forced =
        engine(&["-m", &large, "-p", "a", "-n", "1", "--cache-mb", &layer, "--force-cache"]);
    assert_eq!(forced.status.code(), Some(0));

    let run = folder.path().join("run.toml");
    std::fs::write(&run, "cache_mb = 4\n").unwrap();
    let run = run.display().to_string();
    let output = engine(&["--config", &run]);
    assert_eq!(output.status.code(), Some(3));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("run.toml") && stderr.contains("cache_mb"), "{stderr}");
    let beside = engine(&["--config", &run, "-n", "5"]);
    assert_eq!(beside.status.code(), Some(2));
    let message = String::from_utf8_lossy(&beside.stderr);
    assert!(message.contains("so --n-predict can't be given beside it"), "{message}");
}

#[test]
fn outputs_never_destroy_a_model_or_each_other() {
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let bytes = std::fs::metadata(&model).unwrap().len();
    let m = model.display().to_string();
    for option in ["--trace", "--csv", "--route-trace"] {
        refused(&["-m", &m, "-p", "a", option, &m], 3, &[option, "m.gguf", "overwritten"]);
    }
    assert_eq!(std::fs::metadata(&model).unwrap().len(), bytes);
    let csv = folder.path().join("old.csv");
    std::fs::write(&csv, "earlier results").unwrap();
    let out = csv.display().to_string();
    refused(
        &["-m", &m, "-p", "a", "--csv", &out, "--trace", &out],
        3,
        &["--trace and --csv", "old.csv"],
    );
    // A refused run leaves older files alone.
    refused(&["-m", "/nowhere/m.gguf", "-p", "a", "--csv", &out], 3, &["/nowhere/m.gguf"]);
    refused(&["-m", &m, "-p", "a", "--csv", &out, "--cache-mb", "0", "--ctx", "3"], 3, &["--ctx"]);
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), "earlier results");
}

#[test]
fn a_pipe_is_not_waited_for() {
    let folder = common::folder();
    let pipe = folder.path().join("pipe.gguf");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    refused(&["-m", &pipe.display().to_string(), "-p", "a"], 3, &["pipe.gguf", "not a GGUF"]);
}

#[test]
fn the_error_is_also_a_line_of_the_protocol() {
    let output = engine(&["-m", "/nowhere/m.gguf", "-p", "a", "--progress"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    let Some(Line::Error(error)) = stdout.lines().find_map(Line::parse) else { panic!("{stdout}") };
    assert!(error.fatal && error.msg.contains("/nowhere/m.gguf"));
}
