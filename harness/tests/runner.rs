//! The runner against an executor without processes: order, judgement, recovery.

mod common;

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::time::Duration;

use bmoe::matrix::{Cell, Matrix, Schedule};
use bmoe::runner::{
    Ended, Executor, ExecutorError, Exit, Interrupt, Job, ModelFiles, Observer, Place, Runner,
    Stopped, Summary,
};
use bmoe_analysis::result_set::{CellRecord, LoadAverage, Verdict};
use bmoe_trace::line::{ErrorLine, Line};
use bmoe_trace::record::Outcome;
use bmoe_trace::{CacheBudget, RunConfig};

/// What the engine does in one run.
enum Script {
    /// Generates these tokens.
    Says(Vec<i32>),
    /// Says that it is done, but leaves no trace.
    LosesTrace,
    /// Says that it is done, but its trace stops before the end.
    NoEnd,
    /// Refuses with a line of the protocol.
    Refuses(&'static str),
    /// Fails with a line in its log only.
    FailsInLog(&'static str),
    /// Ends like this after one of four tokens.
    Ends(Exit, Option<Stopped>),
    /// The same by SIGKILL, with so many processes killed for lack of memory meanwhile.
    Killed(Option<u64>),
    /// Is interrupted by the user.
    Interrupted(Interrupt),
    /// Can't be started.
    Missing,
}

/// Follows a script, one entry a run; keeps the configurations that it was given.
struct Scripted {
    scripts: VecDeque<Script>,
    configs: Vec<RunConfig>,
}

impl Executor for Scripted {
    fn run(
        &mut self,
        job: &Job<'_>,
        on_line: &mut dyn FnMut(&Line),
    ) -> Result<Ended, ExecutorError> {
        let config = RunConfig::load(job.config).unwrap();
        self.configs.push(config.clone());
        let run_id = format!("run-{}", self.configs.len());
        let wall = Duration::from_millis(1500);
        let load_average = Some(LoadAverage { start: 0.25, end: 1.5 });
        let ended = |exit, stopped| Ended { exit, stopped, wall, oom_kills: Some(0), load_average };
        match self.scripts.pop_front().expect("no run more than the scripts") {
            Script::Says(tokens) => {
                common::write_trace(job.trace, &common::whole_trace(&run_id, config, &tokens));
                on_line(&common::done_line(&tokens));
                Ok(ended(Exit::Code(0), None))
            }
            Script::LosesTrace => {
                on_line(&common::done_line(&[1]));
                Ok(ended(Exit::Code(0), None))
            }
            Script::NoEnd => {
                common::write_trace(job.trace, &[common::start(&run_id, config)]);
                on_line(&common::done_line(&[1]));
                Ok(ended(Exit::Code(0), None))
            }
            Script::Refuses(msg) => {
                on_line(&Line::Error(ErrorLine {
                    id: serde_json::Value::Null,
                    fatal: true,
                    msg: msg.to_owned(),
                }));
                Ok(ended(Exit::Code(3), None))
            }
            Script::FailsInLog(msg) => {
                fs::write(job.log, format!("error: earlier\nsome\nerror: {msg}\nmore\n")).unwrap();
                Ok(ended(Exit::Code(4), None))
            }
            Script::Ends(exit, stopped) => {
                let records = [common::start(&run_id, config), common::token(1, 7)];
                common::write_trace(job.trace, &records);
                on_line(&common::progress_line(1, 4));
                Ok(ended(exit, stopped))
            }
            Script::Killed(oom_kills) => {
                on_line(&common::progress_line(1, 4));
                Ok(Ended { oom_kills, ..ended(Exit::Signal(9), None) })
            }
            Script::Interrupted(interrupt) => {
                interrupt.raise(2);
                let outcome = Outcome::Interrupted { signal: "SIGTERM".to_owned() };
                let records = [common::start(&run_id, config), common::end(outcome, 0, "")];
                common::write_trace(job.trace, &records);
                Ok(ended(Exit::Code(143), Some(Stopped::Interrupt)))
            }
            Script::Missing => Err(ExecutorError {
                what: "engine does not start".to_owned(),
                source: std::io::ErrorKind::NotFound.into(),
            }),
        }
    }
}

/// Writes down what it is told.
#[derive(Default)]
struct Seen(Vec<String>);

impl Observer for Seen {
    fn started(&mut self, cell: &Cell, repetition: u32, place: Place) {
        let left = place.left.map_or_else(|| "?".to_owned(), |l| format!("{:.1}", l.as_secs_f64()));
        self.0.push(format!(
            "{}/{} {} r{repetition}, left {left}",
            place.index + 1,
            place.total,
            cell.name
        ));
    }

    fn line(&mut self, _: &Line) {}

    fn ended(&mut self, record: &CellRecord) {
        self.0.push(format!("{:?}", record.verdict));
    }

    fn notice(&mut self, text: &str) {
        self.0.push(format!("note: {text}"));
    }
}

const MATRIX: &str = r#"
name = "m"
repetitions = 2
baseline = { mode = "mmap" }
[[model]]
name = "a"
path = "a.gguf"
[base]
prompt = "hello"
n_predict = 4
[axes]
mode = ["stream", "mmap"]
cache_mib = [0, 8]
"#;

fn schedule(text: &str) -> Schedule {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.toml");
    fs::write(&path, text).unwrap();
    Matrix::load(&path).unwrap().0.schedule().unwrap()
}

struct Played {
    summary: Summary,
    journal: Vec<CellRecord>,
    seen: Vec<String>,
    configs: Vec<RunConfig>,
}

fn play(schedule: &Schedule, interrupt: &Interrupt, scripts: Vec<Script>) -> Played {
    let folder = tempfile::tempdir().unwrap();
    let models: ModelFiles = [("a".to_owned(), vec![Path::new("models/a.gguf").to_owned()])].into();
    let runner = Runner {
        folder: folder.path(),
        models: &models,
        timeout: Duration::from_secs(9),
        interrupt: interrupt.clone(),
    };
    let mut executor = Scripted { scripts: scripts.into(), configs: Vec::new() };
    let mut seen = Seen::default();
    let summary = runner.run(schedule, &mut executor, &mut seen).unwrap();
    let journal = fs::read_to_string(folder.path().join("cells.jsonl")).unwrap();
    let journal: Vec<CellRecord> =
        journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    Played { summary, journal, seen: seen.0, configs: executor.configs }
}

/// One run each of mmap (the baseline), stream without and with cache.
fn once(scripts: Vec<Script>) -> Played {
    play(&schedule(&MATRIX.replace("repetitions = 2", "")), &Interrupt::default(), scripts)
}

fn says(tokens: &[i32]) -> Script {
    Script::Says(tokens.to_vec())
}

fn reason(record: &CellRecord) -> &str {
    record.reason.as_deref().unwrap()
}

#[test]
fn repetitions_interleave_and_the_baseline_comes_first() {
    let scripts = (0..6).map(|_| says(&[1, 2, 3, 4])).collect();
    let played = play(&schedule(MATRIX), &Interrupt::default(), scripts);
    insta::assert_snapshot!(played.seen.join("\n"), @r"
    1/6 mmap r0, left ?
    Valid
    2/6 stream, cache off, 4 lanes r0, left 7.5
    Valid
    3/6 stream, cache 8 MiB, 4 lanes r0, left 6.0
    Valid
    4/6 mmap r1, left 4.5
    Valid
    5/6 stream, cache off, 4 lanes r1, left 3.0
    Valid
    6/6 stream, cache 8 MiB, 4 lanes r1, left 1.5
    Valid
    ");
    assert_eq!(played.journal, played.summary.records);
    assert_eq!(played.journal[2].run_id.as_deref(), Some("run-3"));
    assert_eq!(played.journal[4].order, 4);
    assert_eq!(played.configs[2].cache_mib, CacheBudget::Mib(8));
    assert_eq!(played.journal[2].load_average, Some(LoadAverage { start: 0.25, end: 1.5 }));
    assert_eq!(played.configs[2].model, Path::new("models/a.gguf"));
}

#[test]
fn a_failed_cell_keeps_its_reason_and_the_rest_goes_on() {
    let refused = "cache_mib = 8 is smaller than one token's 12 MiB";
    let played = once(vec![says(&[1]), Script::Refuses(refused), Script::FailsInLog("read: EIO")]);
    assert_eq!(played.journal[1].verdict, Verdict::Failed);
    assert_eq!(reason(&played.journal[1]), refused);
    assert_eq!(played.journal[1].exit_code, Some(3));
    assert_eq!(reason(&played.journal[2]), "read: EIO");
    assert_eq!(played.summary.invalid().count(), 2);
}

#[test]
fn a_wrong_text_is_told_apart_and_located() {
    let played = once(vec![says(&[1, 2, 3]), says(&[1, 9, 3]), says(&[1, 2])]);
    let [_, differs, shorter] = &played.journal[..] else { panic!("three runs") };
    assert_eq!((differs.verdict, shorter.verdict), (Verdict::WrongText, Verdict::WrongText));
    assert_eq!(reason(differs), "the text differs from that of \"mmap\" from decode step 2 on");
    assert_eq!(
        reason(shorter),
        "the text differs from that of \"mmap\" by its length: 2 decode steps, not 3"
    );
}

#[test]
fn a_failed_baseline_is_replaced_by_the_first_valid_cell() {
    let played = once(vec![Script::Missing, says(&[1, 2]), says(&[1, 3])]);
    let verdicts: Vec<_> = played.journal.iter().map(|r| r.verdict).collect();
    assert_eq!(verdicts, [Verdict::Failed, Verdict::Valid, Verdict::WrongText]);
    assert!(reason(&played.journal[2]).contains("stream, cache off"), "{:?}", played.journal[2]);
    assert!(played.seen.iter().any(|s| s.starts_with("note: the baseline \"mmap\"")));
}

#[test]
fn exit_code_zero_is_not_believed_without_a_whole_trace() {
    let played = once(vec![says(&[1]), Script::LosesTrace, Script::NoEnd]);
    assert!(reason(&played.journal[1]).starts_with("the trace cannot be opened"));
    assert_eq!(reason(&played.journal[2]), "exit code 0, but the trace has no end record");
    assert_eq!(played.journal[2].run_id.as_deref(), Some("run-3"));
}

#[test]
fn kills_and_timeouts_have_verdicts_of_their_own() {
    let scripts = vec![
        Script::Killed(Some(1)),
        Script::Killed(Some(0)),
        Script::Killed(None),
        Script::Ends(Exit::Signal(9), Some(Stopped::Timeout)),
        Script::Ends(Exit::Signal(11), None),
        // The engine's own exit code after SIGTERM, for which the runner did not ask.
        Script::Ends(Exit::Code(143), None),
    ];
    let played = play(&schedule(MATRIX), &Interrupt::default(), scripts);
    let told: Vec<_> =
        played.journal.iter().map(|r| format!("{:?}: {}", r.verdict, reason(r))).collect();
    insta::assert_snapshot!(told.join("\n"), @r"
    Killed: by SIGKILL after 1 of 4 tokens: most likely for lack of memory, since the kernel killed a process for that meanwhile
    Killed: by SIGKILL after 1 of 4 tokens: a signal from outside, for the kernel did not run out of memory
    Killed: by SIGKILL after 1 of 4 tokens, which bmoe did not send: out of memory, or a signal from outside
    TimedOut: not done within 9 s, ended after 1 of 4 tokens; raise `timeout_s` or ask for less
    Killed: by SIGSEGV after 1 of 4 tokens
    Killed: asked to stop by SIGTERM after 1 of 4 tokens, which bmoe did not send
    ");
    assert_eq!(played.journal[0].exit_code, None);
}

#[test]
fn an_interrupt_ends_the_matrix_and_is_recorded() {
    let interrupt = Interrupt::default();
    let scripts = vec![says(&[1]), Script::Interrupted(interrupt.clone())];
    let played = play(&schedule(MATRIX), &interrupt, scripts);
    assert_eq!(played.summary.interrupted, Some(2));
    assert_eq!(played.summary.not_run, 4);
    assert_eq!(played.journal.len(), 2);
    assert_eq!(played.journal[1].verdict, Verdict::Interrupted);
    assert_eq!(reason(&played.journal[1]), "by SIGINT before the first token");
}

#[test]
fn an_existing_journal_is_never_touched() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("cells.jsonl"), "old\n").unwrap();
    let runner = Runner {
        folder: folder.path(),
        models: &ModelFiles::new(),
        timeout: Duration::from_secs(9),
        interrupt: Interrupt::default(),
    };
    let mut executor = Scripted { scripts: VecDeque::new(), configs: Vec::new() };
    let error = runner.run(&schedule(MATRIX), &mut executor, &mut Seen::default()).unwrap_err();
    assert!(error.to_string().contains("cells.jsonl"), "{error}");
    assert_eq!(fs::read_to_string(folder.path().join("cells.jsonl")).unwrap(), "old\n");
}
