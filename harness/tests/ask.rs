//! `bmoe routes`, `bmoe predict` and `bmoe whatif` on a trace written by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// `route_trace v1`: two layers of 8 experts of 2 and 3 MiB, top-2; a prompt of two tokens and six more.
fn trace() -> String {
    let mut text = "# route_trace v1\n\
        # model=toy.gguf arch=toymoe n_layer=2 n_expert=8 n_expert_used=2\n\
        # layer=0 expert_bytes=2097152 dense_bytes=1\n\
        # layer=1 expert_bytes=3145728 dense_bytes=1\n\
        turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n"
        .to_owned();
    let mut push = |phase: u32, step: u32, layer: u32, experts: [u32; 2], misses: [bool; 2]| {
        for (slot, (expert, miss)) in experts.iter().zip(misses).enumerate() {
            let weight = [0.75, 0.25][slot];
            let (residency, bytes) =
                if miss { (0, [2_097_152, 3_145_728][layer as usize]) } else { (1, 0) };
            text +=
                &format!("0,{phase},{step},{layer},{slot},{expert},{weight},{residency},{bytes}\n");
        }
    };
    let new = [true, true];
    push(0, 0, 0, [0, 1], new);
    push(0, 1, 0, [2, 3], new);
    push(0, 0, 1, [4, 5], new);
    push(0, 1, 1, [5, 6], [false, true]);
    let old = [false, false];
    for (step, layers) in [
        ([[0, 1], [4, 5]], [old, old]),
        ([[0, 2], [4, 6]], [old, old]),
        ([[0, 1], [5, 4]], [old, old]),
        ([[7, 0], [1, 4]], [[true, false], [true, false]]),
        ([[0, 7], [4, 5]], [old, [false, true]]),
        ([[0, 1], [4, 5]], [[false, true], old]),
    ]
    .iter()
    .enumerate()
    {
        for layer in 0..2 {
            push(1, 2 + step as u32, layer, layers.0[layer as usize], layers.1[layer as usize]);
        }
    }
    text
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::write(place.at("toy.csv"), trace()).unwrap();
        let bare = "{\"tok\": 0, \"layers\": [[0, 1], [2, 3]]}\n{\"tok\": 1, \"layers\": [[0, 2], [2, 1]]}\n";
        fs::write(place.at("bare.jsonl"), bare).unwrap();
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn bmoe(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bmoe"));
        command.current_dir(self.0.path()).args(args).stdin(Stdio::null());
        command.output().unwrap()
    }

    /// Standard output of a command that does its work.
    fn shown(&self, args: &[&str]) -> String {
        let output = self.bmoe(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }
}

const VIEWS: [&str; 11] = [
    "matrix",
    "hot",
    "reuse",
    "overlap",
    "workset",
    "cache",
    "entropy",
    "bytes",
    "coactivation",
    "phases",
    "loops",
];

#[test]
fn help_is_what_people_read() {
    let place = Place::new();
    let help = ["routes", "predict", "whatif"]
        .map(|command| format!("$ bmoe {command} --help\n{}\n", place.shown(&[command, "--help"])));
    insta::assert_snapshot!(help.concat());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert!(root.join("../docs/routes.md").exists(), "--help names it");
}

#[test]
fn answers_on_the_terminal() {
    let place = Place::new();
    let mut all = String::new();
    for args in [
        &["routes", "matrix", "toy.csv", "--phase", "all"][..],
        &["routes", "matrix", "toy.csv", "--layer", "1", "--top", "3"],
        &["routes", "workset", "toy.csv", "--budget-mib", "15"],
        &["routes", "bytes", "bare.jsonl", "--expert-mib", "1"],
        &["predict", "toy.csv", "--experts", "2", "--compute-ms", "10", "--read-mib-s", "1000"],
        &["whatif", "toy.csv", "--budget-mib", "10", "--policy", "lfu"],
    ] {
        all += &format!("$ bmoe {}\n{}\n", args.join(" "), place.shown(args));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn answers_for_programs_and_pictures() {
    let place = Place::new();
    let commands = VIEWS.map(|view| vec!["routes", view, "toy.csv"]);
    for command in
        commands.into_iter().chain([vec!["predict", "toy.csv"], vec!["whatif", "toy.csv"]])
    {
        let with = |more: &[&'static str]| [command.as_slice(), more].concat();
        let csv = place.shown(&with(&["--csv"]));
        let columns = csv.lines().next().unwrap().split(',').count();
        assert!(columns > 2 && csv.lines().count() > 1, "{csv}");
        let json: serde_json::Value =
            serde_json::from_str(&place.shown(&with(&["--json"]))).unwrap();
        assert_eq!(json["trace"]["n_expert"], 8);
        assert!(json["answer"].is_object());
        place.shown(&with(&["--plot", "p.svg"]));
        place.shown(&with(&["--plot", "p.png", "--theme", "dark"]));
        assert!(fs::read_to_string(place.at("p.svg")).unwrap().starts_with("<svg"));
        assert!(fs::read(place.at("p.png")).unwrap().starts_with(b"\x89PNG"));
    }
}

#[test]
fn what_cannot_be_answered_is_said() {
    let place = Place::new();
    let mut all = String::new();
    for args in [
        &["routes", "nonsense", "toy.csv"][..],
        &["routes", "hot", "toy.csv", "--layer", "9"],
        &["routes", "hot", "bare.jsonl", "--phase", "prefill"],
        &["routes", "hot", "toy.csv", "--phase", "both"],
        &["routes", "hot", "toy.csv", "--budget-mib", "3"],
        &["routes", "hot", "toy.csv", "--plot", "p.pdf"],
        &["routes", "hot", "toy.csv", "--plot", "nowhere/p.png"],
        &["routes", "hot", "toy.csv", "--theme", "dark"],
        &["routes", "hot", "toy.csv", "--plot", "p.png", "--theme", "grey"],
        &["routes", "hot", "toy.csv", "--expert-mib", "3"],
        &["routes", "hot", "missing.csv"],
        &["routes", "cache", "bare.jsonl"],
        &["routes", "bytes", "bare.jsonl"],
        &["predict", "toy.csv", "--experts", "9"],
        &["predict", "bare.jsonl", "--budget-mib", "3"],
        &["predict", "bare.jsonl", "--compute-ms", "3", "--read-mib-s", "1000"],
        &["predict", "toy.csv", "--policy", "lru"],
        &["predict", "toy.csv", "--fit", "nowhere"],
        &["whatif", "bare.jsonl"],
    ] {
        let output = place.bmoe(args);
        let code = output.status.code().unwrap();
        assert!([1, 2, 3].contains(&code), "{args:?} ended with {code}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.stdout.is_empty(), "{args:?}");
        all += &format!("$ bmoe {}\n[{code}] {error}\n", args.join(" "));
    }
    insta::assert_snapshot!(all);
}
