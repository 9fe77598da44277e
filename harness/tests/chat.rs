//! `bmoe chat`, with a script in the engine's place.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use bmoe_trace::line::{Done, ErrorLine, Line, Progress, Ready};
use common::session;

fn progress(reasoning: &str, text: &str) -> Line {
    Line::Progress(Progress {
        step: 1,
        steps: 9,
        wall_ms: 1.0,
        io_wait_ms: -1.0,
        io_ms: -1.0,
        compute_ms: 1.0,
        mgmt_ms: -1.0,
        stall_ms: 0.0,
        read_mb: -1.0,
        cache_hit_pct: -1.0,
        majflt: 0,
        cpu_ms: 1.0,
        dense_resident_frac: -1.0,
        delta_reasoning: reasoning.to_owned(),
        delta_text: text.to_owned(),
        reset: 0,
        lane_busy_ms: -1.0,
        other_ms: 0.0,
    })
}

fn done(finish: &str) -> Line {
    Line::Done(Box::new(Done {
        finish: finish.to_owned(),
        cancelled: finish == "cancelled",
        tokens: 7,
        tok_s: 3.5,
        n_prompt: 12,
        n_reused: 30,
        n_past: 49,
        cache_hit_pct: 81.25,
        cache_resident_mib: 90.0,
        cache_budget_mib: 100.0,
        ..Done::default()
    }))
}

fn error(fatal: bool, msg: &str) -> Line {
    Line::Error(ErrorLine { id: serde_json::Value::Null, fatal, msg: msg.to_owned() })
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let ready = Ready {
            load_s: 1.5,
            arch: "qwen3moe".to_owned(),
            n_ctx: 4096,
            n_expert_used: 8,
            think_ctl: "none".to_owned(),
        };
        let files = vec![
            ("ready", vec![Line::Ready(ready)]),
            ("first", vec![progress("", "Well, "), progress("", "hello.")]),
            ("thoughts", vec![progress("hm", ""), progress("", "Yes.")]),
            ("done", vec![done("stop")]),
            ("cancelled", vec![done("cancelled")]),
            ("rejected", vec![error(false, "the prompt is too long")]),
            ("broken", vec![error(true, "a read failed")]),
            ("refused", vec![error(true, "none.gguf is no model")]),
        ];
        session::write(place.0.path(), files);
        place
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).unwrap()
    }

    fn start(&self, arguments: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_bmoe"))
            .args(["chat", "--engine"])
            .arg(self.0.path().join("engine"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Types some lines; returns the exit code, standard output and standard error.
    fn chat(&self, arguments: &[&str], typed: &str) -> (Option<i32>, String, String) {
        let mut child = self.start(arguments);
        let _ = child.stdin.take().unwrap().write_all(typed.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

#[test]
fn messages_are_answered_and_commands_followed() {
    let place = Place::new();
    let typed = "Hello\n\n/stats\n/clear\n/think on\n/tokens 30\nthink \"hard\"\n/dance\nreject \
                 this\n/quit\nnever asked\n";
    let options = ["m.gguf", "-n", "20", "--think", "off", "--", "--cache-mb", "100"];
    let (code, out, err) = place.chat(&options, typed);
    // One question got no answer, and nobody is there to have read that.
    assert_eq!(code, Some(1), "{err}");
    assert_eq!(out, "Well, hello.\n[thinking] hm\n\nYes.\n");
    insta::assert_snapshot!(err);
    let arguments = place.read("arguments");
    assert_eq!(arguments, "session --ctx 4096 --model m.gguf --n-predict 1 --cache-mb 100\n");
    let asked = place.read("asked");
    let asked: Vec<&str> = asked.lines().collect();
    assert_eq!(
        asked[0],
        r#"{"cmd":"generate","id":1,"prompt":"Hello","n_predict":20,"think":false,"clear_kv":false}"#
    );
    assert!(
        asked[1].contains(r#""prompt":"think \"hard\"""#)
            && asked[1].contains(r#""n_predict":30,"think":true,"clear_kv":true"#)
    );
    assert!(asked[2].contains("reject this") && asked[2].contains(r#""clear_kv":false"#));
    assert_eq!(asked[3..], [r#"{"cmd":"close"}"#]);
}

#[test]
fn thoughts_can_be_left_out_and_the_end_of_input_ends_it() {
    let place = Place::new();
    let (code, out, err) = place.chat(&["cold.gguf", "--no-think-text"], "think");
    assert_eq!((code, out.as_str()), (Some(0), "Yes.\n"));
    assert_eq!(err, "warning: it is cold\n");
    assert!(place.read("asked").ends_with("{\"cmd\":\"close\"}\n"));
}

#[test]
fn an_engine_that_refuses_or_fails_is_quoted() {
    let place = Place::new();
    let (code, _, err) = place.chat(&["none.gguf"], "Hello\n");
    assert_eq!((code, err.as_str()), (Some(3), "error: none.gguf is no model\n"));
    let (code, out, err) = place.chat(&["m.gguf"], "Hello\nbreak\nHello\n");
    assert_eq!((code, out.as_str()), (Some(1), "Well, hello.\n"));
    assert!(err.ends_with("error: a read failed\n"), "{err}");
}

#[test]
fn ctrl_c_ends_an_answer_and_then_the_chat() {
    let place = Place::new();
    let mut child = place.start(&["m.gguf"]);
    let interrupt = |child: &Child| {
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    };
    let mut typed = child.stdin.take().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut begin = [0; 12];
    writeln!(typed, "long").unwrap();
    out.read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"Well, hello.");
    interrupt(&child);
    let mut rest = String::new();
    out.read_line(&mut rest).unwrap();
    assert_eq!(rest, "\n");
    writeln!(typed, "Hello").unwrap();
    out.read_line(&mut rest).unwrap();
    assert_eq!(rest, "\nWell, hello.\n");
    // Nobody answers: the first one waits for the end that was asked for, the second doesn't.
    let mut messages = BufReader::new(child.stderr.take().unwrap()).lines();
    interrupt(&child);
    assert!(messages.any(|line| line.unwrap().contains("again leaves")));
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // Who left knows it.
    assert_eq!(messages.map(Result::unwrap).collect::<Vec<_>>(), Vec::<String>::new());
    assert!(place.read("asked").contains("{\"cmd\":\"cancel\"}\n"));
}
