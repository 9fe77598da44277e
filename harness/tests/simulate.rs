//! `bmoe simulate`: what people read, and that it counts what the engine measures.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bmoe_analysis::data::{Run, read_trace};
use bmoe_cache::PolicyKind;
use bmoe_synth::{Shape, WriteOptions, write_model};
use bmoe_trace::record::{Phase, Record, RouteRecord};
use bmoe_trace::{CacheBudget, RunConfig};
use serde_json::Value;

const TOY: &str = include_str!("../../analysis/tests/conformance/toy.txt");

fn simulate(trace: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bmoe"));
    command.arg("simulate").arg(trace).args(args).output().unwrap()
}

fn text(trace: &Path, args: &[&str]) -> String {
    let output = simulate(trace, args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The worked example as the engine would have recorded it, experts of 1 and 2 MiB.
fn toy(folder: &Path) -> PathBuf {
    let Record::Start(mut start) = common::start("toy", RunConfig::default()) else { panic!() };
    start.model.arch = "toy".to_owned();
    start.model.layers = [(0, 1 << 20), (1, 2 << 20)]
        .map(|(layer, expert_bytes)| bmoe_trace::record::LayerShape { layer, expert_bytes })
        .to_vec();
    let mut records = vec![Record::Start(start)];
    let mut position = 0;
    for (number, line) in TOY.lines().filter_map(|l| l.strip_prefix("event")).enumerate() {
        let mut words = line.split('#').next().unwrap().split_whitespace();
        let phase = if words.next() == Some("prefill") { Phase::Prefill } else { Phase::Decode };
        let layer = u32::from(words.next() == Some("B"));
        let experts: Vec<u16> = words.map(|word| word.parse().unwrap()).collect();
        let positions: Vec<u32> = (position..).take(experts.len() / 2).collect();
        position += if layer == 1 { positions.len() as u32 } else { 0 };
        records.push(Record::Route(RouteRecord {
            turn: 0,
            ubatch: number as u32 / 2,
            phase,
            layer,
            top_k: 2,
            weights: vec![0.5; experts.len()],
            positions,
            experts,
            distinct: Vec::new(),
            residency: Vec::new(),
            read_bytes: Vec::new(),
            scored: Vec::new(),
            scores: Vec::new(),
        }));
    }
    let path = folder.join("toy.trace");
    common::write_trace(&path, &records);
    path
}

#[test]
fn the_tables_are_what_people_read() {
    let folder = tempfile::tempdir().unwrap();
    let toy = toy(folder.path());
    insta::assert_snapshot!("policies", text(&toy, &["--budgets-mib", "2,8"]));
    let device = ["--compute-ms", "10", "--read-mib-s", "200", "--overlap", "0.5"];
    let two = ["--policies", "lru,belady", "--slots-per-layer", "2,3", "--decode-only"];
    insta::assert_snapshot!("slots", text(&toy, &[two.as_slice(), &device].concat()));
    let curve = ["--curve", "--target-hit", "62.5", "--target-hit", "100"];
    insta::assert_snapshot!("curve", text(&toy, &curve));
    let target = ["--target-hit", "62.5", "--decode-only"];
    insta::assert_snapshot!("target", text(&toy, &target));
}

#[test]
fn csv_has_the_columns_that_others_read() {
    let folder = tempfile::tempdir().unwrap();
    let toy = toy(folder.path());
    let args = ["--policies", "layer-lru,belady", "--budgets-mib", "6,8", "--csv", "--published"];
    assert_eq!(
        text(&toy, &args),
        "policy,budget_mib,hit_pct_decode,hit_pct_total,read_mib,mib_per_token,hits,misses,evictions,\
         tok_s_est\n\
         layer-lru,6,87.500,50.000,11.0,1.00,7,7,2,\n\
         belady,6,50.000,28.571,14.0,2.50,4,10,6,\n\
         layer-lru,8,87.500,50.000,11.0,1.00,7,7,2,\n\
         belady,8,87.500,50.000,10.0,0.50,7,7,2,\n"
    );
    let args = ["--policies", "lru", "--slots-per-layer", "2", "--csv"];
    assert!(
        text(&toy, &args)
            .starts_with("policy,slots_per_layer,hit_pct_decode,hit_pct_total,read_mib")
    );
    let curve = text(&toy, &["--curve", "--csv"]);
    let rows: Vec<&str> = curve.lines().skip(1).collect();
    assert_eq!(rows[0], "lru,0,0.000,0.000,21.0,6.00,0,14,,");
    assert_eq!(rows.last(), Some(&"lru,9,100.000,57.143,9.0,0.00,8,6,,"));
}

#[test]
fn csv_has_the_budget_for_each_hit_rate() {
    let dir = tempfile::tempdir().unwrap();
    let toy = toy(dir.path());
    let csv = text(&toy, &["--target-hit", "62.5", "--csv"]);
    let rows: Vec<&str> = csv.lines().collect();
    assert!(rows[0].starts_with("policy,budget_mib,hit_pct_decode,"), "{csv}");
    assert_eq!(rows.len(), 2, "{csv}");
    assert!(rows[1].starts_with("lru,8,62.500,"), "{csv}");
    let with_policies =
        text(&toy, &["--target-hit", "62.5", "--policies", "lfu", "--budgets-mib", "6", "--csv"]);
    assert!(
        with_policies.contains("\nlru,8,") && with_policies.contains("\nlfu,6,"),
        "{with_policies}"
    );
}

#[test]
fn json_holds_everything() {
    let folder = tempfile::tempdir().unwrap();
    let toy = toy(folder.path());
    let args = ["--policies", "lru", "--budgets-mib", "8", "--curve", "--target-hit", "62.5"];
    let device = ["--compute-ms", "10", "--read-mib-s", "100", "--overlap", "0", "--json"];
    let all: Value = serde_json::from_str(&text(&toy, &[&args[..], &device].concat())).unwrap();
    assert_eq!(all["trace"]["token_mib"], 6.0);
    assert_eq!(all["rules"]["overshoot"], "never");
    let lru = &all["results"][0];
    assert_eq!((&lru["decode_hits"], &lru["read_bytes"]), (&5.into(), &(13_u64 << 20).into()));
    // Tokens of 1 and 3 MiB: 2 over 2 x 10 ms + 40 ms.
    assert!((lru["tok_s_est"].as_f64().unwrap() - 2.0 / 0.06).abs() < 1e-9, "{lru}");
    assert_eq!(all["curve"]["targets"][0]["budget_mib"], 8.0);
    assert_eq!(all["curve"]["steps"].as_array().unwrap().len(), 5);
}

#[test]
fn pictures_show_policies_or_the_curve() {
    let folder = tempfile::tempdir().unwrap();
    let toy = toy(folder.path());
    let path = folder.path().join("p.svg");
    let drawn = |args: &[&str]| {
        text(&toy, &[args, &["--plot", path.to_str().unwrap()]].concat());
        std::fs::read_to_string(&path).unwrap()
    };
    let policies = drawn(&["--policies", "belady,lfu", "--budgets-mib", "6,8"]);
    assert!(policies.contains("\nlfu\n") && policies.contains("\nbudget, MiB (logarithmic)\n"));
    assert!(policies.contains("prefers-color-scheme: dark"));
    let slots = drawn(&["--policies", "lru", "--slots-per-layer", "2,3", "--theme", "dark"]);
    assert!(slots.contains("\nslots per layer (logarithmic)\n") && !slots.contains("<style>"));
    for args in [&["--curve"][..], &["--target-hit", "50"]] {
        let curve = drawn(args);
        assert!(curve.contains("\nlru, exact\n") && curve.contains("\nbelady\n"), "{args:?}");
    }
    let both = drawn(&["--target-hit", "50", "--policies", "lfu", "--budgets-mib", "6"]);
    assert!(both.contains("\nlfu\n"));
}

#[test]
fn what_cannot_be_asked_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let toy = toy(folder.path());
    let refusal = |trace: &Path, args: &[&str]| {
        let output = simulate(trace, args);
        let error = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), error)
    };
    let (code, error) = refusal(&toy, &["--policies", "clock"]);
    assert!(code == 2 && error.contains("unknown policy 'clock'"), "{error}");
    let (code, error) = refusal(&toy, &["--expert-mib", "3"]);
    assert!(code == 3 && error.contains("leave the option away"), "{error}");
    let (code, error) = refusal(&toy, &["--curve", "--slots-per-layer", "8"]);
    assert!(code == 2 && error.contains("cannot be used with"), "{error}");
    let (code, error) = refusal(&toy, &["--fit", "nowhere"]);
    assert!(code == 3 && error.contains("nowhere"), "{error}");
    let (code, error) = refusal(&folder.path().join("none.trace"), &[]);
    assert!(code != 0 && error.contains("none.trace"), "{error}");
}

