//! Profiles: what one run used, another one preloads.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use bmoe_trace::profile::Profile;
use bmoe_trace::record::{ReadPurpose, Record};
use bmoe_trace::{CacheBudget, Mode, RunConfig};

fn engine(arguments: &[&str]) -> Output {
    let engine =
        Command::new(env!("CARGO_BIN_EXE_bmoe-engine")).arg("generate").args(arguments).output();
    engine.unwrap()
}

/// Writes a profile and a trace of a run.
fn profile(folder: &Path, model: &Path) -> [std::path::PathBuf; 2] {
    let files = [folder.join("used.json"), folder.join("run.trace")];
    let [profile, trace] = files.each_ref().map(|f| f.display().to_string());
    let model = model.display().to_string();
    let output = engine(&[
        "-m",
        &model,
        "-p",
        &common::prompt(7),
        "-n",
        "32",
        "-t",
        "1",
        "--save-profile",
        &profile,
        "--trace",
        &trace,
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    files
}

#[test]
fn a_run_with_a_profile_begins_with_its_experts() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let base = RunConfig {
        cache_mib: CacheBudget::Mib(2),
        io_trace: true,
        ..common::config(&model, Mode::Stream)
    };
    let (cold, records) = common::run(&base).unwrap();
    let Record::Start(start) = &records.0[0] else { panic!("the first record is the start") };
    let cold_prefill = records.prefill().cost.clone();
    assert_eq!(records.load().preloaded_bytes, 0);
    let [profile, trace] = profile(folder.path(), &model);
    let used = Profile::load(&profile, &start.model).unwrap();
    assert_eq!(used, Profile::load(&trace, &start.model).unwrap());
    // 7 prompt tokens (1 in the last layer) and 32 generated ones, 4 experts each.
    let sums: Vec<u64> = used.uses.iter().map(|u| u.iter().sum()).collect();
    assert_eq!(sums, [39 * 4, 39 * 4, 33 * 4]);

    for file in [&profile, &trace] {
        let config = RunConfig { warm_profile: Some(file.clone()), ..base.clone() };
        let (warm, records) = common::run(&config).unwrap();
        assert_eq!(warm.logits_sha256, cold.logits_sha256);
        // The most used ones, as far as the budget goes.
        let budget = records.load().cache_budget_bytes;
        let (mut expected, mut experts) = (0, 0);
        for (layer, _) in used.ranked() {
            let bytes = start.model.layers[layer].expert_bytes;
            if expected + bytes <= budget {
                expected += bytes;
                experts += 1;
            }
        }
        assert_eq!(records.load().preloaded_bytes, expected);
        assert!(records.load().preload_ns > 0);
        let read = |r: &&Record| matches!(r, Record::Read(r) if r.purpose == ReadPurpose::Warm);
        assert_eq!(records.0.iter().filter(read).count(), experts * 3);
        let cost = &records.prefill().cost;
        assert!(cost.hits > cold_prefill.hits && cost.misses < cold_prefill.misses);
        assert!(cost.expert_read_bytes < cold_prefill.expert_read_bytes);
        let demand = |r: &&Record| matches!(r, Record::Read(r) if r.purpose == ReadPurpose::Demand);
        let reads: u64 = records.tokens().iter().map(|t| t.cost.reads).sum();
        assert_eq!(records.0.iter().filter(demand).count() as u64, reads + cost.reads);
    }
}

#[test]
fn profiles_that_do_not_fit_are_refused() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let [profile, _] = profile(folder.path(), &model);
    let other = common::model(folder.path(), &common::tiny("gpt-oss"), "other", None);
    let (profile, model, other) =
        (profile.display().to_string(), model.display().to_string(), other.display().to_string());
    let refused = |arguments: &[&str], parts: &[&str]| {
        let output = engine(&[&["-p", "a", "-n", "1", "-t", "1"], arguments].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{text}");
        for part in parts {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    };
    refused(&["-m", &model, "--warm-profile", &profile], &["--warm-profile", "--cache-mb"]);
    refused(
        &["-m", &other, "--cache-mb", "64", "--warm-profile", &profile],
        &["used.json is of another model", "qwen3moe, not gpt-oss"],
    );
    refused(
        &["-m", &model, "--cache-mb", "64", "--warm-profile", "/nowhere/p.json"],
        &["cannot read the profile /nowhere/p.json"],
    );
    refused(
        &["-m", &model, "--cache-mb", "64", "--warm-profile", &model],
        &["m.gguf is neither a profile nor a binary trace"],
    );
}
