//! `bmoe compare` on result folders made by hand.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use bmoe_analysis::result_set::{CellRecord, Environment, Verdict};
use bmoe_trace::{Record, RunConfig};

/// A folder of one cell whose tokens take `ms`, a little more in every run.
fn folder(at: &Path, runs: u32, ms: u64) {
    fs::create_dir_all(at).unwrap();
    let environment = serde_json::to_string(&Environment::default()).unwrap();
    fs::write(at.join("environment.json"), environment).unwrap();
    let mut journal = String::new();
    for repetition in 0..runs {
        let run_id = format!("run-{ms}-{repetition}");
        let config = RunConfig { model: "a.gguf".into(), ..RunConfig::default() };
        let mut records = common::whole_trace(&run_id, config.clone(), &[1; 24]);
        for record in &mut records {
            if let Record::Token(token) = record {
                let noise = u64::from((token.step * 7 + repetition) % 5) * 20_000;
                token.cost.wall_ns = ms * 1_000_000 + noise + u64::from(repetition) * 50_000;
            }
        }
        let run = at.join("runs").join(&run_id);
        fs::create_dir_all(&run).unwrap();
        common::write_trace(&run.join("trace.bin"), &records);
        let record = CellRecord {
            id: "0123456789ab".into(),
            name: "stream, cache off".into(),
            model: "a".into(),
            repetition,
            attempt: 1,
            order: repetition,
            config,
            baseline: false,
            lossless: true,
            verdict: Verdict::Valid,
            reason: None,
            exit_code: Some(0),
            run_id: Some(run_id),
            started_unix_ms: 1_700_000_000_000,
            wall_s: 1.0,
            load_average: None,
            conditions: None,
        };
        journal += &format!("{}\n", serde_json::to_string(&record).unwrap());
    }
    fs::write(at.join("cells.jsonl"), journal).unwrap();
}

fn bmoe(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bmoe")).current_dir(dir).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_slowdown_beyond_the_bound_has_an_exit_code_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    folder(&dir.path().join("before"), 4, 10);
    folder(&dir.path().join("after"), 4, 12);
    let compare = |a: &str, b: &str| bmoe(dir.path(), &["compare", a, b, "--fail-above", "5%"]);

    let slower = compare("before", "after");
    assert_eq!(slower.status.code(), Some(6), "{}", text(&slower.stderr));
    assert!(text(&slower.stderr).contains("1 of 1 pairs: B is worse than A by more than 5 %"));
    insta::assert_snapshot!(text(&slower.stdout));
    assert_eq!(compare("after", "before").status.code(), Some(0));
    assert_eq!(compare("before", "before").status.code(), Some(0));
    let json = bmoe(dir.path(), &["compare", "before:0123", "after", "--json"]);
    assert_eq!(json.status.code(), Some(0));
    let object: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let comparison = &object["comparisons"][0];
    assert_eq!((&comparison["outcome"], &object["seed"]), (&"worse".into(), &1979.into()));
    assert!(comparison["high_pct"].as_f64().unwrap() < -15.0);
}

#[test]
fn what_can_not_be_judged_is_neither_passed_nor_failed() {
    let dir = tempfile::tempdir().unwrap();
    folder(&dir.path().join("before"), 2, 10);
    folder(&dir.path().join("after"), 4, 12);
    let bounded = bmoe(dir.path(), &["compare", "before", "after", "--fail-above", "5"]);
    assert_eq!(bounded.status.code(), Some(7));
    assert_eq!(
        text(&bounded.stderr).trim_end(),
        "error: 1 of 1 pairs could not be judged: each cell needs 4 valid runs (set `repetitions` in the \
         matrix)"
    );
    assert!(text(&bounded.stdout).contains("can't decide: 2 and 4 runs, 4 needed of each"));
    // Without a bound that is an answer like any other.
    assert_eq!(bmoe(dir.path(), &["compare", "before", "after"]).status.code(), Some(0));
}

#[test]
fn what_can_not_be_compared_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    folder(&dir.path().join("before"), 1, 10);
    let errors: Vec<String> = [
        &["compare", "before", "nowhere"][..],
        &["compare", "before:mmap", "before"],
        &["compare", "before:(", "before"],
        &["compare", "before", "--by", "cache_mib"],
        &["compare", "before", "--by", "cache"],
    ]
    .iter()
    .map(|args| {
        let output = bmoe(dir.path(), args);
        assert_eq!(output.status.code(), Some(3), "{args:?}");
        text(&output.stderr)
    })
    .collect();
    insta::assert_snapshot!(errors.join("\n"));
    assert_eq!(bmoe(dir.path(), &["compare", "before"]).status.code(), Some(2));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    folder(&dir.path().join("a"), 4, 10);
    folder(&dir.path().join("b"), 4, 11);
    // Nobody reads: the pipe is closed when the first byte is written.
    let script = format!(
        "{{ sleep 0.3; {} compare a b; echo \"ended with $?\" >&2; }} | true",
        env!("CARGO_BIN_EXE_bmoe")
    );
    let output = Command::new("sh").args(["-c", &script]).current_dir(dir.path()).output().unwrap();
    assert_eq!(text(&output.stderr), "ended with 0\n");
}
