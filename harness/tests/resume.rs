//! Runners that are killed, and what the next one makes of it.

mod common;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Output};
use std::time::Duration;

use bmoe_analysis::result_set::Verdict;
use common::place::{Place, RUN, alive, stderr, until};
use rustix::process::{Pid, Signal, kill_process};

const RESUME: [&str; 5] = ["run", "--resume", "out", "--engine", "./engine"];

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn pid(place: &Place, name: &str) -> i32 {
    fs::read_to_string(place.at(name)).unwrap().trim().parse().unwrap()
}

/// Writes the number of the engine's process, whole or not at all.
const SAY_PID: &str = "echo $$ >\"$here/pid.part\"; mv \"$here/pid.part\" \"$here/pid\"; ";

fn attempts(place: &Place) -> Vec<(u32, Verdict)> {
    place.journal().iter().map(|r| (r.attempt, r.verdict)).collect()
}

#[test]
fn an_engine_that_still_runs_is_adopted() {
    let place = Place::new(&format!(
        "echo \"$trace\" >>\"$here/started\"; case $(grep mode \"$config\") in *mmap*) {SAY_PID} \
         while [ ! -e \"$here/go\" ]; do sleep 0.05; done;; esac; succeed"
    ));
    let mut runner = place.command(&RUN).spawn().unwrap();
    until("the engine starts", || place.at("pid").exists());
    kill(&mut runner);
    assert!(alive(pid(&place, "pid")), "an engine needs no runner");
    let next = place.command(&RESUME).spawn().unwrap();
    fs::write(place.at("go"), "").unwrap();
    let output = next.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(attempts(&place), [(1, Verdict::Valid); 4]);
    let started = fs::read_to_string(place.at("started")).unwrap();
    assert_eq!(started.lines().count(), 4, "{started}");
    assert!(place.journal()[0].wall_s > 0.0 && place.at("out/report.md").exists());
}

#[test]
fn what_was_cut_off_is_recorded_and_run_again() {
    let place = Place::new(&format!(
        "case $(grep mode \"$config\") in *mmap*) if [ ! -e \"$here/pid\" ]; then {SAY_PID} exec sleep \
         100; fi;; esac; succeed"
    ));
    let mut runner = place.command(&RUN).spawn().unwrap();
    until("the engine starts", || place.at("pid").exists());
    kill(&mut runner);
    let engine = pid(&place, "pid");
    let stat = fs::read_to_string(format!("/proc/{engine}/stat")).unwrap();
    let parent = stat.rsplit_once(')').unwrap().1.split(' ').nth(2).unwrap().parse().unwrap();
    kill_process(Pid::from_raw(parent).unwrap(), Signal::KILL).unwrap();
    until("the engine ends along with its supervisor", || !alive(engine));
    let output = place.bmoe(&RESUME);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let mut expected = vec![(1, Verdict::Interrupted), (2, Verdict::Valid)];
    expected.extend([(1, Verdict::Valid); 3]);
    assert_eq!(attempts(&place), expected);
    let reason = place.journal()[0].reason.clone().unwrap();
    assert!(reason.starts_with("cut off before the first token: its supervisor"), "{reason}");
    // Nothing is left to do.
    let again = place.bmoe(&RESUME);
    assert_eq!((again.status.code(), attempts(&place).len()), (Some(0), 5), "{}", stderr(&again));
}

#[test]
fn ctrl_c_can_be_gone_on_from() {
    let place = Place::new(&format!(
        "case $(grep mode \"$config\") in *mmap*) succeed;; esac; [ -e \"$here/pid\" ] || {{ {SAY_PID} \
         exec sleep 100; }}; succeed"
    ));
    let runner = place.command(&RUN).spawn().unwrap();
    until("the second engine starts", || place.at("pid").exists());
    kill_process(Pid::from_child(&runner), Signal::INT).unwrap();
    let output = runner.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(!alive(pid(&place, "pid")));
    let output = place.bmoe(&RESUME);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let [valid, interrupted] = [Verdict::Valid, Verdict::Interrupted];
    assert_eq!(
        attempts(&place),
        [(1, valid), (1, interrupted), (2, valid), (1, valid), (1, valid)]
    );
}

