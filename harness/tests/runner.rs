//! The runner against an executor without processes: order, judgement, recovery.

mod common;

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bmoe::matrix::{Cell, Matrix, Schedule};
use bmoe::runner::{
    Ended, Event, Executor, ExecutorError, Exit, GateRules, Interrupt, Job, Observer, Place,
    Placed, Runner, Summary, Work,
};
use bmoe_analysis::result_set::{CellRecord, LoadAverage, Verdict};
use bmoe_trace::line::{ErrorLine, Line};
use bmoe_trace::record::Outcome;
use bmoe_trace::supervised::{LOG_FILE, Sample, StoppedBy, TRACE_FILE};
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
    Ends(Exit, Option<StoppedBy>),
    /// The same by SIGKILL, with so many processes killed for lack of memory meanwhile.
    Killed(Option<u64>),
    /// Is interrupted by the user.
    Interrupted(Interrupt),
    /// The device is like this meanwhile, and the engine generates one token.
    Is(Box<Sample>),
    /// Has no end that could be judged.
    Error(ExecutorError),
}

/// Follows a script, one entry a run; keeps the configurations that it was given.
#[derive(Default)]
struct Scripted {
    scripts: VecDeque<Script>,
    configs: Vec<RunConfig>,
    /// What is sensed between the runs; the last one stays.
    sensed: VecDeque<Sample>,
    /// What happens to attempts of an earlier runner.
    adopted: VecDeque<Script>,
    abandoned: Vec<PathBuf>,
}

impl Scripted {
    fn play(
        &mut self,
        script: Script,
        job: &Job<'_>,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Ended, ExecutorError> {
        self.configs.push(job.config.clone());
        let config = job.config.clone();
        let run_id = format!("run-{}", job.place.file_name().unwrap().display());
        let wall = Duration::from_millis(1500);
        let trace = job.folder.join(TRACE_FILE);
        let ended = |exit, stopped| Ended { exit, stopped, wall, oom_kills: Some(0) };
        let load = |load| Sample { load_average: Some(load), ..Sample::default() };
        on_event(Event::Sample(Box::new(load(0.25))));
        on_event(Event::Sample(Box::new(load(1.5))));
        let mut say = |line| on_event(Event::Line(line));
        match script {
            Script::Says(tokens) => {
                common::write_trace(&trace, &common::whole_trace(&run_id, config, &tokens));
                say(common::done_line(&tokens));
                Ok(ended(Exit::Code(0), None))
            }
            Script::LosesTrace => {
                say(common::done_line(&[1]));
                Ok(ended(Exit::Code(0), None))
            }
            Script::NoEnd => {
                common::write_trace(&trace, &[common::start(&run_id, config)]);
                say(common::done_line(&[1]));
                Ok(ended(Exit::Code(0), None))
            }
            Script::Refuses(msg) => {
                say(Line::Error(ErrorLine {
                    id: serde_json::Value::Null,
                    fatal: true,
                    msg: msg.to_owned(),
                }));
                Ok(ended(Exit::Code(3), None))
            }
            Script::FailsInLog(msg) => {
                let log = job.folder.join(LOG_FILE);
                fs::write(log, format!("error: earlier\nsome\nerror: {msg}\nmore\n")).unwrap();
                Ok(ended(Exit::Code(4), None))
            }
            Script::Ends(exit, stopped) => {
                let records = [common::start(&run_id, config), common::token(1, 7)];
                common::write_trace(&trace, &records);
                say(common::progress_line(1, 4));
                Ok(ended(exit, stopped))
            }
            Script::Killed(oom_kills) => {
                say(common::progress_line(1, 4));
                Ok(Ended { oom_kills, ..ended(Exit::Signal(9), None) })
            }
            Script::Interrupted(interrupt) => {
                interrupt.raise(2);
                let outcome = Outcome::Interrupted { signal: "SIGTERM".to_owned() };
                let records = [common::start(&run_id, config), common::end(outcome, 0, "")];
                common::write_trace(&trace, &records);
                Ok(ended(Exit::Code(143), Some(StoppedBy::Request)))
            }
            Script::Is(sample) => {
                on_event(Event::Sample(sample));
                self.play(says(&[1]), job, on_event)
            }
            Script::Error(error) => Err(error),
        }
    }
}

impl Executor for Scripted {
    fn attempts(&self, results: &Path) -> PathBuf {
        results.join("there")
    }

