//! Signals, pipes and disks around the program.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use bmoe_trace::codec::Tail;
use bmoe_trace::line::Line;
use bmoe_trace::record::{Outcome, Record, RunEnd};
use rustix::process::{Pid, Signal, kill_process};

use super::{common, read_trace, within_limit};

/// The program on a model, with 1 thread and lines; `more` are its other arguments.
pub(super) fn engine(model: &Path, more: &[&str]) -> Command {
    plain(model, &[&["--progress"], more].concat())
}

/// The same, with text in the place of the lines.
fn plain(model: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bmoe-engine"));
    command.args(["generate", "-t", "1", "--force-cache", "-m"]).arg(model).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code (`None`: killed) and standard error.
pub(super) fn end_of(mut child: Child) -> (Option<i32>, String) {
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    (child.wait().unwrap().code(), errors)
}

fn last_of(records: &[Record]) -> &RunEnd {
    let Some(Record::End(end)) = records.last() else { panic!("{:?}", records.last()) };
    end
}

fn model(folder: &Path) -> std::path::PathBuf {
    common::model(folder, &common::tiny("qwen3moe"), "m", None)
}

/// Sends a signal when a line with a tag comes; checks what is left behind.
fn interrupted(tag: &'static str, prompt_tokens: usize, n_predict: &'static str) {
    let _place = common::place(1);
    let folder = common::folder();
    let model = model(folder.path());
    let prompt = common::prompt(prompt_tokens);
    for (signal, name, code) in [(Signal::TERM, "SIGTERM", 143), (Signal::INT, "SIGINT", 130)] {
        for (overlap, io_engine) in [("on", "pread"), ("off", "pread"), ("on", "uring")] {
            let trace = folder.path().join("run.trace");
            let more = [
                ["-p", &prompt],
                ["-n", n_predict],
                ["--ctx", "4096"],
                ["--ubatch", "64"],
                ["--overlap", overlap],
                ["--io-engine", io_engine],
                ["--trace", trace.to_str().unwrap()],
            ];
            let mut child = engine(&model, more.as_flattened()).spawn().unwrap();
            let (got, errors) = within_limit(tag, move || {
                let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
                assert!(lines.any(|line| line.unwrap().starts_with(tag)));
                kill_process(Pid::from_child(&child), signal).unwrap();
                lines.for_each(drop);
                end_of(child)
            });
            assert_eq!(got, Some(code), "{errors}");
            assert!(errors.contains(&format!("error: interrupted by {name}")), "{errors}");
            let (records, tail) = read_trace(&trace);
            assert_eq!(tail, Tail::Whole);
            let end = last_of(&records);
            assert_eq!(end.outcome, Outcome::Interrupted { signal: name.into() });
            assert!(records.iter().any(|r| matches!(r, Record::Load(_))));
            let in_prefill = !records.iter().any(|r| matches!(r, Record::Prefill(_)));
            assert_eq!(in_prefill, tag == "BMOE_READY");
            assert_eq!(end.tokens == 0, in_prefill);
        }
    }
}

#[test]
fn a_signal_in_prefill_ends_the_run_and_the_trace_says_so() {
    interrupted("BMOE_READY", 4000, "1");
}

#[test]
fn a_signal_in_decode_ends_the_run_and_the_trace_says_so() {
    interrupted("BMOE_PROGRESS", 1, "4000");
}

#[test]
fn a_closed_output_ends_the_run() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = model(folder.path());
    for (overlap, as_lines) in [("on", true), ("off", true), ("on", false)] {
        let trace = folder.path().join("run.trace");
        let more = ["-p", "a", "-n", "2000", "--overlap", overlap, "--trace"];
        let mut command = if as_lines { engine(&model, &more) } else { plain(&model, &more) };
        let mut child = command.arg(&trace).spawn().unwrap();
        let (code, errors) = within_limit("a closed output", move || {
            let mut output = BufReader::new(child.stdout.take().unwrap());
            if as_lines {
                let mut lines = output.lines();
                assert!(lines.any(|line| line.unwrap().starts_with("BMOE_PROGRESS")));
            } else {
                // Text of more than one token: the first one is done then.
                output.read_exact(&mut [0; 64]).unwrap();
                drop(output);
            }
            end_of(child)
        });
        assert_eq!(code, Some(4), "{errors}");
        assert!(errors.contains("standard output") && errors.contains("Broken pipe"), "{errors}");
        let (records, _) = read_trace(&trace);
        assert!(records.iter().any(|r| matches!(r, Record::Token(_))));
        if let Some(Record::End(end)) = records.last() {
            assert!(matches!(end.outcome, Outcome::Failed { .. }), "{:?}", end.outcome);
            assert!(end.tokens < 2000);
        }
    }
}

