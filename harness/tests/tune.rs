//! `bmoe tune` with the real engine, on a tiny model.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bmoe::matrix::Matrix;
use bmoe_analysis::journal::Journal;
use bmoe_analysis::measured::Measured;

/// The engine beside `bmoe`; `None` = only this package was built.
fn engine() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_bmoe")).with_file_name("bmoe-engine");
    path.exists().then_some(path).or_else(|| {
        eprintln!("SKIPPED: bmoe-engine is not built; `cargo test --workspace` builds it");
        None
    })
}

fn bmoe(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bmoe"));
    command.current_dir(dir).env("BMOE_HOME", dir.join("home")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_recipe_is_the_fastest_of_what_was_measured_and_an_interrupted_tune_goes_on() {
    if engine().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "tune",
        "--shape",
        "tiny-qwen3moe",
        "--time",
        "8s",
        "--memory-mib",
        "304",
        "--tokens",
        "16",
        "--lossy",
        "--out",
        "out",
    ];
    let dry = bmoe(dir.path(), &[&args[..], &["--dry-run"]].concat());
    assert!(dry.status.success() && !dir.path().join("out").exists(), "{}", text(&dry.stderr));
    let tuned = bmoe(dir.path(), &args);
    assert_eq!(tuned.status.code(), Some(0), "{}", text(&tuned.stderr));
    let out = dir.path().join("out");
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    for section in [
        "## Why",
        "## What more cache would buy",
        "## Fewer experts per token (lossy)",
        "## Measured",
    ] {
        assert!(report.contains(section), "{section}\n{report}");
    }
    assert!(text(&tuned.stdout).contains(&report));

    // The recipe is the fastest valid cell of the race.
    let measured = Measured::read(&out.join("race")).unwrap();
    let cells = measured.cells();
    let rate = |cell: &bmoe_analysis::cells::Cell<'_>| {
        let figures = bmoe_analysis::cells::Figures::pooled(&measured.valid_runs(cell));
        figures.and_then(|f| f.rates).map_or(0.0, |rates| rates.mean)
    };
    let best = cells.iter().max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap();
    assert!(
        report.contains(&format!("Fastest: **{}**, {:.2} tok/s", best.name, rate(best))),
        "{report}"
    );
    // The model and what the engine needs don't fit into so little: no memory map is in the race.
    assert!(cells.iter().all(|cell| cell.config.mode == bmoe_trace::Mode::Stream));
    let (recipe, _) = Matrix::load(&out.join("recipe.toml")).unwrap();
    let cells = recipe.schedule().unwrap().cells;
    assert_eq!((cells.len(), cells[0].id.as_str()), (1, best.id));
    let run = bmoe(dir.path(), &["run", "out/recipe.toml", "--out", "again"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));

    // What an interruption loses is only what was not done: the end of the last round is forgotten here.
    let attempts = || Journal::read(&out.join("race")).unwrap().records.len();
    let before = attempts();
    let log = fs::read_to_string(out.join("tune.jsonl")).unwrap();
    let cut = log.rfind("{\"event\":\"round_done\"").unwrap();
    fs::write(out.join("tune.jsonl"), format!("{}{{\"event\":\"rou", &log[..cut])).unwrap();
    let resumed = bmoe(dir.path(), &["tune", "--resume", "out"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", text(&resumed.stderr));
    let log = fs::read_to_string(out.join("tune.jsonl")).unwrap();
    let rounds = log.matches("{\"event\":\"round\"").count();
    assert!(attempts() >= before, "{before}");
    assert!(log.matches("round_done").count() == rounds, "{log}");
    // No run was made twice.
    let records = Journal::read(&out.join("race")).unwrap().records;
    assert!(records.iter().all(|record| record.attempt == 1), "{records:?}");
}

#[test]
fn what_cannot_be_tuned_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let cases = [
        (&["tune"][..], 2, "--model <FILE>|--shape"),
        (
            &["tune", "--model", "none.gguf"],
            3,
            "--model none.gguf: there is no such file; give a GGUF file",
        ),
        (&["tune", "--resume", "none"], 3, "cannot go on in none: none/tune.json cannot be read"),
        (&["tune", "--shape", "tiny-qwen3moe", "--time", "soon"], 2, "invalid value 'soon'"),
    ];
    for (args, code, expected) in cases {
        let output = bmoe(dir.path(), args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(code == 2 || said.contains(expected), "{said}");
    }
    if engine().is_some() {
        fs::write(dir.path().join("none.gguf"), "no model").unwrap();
        let output = bmoe(dir.path(), &["tune", "--model", "none.gguf", "--out", "out"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("no run of the probe is valid: failed")
                && said.contains("is not a GGUF file"),
            "{said}"
        );
    }
}