    fn sense(&mut self, _: &mut dyn FnMut(Event)) -> Result<Sample, ExecutorError> {
        if self.sensed.len() > 1 {
            return Ok(self.sensed.pop_front().unwrap());
        }
        Ok(self.sensed.front().cloned().unwrap_or_default())
    }

    fn run(
        &mut self,
        job: &Job<'_>,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Ended, ExecutorError> {
        let script = self.scripts.pop_front().expect("no run more than the scripts");
        self.play(script, job, on_event)
    }

    fn adopt(
        &mut self,
        job: &Job<'_>,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Ended, ExecutorError> {
        let script = self.adopted.pop_front().unwrap_or(Script::Error(ExecutorError::Absent));
        self.play(script, job, on_event)
    }

    fn abandon(&mut self, place: &Path) -> Result<(), ExecutorError> {
        self.abandoned.push(place.to_owned());
        Ok(())
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

    fn waiting(&mut self, what: &str, _: Duration, _: Duration) {
        self.0.push(format!("waits: {what}"));
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
    executor: Scripted,
}

/// A result folder and what a runner of it works with.
struct Folder {
    folder: tempfile::TempDir,
    models: HashMap<String, PathBuf>,
    profiles: Placed,
    retries: u32,
    warmup_runs: u32,
    gate: GateRules,
}

impl Folder {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            models: [("a".to_owned(), "models/a.gguf".into())].into(),
            profiles: Placed::new(),
            retries: 0,
            warmup_runs: 0,
            gate: GateRules { poll: Duration::from_millis(1), ..GateRules::default() },
        }
    }

    fn play(
        &self,
        schedule: &Schedule,
        work: &Work,
        interrupt: &Interrupt,
        mut executor: Scripted,
    ) -> Played {
        let runner = Runner {
            folder: self.folder.path(),
            models: &self.models,
            profiles: &self.profiles,
            timeout: Duration::from_secs(9),
            retries: self.retries,
            warmup_runs: self.warmup_runs,
            gate: self.gate.clone(),
            interrupt: interrupt.clone(),
        };
        let mut seen = Seen::default();
        let summary = runner.run(schedule, work, &mut executor, &mut seen).unwrap();
        let journal = fs::read_to_string(self.folder.path().join("cells.jsonl")).unwrap();
        let journal: Vec<CellRecord> =
            journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Played { summary, journal, seen: seen.0, executor }
    }
}

fn scripted(scripts: Vec<Script>) -> Scripted {
    Scripted { scripts: scripts.into(), ..Scripted::default() }
}

fn play(schedule: &Schedule, interrupt: &Interrupt, scripts: Vec<Script>) -> Played {
    Folder::new().play(schedule, &Work::Rest, interrupt, scripted(scripts))
}

/// One run each of mmap (the baseline), stream without and with cache.
fn once(scripts: Vec<Script>) -> Played {
    play(&schedule(&MATRIX.replace("repetitions = 2", "")), &Interrupt::default(), scripts)
}

fn says(tokens: &[i32]) -> Script {
    Script::Says(tokens.to_vec())
}

fn missing() -> Script {
    Script::Error(ExecutorError::Refused("engine does not start".to_owned()))
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
    note: the target does not tell cpu_temperature, mem_available, max_clock; runs wait for nothing
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
    let third = format!("run-{}-r0-a1", played.journal[2].id);
    assert_eq!(played.journal[2].run_id, Some(third));
    assert_eq!(played.journal[4].order, 4);
    assert_eq!(played.executor.configs[2].cache_mib, CacheBudget::Mib(8));
    assert_eq!(played.journal[2].load_average, Some(LoadAverage { start: 0.25, end: 1.5 }));
    assert_eq!(played.executor.configs[2].model, Path::new("models/a.gguf"));
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
    let played = once(vec![missing(), says(&[1, 2]), says(&[1, 3])]);
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
    assert!(played.journal[2].run_id.is_some());
}

