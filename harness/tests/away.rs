//! A target that goes away in the middle of a run.

mod common;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use bmoe::runner::{
    Ended, Event, Executor, ExecutorError, Exit, Interrupt, Job, SupervisedExecutor,
};
use bmoe::target::{Command, Finished, LocalTarget, StagedFile, Target, TargetError};
use bmoe_trace::RunConfig;
use bmoe_trace::line::Line;
use bmoe_trace::supervised::TRACE_FILE;
use common::place::{Place, until};

/// Whether the target is away now; called after each piece of a command's output, and before each command.
type IsAway = Box<dyn FnMut(Moment<'_>) -> bool + Send>;

/// This machine, but for a while.
struct Flaky {
    here: LocalTarget,
    is_away: Mutex<IsAway>,
}

enum Moment<'a> {
    Begins(&'a Command),
    Said,
}

impl Flaky {
    fn is_away(&self, moment: Moment<'_>) -> Result<(), TargetError> {
        if (self.is_away.lock().unwrap())(moment) {
            let reason = "the cable is pulled".to_owned();
            return Err(TargetError::Lost { target: "flaky".to_owned(), reason });
        }
        Ok(())
    }
}

impl Target for Flaky {
    fn name(&self) -> &'static str {
        "flaky"
    }

    fn home(&self) -> &Path {
        self.here.home()
    }

    fn exec(
        &self,
        command: &Command,
        on_stdout: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Finished, TargetError> {
        self.is_away(Moment::Begins(command))?;
        let mut away = Ok(());
        let finished = self.here.exec(command, &mut |piece| {
            if !piece.is_empty() {
                // What comes with the break is lost in the middle.
                let arrived = if self.is_away(Moment::Said).map_err(|e| away = Err(e)).is_err() {
                    &piece[..piece.len() / 2]
                } else {
                    piece
                };
                if on_stdout(arrived).is_break() {
                    return ControlFlow::Break(());
                }
            } else if on_stdout(piece).is_break() {
                return ControlFlow::Break(());
            }
            if away.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        away.map(|()| finished)
    }

    fn stage(
        &self,
        file: &StagedFile<'_>,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<PathBuf, TargetError> {
        self.here.stage(file, on_progress)
    }

    fn put(&self, content: &[u8], path: &Path) -> Result<(), TargetError> {
        self.here.put(content, path)
    }

    fn fetch(&self, path: &Path, to: &Path) -> Result<bool, TargetError> {
        self.here.fetch(path, to)
    }
}

/// What was heard of a run.
#[derive(Default)]
struct Heard {
    steps: Vec<u32>,
    notices: Vec<String>,
}

fn run(
    place: &Place,
    patience: Duration,
    is_away: impl FnMut(Moment<'_>) -> bool + Send + 'static,
) -> (Result<Ended, ExecutorError>, Heard) {
    let here = LocalTarget::new(&place.at("home")).unwrap();
    let target = Flaky { here, is_away: Mutex::new(Box::new(is_away)) };
    let mut executor =
        SupervisedExecutor::new(&target, &place.at("engine"), patience, Interrupt::default());
    let (there, folder) = (place.at("home/attempt"), place.at("out/runs/1"));
    std::fs::create_dir_all(&folder).unwrap();
    let config = RunConfig { model: place.at("a.gguf"), ..RunConfig::default() };
    let job =
        Job { config: &config, place: &there, folder: &folder, timeout: Duration::from_secs(60) };
    let mut heard = Heard::default();
    let ended = executor.run(&job, &mut |event| match event {
        Event::Line(Line::Progress(progress)) => heard.steps.push(progress.step),
        Event::Notice(text) => heard.notices.push(text),
        _ => {}
    });
    (ended, heard)
}

/// An engine that says three steps, the last two when it is allowed to.
fn place() -> Place {
    let place = Place::new(
        "sed -n 1p \"$here/steps\"; while [ ! -e \"$here/go\" ]; do sleep 0.02; done; \
         sed -n 2,3p \"$here/steps\"; succeed",
    );
    let steps: String = (1..=3).map(|n| format!("{}\n", common::progress_line(n, 3))).collect();
    std::fs::write(place.at("steps"), steps).unwrap();
    place
}

#[test]
fn what_happens_while_a_target_is_away_is_heard_when_it_is_back() {
    let place = place();
    let (go, trace) = (place.at("go"), place.at("home/attempt").join(TRACE_FILE));
    let (mut said, mut refused) = (0, 0);
    let (ended, heard) = run(&place, Duration::from_secs(60), move |moment| match moment {
        // The first words of the run are cut off, and then it goes on to its end.
        Moment::Said if refused == 0 => {
            said += 1;
            // The supervisor's answer, then the run itself.
            if said < 2 {
                return false;
            }
            std::fs::write(&go, "").unwrap();
            refused = 1;
            true
        }
        Moment::Begins(command) if (1..3).contains(&refused) => {
            assert!(command.words.iter().any(|word| word == "follow"), "{command:?}");
            until("the engine ends", || std::fs::metadata(&trace).is_ok_and(|m| m.len() > 0));
            refused += 1;
            true
        }
        _ => false,
    });
    let ended = ended.unwrap();
    assert_eq!((ended.exit, ended.stopped), (Exit::Code(0), None));
    // Three steps, and the one that every run of the script says at its end: each once.
    assert_eq!(heard.steps, [1, 2, 3, 1]);
    assert_eq!(heard.notices.len(), 2, "{:?}", heard.notices);
    assert!(heard.notices[0].contains("the cable is pulled; waiting for it, 60 s at most"));
    assert!(heard.notices[1].starts_with("flaky is back after"), "{:?}", heard.notices);
    assert!(std::fs::metadata(place.at("out/runs/1").join(TRACE_FILE)).unwrap().len() > 0);
    assert!(!place.at("home/attempt").exists(), "what was fetched is not needed there any more");
}

#[test]
fn a_target_that_stays_away_is_lost() {
    let place = place();
    let mut said = 0;
    let (ended, heard) = run(&place, Duration::from_secs(1), move |moment| {
        if matches!(moment, Moment::Said) {
            said += 1;
        }
        said > 1
    });
    match ended {
        Err(ExecutorError::Lost(reason)) => {
            assert_eq!(
                reason,
                "flaky is lost: the cable is pulled; it did not come back within 1 s"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(heard.notices.len(), 1, "{:?}", heard.notices);
    // It runs on there, for whoever comes back.
    assert!(place.at("home/attempt").exists());
    std::fs::write(place.at("go"), "").unwrap();
    let trace = place.at("home/attempt").join(TRACE_FILE);
    until("the engine ends", || std::fs::metadata(&trace).is_ok_and(|m| m.len() > 0));
}
