//! An executor that follows a script, and a folder to run it in.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bmoe::matrix::{Cell, Matrix, Schedule};
use bmoe::runner::{
    Ended, Event, Executor, ExecutorError, Exit, GateRules, Interrupt, Job, Observer, Place,
    Placed, Runner, Summary, Work,
};
use bmoe_analysis::result_set::CellRecord;
use bmoe_trace::RunConfig;
use bmoe_trace::line::{ErrorLine, Line};
use bmoe_trace::record::Outcome;
use bmoe_trace::supervised::{LOG_FILE, Sample, StoppedBy, TRACE_FILE};

use crate::common;

/// What the engine does in one run.
pub(crate) enum Script {
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
pub(crate) struct Scripted {
    pub(crate) scripts: VecDeque<Script>,
    pub(crate) configs: Vec<RunConfig>,
    /// What is sensed between the runs; the last one stays.
    pub(crate) sensed: VecDeque<Sample>,
    /// What happens to attempts of an earlier runner.
    pub(crate) adopted: VecDeque<Script>,
    pub(crate) abandoned: Vec<PathBuf>,
}

impl Scripted {
    pub(crate) fn play(
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
pub(crate) struct Seen(pub(crate) Vec<String>);

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

pub(crate) const MATRIX: &str = r#"
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

pub(crate) fn schedule(text: &str) -> Schedule {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.toml");
    fs::write(&path, text).unwrap();
    Matrix::load(&path).unwrap().0.schedule().unwrap()
}

pub(crate) struct Played {
    pub(crate) summary: Summary,
    pub(crate) journal: Vec<CellRecord>,
    pub(crate) seen: Vec<String>,
    pub(crate) executor: Scripted,
}

/// A result folder and what a runner of it works with.
pub(crate) struct Folder {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) models: HashMap<String, PathBuf>,
    pub(crate) files: Placed,
    pub(crate) retries: u32,
    pub(crate) warmup_runs: u32,
    pub(crate) gate: GateRules,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            models: [("a".to_owned(), "models/a.gguf".into())].into(),
            files: Placed::new(),
            retries: 0,
            warmup_runs: 0,
            gate: GateRules { poll: Duration::from_millis(1), ..GateRules::default() },
        }
    }

    pub(crate) fn play(
        &self,
        schedule: &Schedule,
        work: &Work,
        interrupt: &Interrupt,
        mut executor: Scripted,
    ) -> Played {
        let runner = Runner {
            folder: self.folder.path(),
            models: &self.models,
            files: &self.files,
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

pub(crate) fn scripted(scripts: Vec<Script>) -> Scripted {
    Scripted { scripts: scripts.into(), ..Scripted::default() }
}

pub(crate) fn play(schedule: &Schedule, interrupt: &Interrupt, scripts: Vec<Script>) -> Played {
    Folder::new().play(schedule, &Work::Rest, interrupt, scripted(scripts))
}

/// One run each of mmap (the baseline), stream without and with cache.
pub(crate) fn once(scripts: Vec<Script>) -> Played {
    play(&schedule(&MATRIX.replace("repetitions = 2", "")), &Interrupt::default(), scripts)
}

pub(crate) fn says(tokens: &[i32]) -> Script {
    Script::Says(tokens.to_vec())
}

pub(crate) fn missing() -> Script {
    Script::Error(ExecutorError::Refused("engine does not start".to_owned()))
}

pub(crate) fn reason(record: &CellRecord) -> &str {
    record.reason.as_deref().unwrap()
}