#[test]
fn kills_and_timeouts_have_verdicts_of_their_own() {
    let scripts = vec![
        Script::Killed(Some(1)),
        Script::Killed(Some(0)),
        Script::Killed(None),
        Script::Ends(Exit::Signal(9), Some(StoppedBy::Timeout)),
        Script::Ends(Exit::Signal(11), None),
        // The engine's own exit code after SIGTERM, for which the runner did not ask.
        Script::Ends(Exit::Code(143), None),
    ];
    let played = play(&schedule(MATRIX), &Interrupt::default(), scripts);
    let told: Vec<_> =
        played.journal.iter().map(|r| format!("{:?}: {}", r.verdict, reason(r))).collect();
    insta::assert_snapshot!(told.join("\n"), @r"
    OutOfMemory: by SIGKILL after 1 of 4 tokens: the kernel killed 1 for lack of memory meanwhile
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
fn runs_that_something_from_outside_ended_are_tried_again_and_each_attempt_is_kept() {
    let folder = Folder { retries: 2, ..Folder::new() };
    let lost = || Script::Error(ExecutorError::Lost("adb:X is lost".to_owned()));
    let scripts = vec![
        Script::Killed(Some(0)),
        lost(),
        says(&[1]),
        // The engine's own failures are its own.
        Script::Refuses("no"),
        lost(),
        lost(),
        lost(),
    ];
    let schedule = schedule(&MATRIX.replace("repetitions = 2", ""));
    let played = folder.play(&schedule, &Work::Rest, &Interrupt::default(), scripted(scripts));
    let told: Vec<_> = played.journal.iter().map(|r| (r.attempt, r.verdict)).collect();
    use Verdict::{Failed, Killed, Lost, Valid};
    assert_eq!(
        told,
        [(1, Killed), (2, Lost), (3, Valid), (1, Failed), (1, Lost), (2, Lost), (3, Lost)]
    );
    assert_eq!(played.summary.invalid().count(), 2);
    // Whatever may still run of a lost attempt ends before the next one begins.
    let abandoned: Vec<_> = played
        .executor
        .abandoned
        .iter()
        .map(|p| p.file_name().unwrap().to_str().unwrap())
        .collect();
    let name = |index: usize| {
        let record = &played.journal[index];
        format!("{}-r0-a{}", record.id, record.attempt)
    };
    assert_eq!(abandoned, [name(1), name(4), name(5)]);
}

fn warm(millic: i32) -> Sample {
    Sample { cpu_temperature_millic: Some(millic), ..Sample::default() }
}

#[test]
fn a_run_waits_until_the_device_is_as_it_was() {
    let sensed = [40_000, 40_000, 60_000, 50_000, 44_000, 41_000].map(warm).into();
    let executor = Scripted { sensed, ..scripted(vec![says(&[1]), says(&[1]), says(&[1])]) };
    let schedule = schedule(&MATRIX.replace("repetitions = 2", ""));
    let played = Folder::new().play(&schedule, &Work::Rest, &Interrupt::default(), executor);
    insta::assert_snapshot!(played.seen.join("\n"), @r"
    1/3 mmap r0, left ?
    note: the target does not tell mem_available, max_clock; runs wait for cpu_temperature
    Valid
    2/3 stream, cache off, 4 lanes r0, left 3.0
    waits: CPU at 60.0 °C, wanted 45.0 °C or less
    waits: CPU at 50.0 °C, wanted 45.0 °C or less
    Valid
    3/3 stream, cache 8 MiB, 4 lanes r0, left 1.5
    Valid
    ");
    let gates: Vec<_> =
        played.journal.iter().map(|r| r.conditions.clone().unwrap().gate.unwrap()).collect();
    assert!(gates.iter().all(|g| g.gave_up.is_none() && g.used == ["cpu_temperature"]));
    assert!(gates[1].waited_s > 0.0);
    let entry = played.journal[1].conditions.clone().unwrap().entry;
    assert_eq!(entry.cpu_temperature_millic, Some(44_000));
}

#[test]
fn giving_up_is_recorded_and_the_run_goes_on() {
    let mut folder = Folder::new();
    folder.gate.max_wait = Duration::from_millis(20);
    let sensed = [40_000, 60_000].map(warm).into();
    let executor = Scripted { sensed, ..scripted(vec![says(&[1]), says(&[1]), says(&[1])]) };
    let schedule = schedule(&MATRIX.replace("repetitions = 2", ""));
    let played = folder.play(&schedule, &Work::Rest, &Interrupt::default(), executor);
    assert!(played.journal.iter().all(|r| r.verdict == Verdict::Valid));
    let gate = played.journal[2].conditions.clone().unwrap().gate.unwrap();
    assert_eq!(gate.gave_up.as_deref(), Some("CPU at 60.0 °C, wanted 45.0 °C or less"));
    assert!(gate.waited_s >= 0.02);
}

#[test]
fn what_the_device_did_spoils_a_run_with_evidence() {
    let hot = Script::Is(Box::new(warm(97_000)));
    let swaps = Sample { swap_used_bytes: Some(200 << 20), ..Sample::default() };
    let entry = Sample { swap_used_bytes: Some(100 << 20), ..Sample::default() };
    let executor = Scripted {
        sensed: [entry].into(),
        ..scripted(vec![says(&[1]), hot, Script::Is(Box::new(swaps))])
    };
    let schedule = schedule(&MATRIX.replace("repetitions = 2", ""));
    let played = Folder::new().play(&schedule, &Work::Rest, &Interrupt::default(), executor);
    let told: Vec<_> = played.journal.iter().skip(1).map(|r| (r.verdict, reason(r))).collect();
    assert_eq!(told[0], (Verdict::Throttled, "the CPU reached 97.0 °C"));
    assert_eq!(told[1].0, Verdict::Swapped);
}

#[test]
fn another_runner_goes_on_with_what_is_left() {
    let folder = Folder::new();
    let schedule = schedule(&MATRIX.replace("repetitions = 2", ""));
    let interrupt = Interrupt::default();
    let first = scripted(vec![says(&[1, 2]), Script::Interrupted(interrupt.clone())]);
    folder.play(&schedule, &Work::Rest, &interrupt, first);
    let second = scripted(vec![says(&[1, 2]), says(&[1, 3])]);
    let played = folder.play(&schedule, &Work::Rest, &Interrupt::default(), second);
    let told: Vec<_> =
        played.journal.iter().map(|r| (r.name.as_str(), r.attempt, r.order, r.verdict)).collect();
    use Verdict::{Interrupted, Valid, WrongText};
    assert_eq!(
        told,
        [
            ("mmap", 1, 0, Valid),
            ("stream, cache off, 4 lanes", 1, 1, Interrupted),
            ("stream, cache off, 4 lanes", 2, 2, Valid),
            // Compared with what the first runner's baseline said.
            ("stream, cache 8 MiB, 4 lanes", 1, 3, WrongText),
        ]
    );
    assert_eq!(played.summary.invalid().count(), 1);
}

#[test]
fn an_attempt_of_a_killed_runner_is_brought_to_its_end() {
    let schedule = schedule(&MATRIX.replace("repetitions = 2", ""));
    // Still running, over since, cut off, never begun.
    let gone = || Script::Error(ExecutorError::Gone("its supervisor is gone".to_owned()));
    for (script, verdict, next) in [
        (Some(says(&[1])), Verdict::Valid, 0),
        (Some(gone()), Verdict::Interrupted, 1),
        (None, Verdict::Interrupted, 1),
    ] {
        let folder = Folder::new();
        let cell = &schedule.cells[0];
        let started = serde_json::json!({
            "event": "started", "id": cell.id, "repetition": 0, "attempt": 1, "order": 0,
            "unix_ms": 5, "place": "/there/1", "entry": {}, "gate": null,
        });
        fs::write(folder.folder.path().join("journal.jsonl"), format!("{started}\n")).unwrap();
        let runs = (0..2 + next).map(|_| says(&[1])).collect();
        let executor = Scripted { adopted: script.into_iter().collect(), ..scripted(runs) };
        let played = folder.play(&schedule, &Work::Rest, &Interrupt::default(), executor);
        assert_eq!((played.journal[0].attempt, played.journal[0].verdict), (1, verdict));
        assert_eq!(played.journal[0].started_unix_ms, 5);
        assert_eq!(played.journal.len(), 3 + next);
        assert_eq!(played.summary.invalid().count(), 0);
    }
}

#[test]
fn warm_ups_leave_nothing_but_a_warm_device() {
    let folder = Folder { warmup_runs: 2, ..Folder::new() };
    let schedule = schedule(&MATRIX.replace("repetitions = 2", ""));
    let played = folder.play(
        &schedule,
        &Work::Rest,
        &Interrupt::default(),
        scripted((0..5).map(|_| says(&[1])).collect()),
    );
    assert_eq!(played.journal.len(), 3);
    assert!(!folder.folder.path().join("warmup").exists());
}