#[test]
fn failed_runs_are_repeated_when_asked_for() {
    let place = Place::new(
        "case $(grep cache_mib \"$config\") in *8) [ -e \"$here/mended\" ] || exit 4;; esac; succeed",
    );
    assert_eq!(place.bmoe(&RUN).status.code(), Some(4));
    fs::write(place.at("mended"), "").unwrap();
    let mut again = RESUME.to_vec();
    let unchanged = place.bmoe(&again);
    assert_eq!((unchanged.status.code(), place.journal().len()), (Some(4), 4));
    again.push("--only-failed");
    let output = place.bmoe(&again);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(attempts(&place)[4..], [(2, Verdict::Valid)]);
}

#[test]
fn a_second_runner_is_refused() {
    let place = Place::new(&format!("{SAY_PID} exec sleep 100"));
    let mut runner = place.command(&RUN).spawn().unwrap();
    until("the engine starts", || place.at("pid").exists());
    let mut same_device = RUN.to_vec();
    same_device[3] = "other";
    let told = |output: Output| (output.status.code(), stderr(&output));
    let (code, text) = told(place.bmoe(&same_device));
    assert!(code == Some(3) && text.contains("another runner uses local"), "{text}");
    let mut same_folder = place.command(&RESUME);
    same_folder.env("BMOE_HOME", place.at("other-home"));
    let (code, text) = told(same_folder.output().unwrap());
    assert!(code == Some(3) && text.contains("another runner works in out"), "{text}");
    kill_process(Pid::from_child(&runner), Signal::TERM).unwrap();
    runner.wait().unwrap();
    until("the engine ends", || !alive(pid(&place, "pid")));
}

/// Kills the runner at ever later moments until one of them comes through; nothing may be lost, nothing be
/// run twice, nothing left running.
#[test]
fn a_runner_can_be_killed_at_any_moment() {
    let place = Place::new("echo \"$$ $trace\" >>\"$here/started\"; sleep 0.1; succeed");
    let mut runner = place.command(&RUN).spawn().unwrap();
    until("the result folder is there", || place.at("out/plan.json").exists());
    let mut killed = 0;
    loop {
        std::thread::sleep(Duration::from_millis(40 + 60 * killed));
        if let Some(status) = runner.try_wait().unwrap() {
            let output = runner.wait_with_output().unwrap();
            assert_eq!(status.code(), Some(0), "{}", stderr(&output));
            break;
        }
        kill(&mut runner);
        killed += 1;
        assert!(killed < 100, "no runner came through");
        runner = place.command(&RESUME).spawn().unwrap();
    }
    assert!(killed > 3);
    let mut runs: HashMap<_, Vec<_>> = HashMap::new();
    for record in place.journal() {
        let key = (record.id.clone(), record.repetition);
        runs.entry(key).or_default().push((record.attempt, record.verdict));
    }
    assert_eq!(runs.len(), 4);
    for attempts in runs.values() {
        let numbers: Vec<u32> = attempts.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (1..=u32::try_from(attempts.len()).unwrap()).collect::<Vec<_>>());
        let (last, earlier) = attempts.split_last().unwrap();
        assert_eq!(last.1, Verdict::Valid, "{attempts:?}");
        assert!(
            earlier.iter().all(|(_, verdict)| *verdict == Verdict::Interrupted),
            "{attempts:?}"
        );
    }
    let started = fs::read_to_string(place.at("started")).unwrap();
    let mut traces: Vec<&str> = started.lines().map(|l| l.split_once(' ').unwrap().1).collect();
    let count = traces.len();
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), count, "no attempt is run twice: {started}");
    for line in started.lines() {
        let pid = line.split_once(' ').unwrap().0.parse().unwrap();
        assert!(!alive(pid) || !is_ours(pid, &place.at("engine")), "{line} still runs");
    }
}

/// Another process may have the number by now.
fn is_ours(pid: i32, engine: &Path) -> bool {
    let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    command.contains(engine.parent().unwrap().to_str().unwrap())
}
