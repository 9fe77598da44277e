//! The runner against an executor without processes: order, judgement, recovery.

#[path = "../common/mod.rs"]
mod common;
mod scripted;

use std::fs;
use std::path::Path;
use std::time::Duration;

use bmoe::runner::{ExecutorError, Exit, Interrupt, Work};
use bmoe_analysis::result_set::{LoadAverage, Verdict};
use bmoe_trace::CacheBudget;
use bmoe_trace::supervised::{Sample, StoppedBy};

use scripted::*;

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
