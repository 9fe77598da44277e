//! The session as a program: requests as lines, answers as lines.

mod common;

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bmoe_trace::codec::{Tail, TraceReader};
use bmoe_trace::line::{Done, ErrorLine, Line, Ready};
use bmoe_trace::record::{Outcome, Record};

/// A running session.
struct Engine {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Engine {
    fn start(model: &Path, more: &[&str]) -> (Self, Ready) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bmoe-engine"))
            .args(["session", "-t", "1", "--ctx", "1024", "--cache-mb", "8", "--force-cache", "-m"])
            .arg(model)
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut engine = Self { child, input, lines: BufReader::new(output).lines() };
        let Line::Ready(ready) = engine.line() else { panic!("the first line says READY") };
        (engine, ready)
    }

    fn send(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn line(&mut self) -> Line {
        let line = self.lines.next().expect("another line").unwrap();
        Line::parse(&line).unwrap_or_else(|| panic!("{line}"))
    }

    /// Lines up to the first one that `wanted` takes.
    fn until<T>(&mut self, wanted: impl Fn(&Line) -> Option<T>) -> T {
        loop {
            if let Some(found) = wanted(&self.line()) {
                return found;
            }
        }
    }

    fn done(&mut self) -> Done {
        self.until(|line| if let Line::Done(done) = line { Some((**done).clone()) } else { None })
    }

    fn error(&mut self) -> ErrorLine {
        match self.line() {
            Line::Error(error) => error,
            other => panic!("{other}"),
        }
    }

    /// Lets it end; there must be nothing more to say.
    fn end(mut self) -> Option<i32> {
        self.input.take();
        let rest: Vec<String> = self.lines.map(Result::unwrap).collect();
        assert!(rest.is_empty(), "{rest:?}");
        self.child.wait().unwrap().code()
    }
}

fn progress(line: &Line) -> Option<u32> {
    if let Line::Progress(progress) = line { Some(progress.step) } else { None }
}

fn outcome(trace: &Path) -> Option<Outcome> {
    let mut reader = TraceReader::new(BufReader::new(std::fs::File::open(trace).unwrap())).unwrap();
    let mut outcome = None;
    while let Some(record) = reader.read().unwrap() {
        outcome = if let Record::End(end) = record { Some(end.outcome) } else { None };
    }
    assert_eq!(reader.tail(), Some(Tail::Whole));
    outcome
}

#[test]
fn requests_are_answered_in_the_published_words() {
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    common::set_template(&model, common::THINKING);
    let trace = folder.path().join("session.trace");
    let (mut engine, ready) = Engine::start(&model, &["--trace", trace.to_str().unwrap()]);
    assert_eq!((ready.arch.as_str(), ready.n_ctx), ("qwen3moe", 1024));
    assert_eq!(ready.think_ctl, "template");

    engine.send(
        r#"{"cmd":"generate","id":7,"prompt":"Hello","n_predict":6,"think":false,"clear_kv":true}"#,
    );
    let Line::Begin(begin) = engine.line() else { panic!("BEGIN comes first") };
    assert_eq!(begin.id, 7);
    let mut text = String::new();
    let (mut steps, mut loads) = (0, 0);
    let first = loop {
        match engine.line() {
            Line::Prefill(prefill) => assert!(prefill.n_prompt > 5),
            Line::Load(load) => {
                assert!(load.mb > 0.0 && load.ms >= 0.0);
                loads += 1;
            }
            Line::Progress(progress) => {
                steps += 1;
                assert_eq!((progress.step, progress.steps, progress.reset), (steps, 6, 0));
                assert!(progress.read_mb == 0.0 || loads > 0);
                text += &progress.delta_text;
                loads = 0;
            }
            Line::Done(done) => break done,
            other => panic!("{other}"),
        }
    };
    assert_eq!((first.id.clone(), first.tokens, first.cancelled), (7.into(), 6, false));
    assert_eq!((first.text.as_str(), first.finish.as_str()), (text.as_str(), "length"));
    assert_eq!((first.prefix.as_str(), first.n_past), ("new", first.n_prompt + 6));

    // Continued; the name may be any text, and nothing but the prompt is needed.
    engine.send(r#"{"cmd":"generate","id":"seven","prompt":"And?","n_predict":3}"#);
    let second = engine.done();
    assert_eq!((second.id.clone(), second.tokens), ("seven".into(), 3));
    assert_eq!((second.prefix.as_str(), second.n_reused > 0), ("kept", true));
    assert_eq!(second.n_past, second.n_reused + second.n_prompt + 3);

    // Rejected ones, and the conversation goes on.
    for (line, id, parts) in [
        (r#"{"cmd":"generate","id":8,"prompt":""}"#, Some(8), ["prompt is empty", ""]),
        (r#"{"cmd":"generate","id":9}"#, Some(9), ["missing field", "prompt"]),
        (r#"{"cmd":"sing","id":10}"#, Some(10), ["sing", "\"cancel\""]),
        ("generate", None, ["no command", "\"close\""]),
    ] {
        engine.send(line);
        let error = engine.error();
        assert!(!error.fatal, "{error:?}");
        assert_eq!(error.id, id.map_or(serde_json::Value::Null, Into::into), "{error:?}");
        assert!(parts.iter().all(|part| error.msg.contains(part)), "{error:?}");
    }
    let long = common::prompt(1100);
    engine.send(&format!("{{\"cmd\":\"generate\",\"id\":11,\"prompt\":{:?}}}", long));
    let error = engine.error();
    assert!(!error.fatal && error.msg.contains("holds 1024"), "{error:?}");
    engine.send(r#"{"cmd":"generate","prompt":"Still there?","n_predict":2}"#);
    let third = engine.done();
    assert_eq!((third.id, third.tokens), (serde_json::Value::Null, 2));
    assert!(third.n_reused > second.n_reused);
    engine.send(r#"{"cmd":"close"}"#);
    assert_eq!(engine.end(), Some(0));
    assert_eq!(outcome(&trace), Some(Outcome::Complete));
}

#[test]
fn a_cancel_ends_one_request_and_those_behind_it_run() {
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let ask = |id: u32, n: u32| {
        format!(
            r#"{{"cmd":"generate","id":{id},"prompt":"Hello","n_predict":{n},"clear_kv":true}}"#
        )
    };
    let (mut engine, _) = Engine::start(&model, &["--hash-logits"]);
    engine.send(&ask(1, 4));
    let first = engine.done();
    // A cancel for nobody is no harm.
    engine.send(r#"{"cmd":"cancel"}"#);
    engine.send(&ask(2, 900));
    engine.until(progress);
    engine.send(r#"{"cmd":"cancel"}"#);
    engine.send(&ask(3, 4));
    let cancelled = engine.done();
    assert_eq!((cancelled.id, cancelled.cancelled), (2.into(), true));
    assert!(cancelled.tokens > 0 && cancelled.tokens < 900 && cancelled.n_past == 0);
    let third = engine.done();
    assert_eq!((third.id, third.cancelled, third.tokens), (3.into(), false, 4));
    assert_eq!(third.logits_sha256, first.logits_sha256);
    // The end of input is as good as `close`; what was asked for is done.
    engine.send(&ask(4, 5));
    engine.input.take();
    assert_eq!(engine.done().tokens, 5);
    assert_eq!(engine.end(), Some(0));
}

#[test]
fn raw_prompts_and_one_shot_runs_say_the_same_lines() {
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let (mut engine, ready) = Engine::start(&model, &["--raw", "--hash-logits"]);
    assert_eq!(ready.think_ctl, "none");
    engine.send(r#"{"cmd":"generate","id":1,"prompt":"Once","n_predict":5}"#);
    let session = engine.done();
    assert_eq!(engine.end(), Some(0));
    let run = |more: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_bmoe-engine"))
            .args(["generate", "-t", "1", "-p", "Once", "-n", "5", "--hash-logits", "-m"])
            .arg(&model)
            .args(more)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let output = run(&["--progress"]);
    let lines: Vec<Line> = output.lines().map(|l| Line::parse(l).unwrap()).collect();
    let tags: Vec<&str> = output.lines().map(|l| l.split(' ').next().unwrap()).collect();
    assert_eq!(
        tags[..5],
        ["BMOE_READY", "BMOE_BEGIN", "BMOE_PREFILL", "BMOE_LOAD", "BMOE_PROGRESS"]
    );
    let Some(Line::Done(done)) = lines.last() else { panic!("{output}") };
    assert_eq!((&done.logits_sha256, &done.text), (&session.logits_sha256, &session.text));
    assert_eq!(run(&[]), format!("{}\n", done.text));
    // In a chat the same words are another prompt.
    let chat = run(&["--chat", "--progress"]);
    let Some(Line::Done(chat)) = chat.lines().last().and_then(Line::parse) else {
        panic!("{chat}")
    };
    assert!(chat.n_prompt > done.n_prompt && chat.logits_sha256 != done.logits_sha256);
}

#[test]
fn signals_end_a_session_at_work_and_at_rest() {
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let trace = folder.path().join("session.trace");
    for busy in [false, true] {
        let (mut engine, _) = Engine::start(&model, &["--trace", trace.to_str().unwrap()]);
        if busy {
            engine.send(r#"{"cmd":"generate","id":1,"prompt":"Hello","n_predict":900}"#);
            engine.until(progress);
        }
        let pid = engine.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        let error = engine.until(|l| if let Line::Error(e) = l { Some(e.clone()) } else { None });
        assert!(error.fatal && error.msg.contains("SIGTERM"), "{error:?}");
        assert_eq!(engine.end(), Some(143));
        assert_eq!(outcome(&trace), Some(Outcome::Interrupted { signal: "SIGTERM".into() }));
    }
    // Killed: the trace is whole up to the last token, and without an end.
    let (mut engine, _) = Engine::start(&model, &["--trace", trace.to_str().unwrap()]);
    engine.send(r#"{"cmd":"generate","id":1,"prompt":"Hello","n_predict":900}"#);
    engine.until(|line| progress(line).filter(|step| *step == 3));
    engine.child.kill().unwrap();
    engine.child.wait().unwrap();
    let mut reader =
        TraceReader::new(BufReader::new(std::fs::File::open(&trace).unwrap())).unwrap();
    let mut tokens = 0;
    while let Ok(Some(record)) = reader.read() {
        assert!(!matches!(record, Record::End(_)));
        tokens += u32::from(matches!(record, Record::Token(_)));
    }
    assert!(tokens > 0);
}

#[test]
fn what_can_not_be_served_is_refused_before_it_is_ready() {
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let refused = |model: &Path, more: &[&str], parts: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_bmoe-engine"))
            .args(["session", "-t", "1", "-m"])
            .arg(model)
            .args(more)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3));
        let stdout = String::from_utf8(output.stdout).unwrap();
        let Some(Line::Error(error)) = Line::parse(&stdout) else { panic!("{stdout}") };
        assert!(error.fatal && parts.iter().all(|part| error.msg.contains(part)), "{error:?}");
    };
    refused(&model, &["--raw", "--think", "on"], &["--think on", "chat template"]);
    refused(&model, &["--temp=-1"], &["--temp -1", "0 (greedy)"]);
    common::set_template(&model, "{{ raise_exception('no chats here') }}");
    refused(&model, &[], &["chat template failed", "no chats here", "raw prompt"]);
}