/// The engine's binary, if it was built with the harness.
fn engine() -> Option<PathBuf> {
    let engine = Path::new(env!("CARGO_BIN_EXE_bmoe")).with_file_name("bmoe-engine");
    if !engine.is_file() {
        eprintln!("skipped: {} was not built", engine.display());
        return None;
    }
    Some(engine)
}

/// Runs the engine once and reads its trace.
fn run(engine: &Path, config: &RunConfig, trace: &Path) -> Run {
    let file = trace.with_extension("toml");
    std::fs::write(&file, toml::to_string(config).unwrap()).unwrap();
    let output = Command::new(engine)
        .args(["generate", "--config"])
        .arg(&file)
        .arg("--trace")
        .arg(trace)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    read_trace(trace).unwrap()
}

/// What the engine measured with each policy and budget is what the simulator counts on the trace of any one of these
/// runs: the routes do not depend on the cache.
#[test]
fn simulated_equals_measured() {
    let Some(engine) = engine() else { return };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let model = folder.path().join("m.gguf");
    let shape = Shape::builtin("tiny-qwen3moe").unwrap();
    let options = WriteOptions { seed: 1, ..WriteOptions::new(model.clone()) };
    write_model(&shape, &options, &mut |_| {}).unwrap();
    let trace = folder.path().join("run.trace");
    let mut compared = 0;
    for policy in PolicyKind::ALL {
        for (cache_mib, ubatch_tokens) in [(0, 64), (1, 64), (2, 8), (64, 64)] {
            let config = RunConfig {
                model: model.clone(),
                prompt: (0..70_usize).map(|i| char::from(b"%&()*+/<=>@"[i * i % 11])).collect(),
                n_predict: 16,
                threads: 1,
                ctx_tokens: 256,
                ubatch_tokens,
                cache_mib: CacheBudget::Mib(cache_mib),
                cache_policy: policy.to_string(),
                force_cache: true,
                ..RunConfig::default()
            };
            let measured = run(&engine, &config, &trace);
            let mib = cache_mib.to_string();
            let args = ["--policies", policy.name(), "--budgets-mib", &mib, "--json"];
            let all: Value = serde_json::from_str(&text(&trace, &args)).unwrap();
            let simulated = &all["results"][0];
            let prefill = &measured.prefill.as_ref().unwrap().cost;
            let sum = |of: fn(&bmoe_analysis::data::TokenRow) -> Option<u64>| -> u64 {
                measured.tables.tokens.iter().map(|token| of(token).unwrap()).sum()
            };
            let decode = (sum(|t| t.hits), sum(|t| t.misses));
            let what = format!("{policy}, {cache_mib} MiB, micro-batches of {ubatch_tokens}");
            let number = |key: &str| simulated[key].as_u64().unwrap();
            assert_eq!((number("decode_hits"), number("decode_misses")), decode, "{what}");
            assert_eq!(number("hits"), prefill.hits + decode.0, "{what}");
            assert_eq!(number("misses"), prefill.misses + decode.1, "{what}");
            let bytes = prefill.expert_read_bytes + sum(|t| t.expert_read_bytes);
            assert_eq!(number("read_bytes"), bytes, "{what}");
            compared += decode.0;
        }
    }
    assert!(compared > 0, "no budget had a hit");
}
