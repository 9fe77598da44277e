//! A folder in which the program runs, with a script in the engine's place.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use bmoe_analysis::result_set::CellRecord;
use bmoe_trace::RunConfig;
use bmoe_trace::line::{ErrorLine, Line};
use rustix::process::{Pid, test_kill_process};

use super::{done_line, fake_engine, progress_line, whole_trace, write_trace};

pub(crate) const MATRIX: &str = r#"
name = "m"
timeout_s = 60
baseline = { mode = "mmap" }
[[model]]
name = "a"
path = "a.gguf"
[base]
prompt = "hello"
n_predict = 2
[axes]
mode = ["mmap", "stream"]
cache_mib = [0, 8, 16]
io_threads = [1]
# What else this machine does is no business of these tests.
[gate]
off = true
"#;

/// More than any test has attempts.
const TRACES: usize = 40;

/// A folder with a matrix, a model and an engine.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    /// `behaviour` is shell code; `$config`, `$trace` and `$here` are set, and `succeed` ends a run well.
    pub(crate) fn new(behaviour: &str) -> Self {
        // Beside the fake engine, which is linked to and not copied.
        let place = Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
        fs::write(place.at("m.toml"), MATRIX).unwrap();
        fs::write(place.at("a.gguf"), "GGUF, more or less").unwrap();
        for (name, tokens) in [("right", [1, 2]), ("wrong", [1, 3])] {
            // No two runs have the same id: the n-th run takes the n-th trace.
            for n in 1..=TRACES {
                let config = RunConfig { model: "a.gguf".into(), ..RunConfig::default() };
                let file = format!("{name}-{n}");
                let records = whole_trace(&file, config, &tokens);
                write_trace(&place.at(&format!("{file}.bin")), &records);
            }
            let lines = [progress_line(1, 2), done_line(&tokens)];
            let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
            fs::write(place.at(&format!("{name}.lines")), lines).unwrap();
        }
        let refusal = Line::Error(ErrorLine {
            id: serde_json::Value::Null,
            fatal: true,
            msg: "cache too small".to_owned(),
        });
        fs::write(place.at("refused.lines"), format!("{refusal}\n")).unwrap();
        place.behave(behaviour);
        fs::hard_link(fake_engine(), place.at("engine")).unwrap();
        place
    }

    pub(crate) fn behave(&self, behaviour: &str) {
        let script = format!(
            "config=$3 trace=$5 here=$(dirname \"$0\")\n\
             succeed() {{ n=$(ls \"$here/out/runs\" | wc -l); cat \"$here/${{1:-right}}-$n.bin\" >\"$trace\"; cat \"$here/${{1:-right}}.lines\"; exit 0; }}\n\
             {behaviour}\n"
        );
        fs::write(self.at("behaviour.sh"), script).unwrap();
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bmoe"));
        command.current_dir(self.0.path()).args(args).env_remove("BMOE_ENGINE");
        // Tests run side by side, each as if on a machine of its own.
        command.env("BMOE_HOME", self.at("home"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn bmoe(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    pub(crate) fn journal(&self) -> Vec<CellRecord> {
        let text = fs::read_to_string(self.at("out/cells.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

pub(crate) const RUN: [&str; 6] = ["run", "m.toml", "--out", "out", "--engine", "./engine"];

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until something is so; a test that waits for ever is ended by the bound.
pub(crate) fn until(what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !check() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn alive(pid: i32) -> bool {
    test_kill_process(Pid::from_raw(pid).unwrap()).is_ok()
}