#[test]
fn a_full_disk_under_an_output_ends_the_run() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = model(folder.path());
    for option in ["--trace", "--csv", "--route-trace"] {
        let more = ["-p", "a", "-n", "8", option, "/dev/full"];
        let mut child = engine(&model, &more).spawn().unwrap();
        let (code, errors) = within_limit(option, move || {
            std::io::copy(&mut child.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
            end_of(child)
        });
        assert_eq!(code, Some(4), "{option}: {errors}");
        for part in ["/dev/full", "No space left"] {
            assert!(errors.contains(part), "{option}: {errors}");
        }
    }
}

/// Two engines read one file at the same time.
#[test]
fn two_engines_on_one_model_give_the_same_text() {
    // Two cores' worth of programs.
    let _place = common::place(2);
    let folder = common::folder();
    let model = model(folder.path());
    let config = common::config(&model, bmoe_trace::Mode::Resident);
    let (resident, _) = common::run(&config).unwrap();
    let more = ["-p", &config.prompt, "-n", "32", "--ctx", "256", "--cache-mb", "2"];
    let children: Vec<Child> = (0..2).map(|_| engine(&model, &more).spawn().unwrap()).collect();
    for mut child in children {
        let (text, code, errors) = within_limit("two engines", move || {
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let text = lines
                .filter_map(|line| match Line::parse(&line.unwrap()) {
                    Some(Line::Done(done)) => Some(done.text),
                    _ => None,
                })
                .last();
            let (code, errors) = end_of(child);
            (text, code, errors)
        });
        assert_eq!(code, Some(0), "{errors}");
        assert_eq!(text.as_deref(), Some(resident.text.as_str()));
    }
}

/// A session whose disk fails ends, though its input stays open.
#[test]
fn a_read_error_between_turns_ends_the_session() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = model(folder.path());
    let mut child = Command::new(env!("CARGO_BIN_EXE_bmoe-engine"))
        .args(["session", "-t", "1", "--ctx", "256", "-m"])
        .arg(&model)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (error, code, errors) = within_limit("a session", move || {
        let mut input = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut ask = |id: u32| {
            writeln!(input, r#"{{"cmd":"generate","id":{id},"prompt":"a","n_predict":4}}"#)
                .unwrap();
        };
        ask(1);
        assert!(lines.any(|line| line.unwrap().starts_with("BMOE_DONE")));
        std::fs::File::options().write(true).open(&model).unwrap().set_len(1 << 20).unwrap();
        ask(2);
        let error = lines.find_map(|line| match Line::parse(&line.unwrap()) {
            Some(Line::Error(error)) => Some(error),
            _ => None,
        });
        let (code, errors) = end_of(child);
        (error.unwrap(), code, errors)
    });
    assert_eq!(code, Some(4), "{errors}");
    assert!(error.fatal, "{error:?}");
    for part in ["m.gguf", "offset", "bytes early"] {
        assert!(error.msg.contains(part), "{error:?}");
    }
}

/// A map whose file is cut off has nothing to go on with, but says so.
#[test]
fn mapped_weights_that_are_cut_off_end_the_run_with_a_message() {
    for dense in ["mmap", "warm"] {
        let (code, errors) = within_limit("a cut-off map", move || {
            let folder = common::folder();
            let model = model(folder.path());
            let more = ["-p", "Hello", "-n", "1500", "--cache-mb", "64", "--dense-weights", dense];
            let mut child = engine(&model, &more).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert!(lines.any(|line| line.unwrap().starts_with("BMOE_PROGRESS")));
            std::fs::File::options().write(true).open(&model).unwrap().set_len(4096).unwrap();
            lines.for_each(drop);
            end_of(child)
        });
        assert_eq!(code, Some(4), "{dense}: {errors}");
        assert!(errors.contains("cut off") || errors.contains("reading"), "{dense}: {errors}");
    }
}
