//! Supervised runs of a script in the engine's place.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bmoe_supervise::follow::{follow, state};
use bmoe_supervise::stop::stop;
use bmoe_supervise::supervise::{Options, supervise};
use bmoe_supervise::{Lock, process};
use bmoe_trace::RunConfig;
use bmoe_trace::supervised::{
    ABANDONED_FILE, Followed, LINES_FILE, LOG_FILE, Offsets, RUN_FILE, SAMPLES_FILE, STATUS_FILE,
    Sample, Status, StoppedBy, Supervisor,
};

/// Writes a program from a process of its own: a child that another thread starts at this moment would hold
/// it open for writing, and then it can't be executed.
fn write_program(path: &Path, text: &str) {
    let script = "cat >\"$1\" && chmod 755 \"$1\"";
    let mut child = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// A folder of a run whose engine is this shell code.
fn folder(engine: &str) -> (tempfile::TempDir, Options) {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("m.gguf");
    fs::write(&model, "GGUF").unwrap();
    let config = RunConfig { model, ..RunConfig::default() };
    let run = dir.path().join("run");
    fs::create_dir(&run).unwrap();
    fs::write(run.join(RUN_FILE), config.to_toml()).unwrap();
    let program = dir.path().join("engine");
    write_program(&program, engine);
    let options = Options {
        folder: run,
        timeout: Some(Duration::from_secs(60)),
        sample_every: Duration::from_millis(50),
        lock: None,
        engine: program,
    };
    (dir, options)
}

static GO: AtomicBool = AtomicBool::new(false);

fn read(options: &Options, name: &str) -> String {
    fs::read_to_string(options.folder.join(name)).unwrap_or_default()
}

fn followed(folder: &Path, from: Offsets) -> Vec<Followed> {
    let mut out = Vec::new();
    follow(folder, from, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    text.lines().map(|line| Followed::parse(line).expect(line)).collect()
}

#[test]
fn a_run_leaves_its_output_its_samples_and_how_it_ended() {
    let (_dir, options) =
        folder("#!/bin/sh\necho \"$@\" >&2; echo noise; echo 'BMOE_BEGIN {}'; sleep 0.2; exit 7\n");
    let status = supervise(&options, &GO).unwrap();
    let Status::Ended { supervisor, exit_code, signal, stopped, wall_ns, .. } = &status else {
        panic!("{status:?}")
    };
    assert_eq!((*exit_code, *signal, *stopped), (Some(7), None, None));
    assert!(*wall_ns >= 200_000_000 && *supervisor == process::own());
    let stored: Status = serde_json::from_str(&read(&options, STATUS_FILE)).unwrap();
    assert_eq!(stored, status);
    assert_eq!(read(&options, LINES_FILE), "noise\nBMOE_BEGIN {}\n");
    let log = read(&options, LOG_FILE);
    assert!(log.starts_with("generate --config ") && log.contains("--progress --parent "), "{log}");
    let samples: Vec<Sample> = read(&options, SAMPLES_FILE)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(samples.len() >= 3, "before, meanwhile and after: {}", samples.len());
    assert_eq!((samples[0].elapsed_ms, samples[0].rss_bytes), (0, None));
    assert!(samples.iter().any(|sample| sample.rss_bytes.is_some()));

    // Whoever comes again hears the same, and what was heard already is not told again.
    let all = followed(&options.folder, Offsets::default());
    assert!(
        matches!(&all[0], Followed::Line(_))
            && all.last() == Some(&Followed::Status(status.clone()))
    );
    let Some(Followed::At(end)) = all.iter().rev().nth(1) else { panic!("{all:?}") };
    assert_eq!(end.lines, 20);
    assert_eq!(
        followed(&options.folder, *end),
        [Followed::At(*end), Followed::Status(status.clone())]
    );

    // Nothing is run a second time.
    assert_eq!(supervise(&options, &GO).unwrap(), status);
    assert_eq!(read(&options, LINES_FILE), "noise\nBMOE_BEGIN {}\n");
}

#[test]
fn time_limits_and_requests_end_the_engine_and_what_it_started() {
    let engine = "#!/bin/sh\nsleep 1000 & echo $!; wait\n";
    let (_dir, options) = folder(engine);
    let limited = Options { timeout: Some(Duration::from_millis(300)), ..options };
    let status = supervise(&limited, &GO).unwrap();
    let Status::Ended { stopped: Some(StoppedBy::Timeout), signal: Some(15), .. } = status else {
        panic!("{status:?}")
    };
    let child: i32 = read(&limited, LINES_FILE).trim().parse().unwrap();
    let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");

    let (_dir, asked) = folder(engine);
    let status = supervise(&asked, &AtomicBool::new(true)).unwrap();
    assert!(
        matches!(status, Status::Ended { stopped: Some(StoppedBy::Request), .. }),
        "{status:?}"
    );
}

fn refusal(options: &Options) -> String {
    match supervise(options, &GO).unwrap() {
        Status::Refused { message } => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_can_not_be_run_is_refused_with_the_reason() {
    let (dir, options) = folder("#!/bin/sh\nexit 0\n");
    let lock: PathBuf = dir.path().join("lock");
    let held = Lock::take(&lock, "somebody's run", Duration::ZERO).unwrap().unwrap();
    let busy = refusal(&Options { lock: Some(lock), ..options });
    assert!(busy.starts_with("another engine runs on this device: somebody's run"), "{busy}");
    drop(held);

    let (dir, options) = folder("");
    fs::remove_file(dir.path().join("m.gguf")).unwrap();
    let missing = refusal(&options);
    assert!(
        missing.contains("m.gguf") && missing.starts_with("cannot open the model"),
        "{missing}"
    );

    let (_dir, options) = folder("#!/bin/sh\nexit 0\n");
    let none = refusal(&Options { engine: "/no/such/engine".into(), ..options });
    assert!(none.starts_with("cannot start the engine /no/such/engine"), "{none}");

    let (_dir, options) = folder("#!/bin/sh\nexit 0\n");
    fs::write(options.folder.join(ABANDONED_FILE), "").unwrap();
    assert!(refusal(&options).contains("given this attempt up"));
}

#[test]
fn a_supervisor_that_is_gone_is_told_from_one_that_runs() {
    let (_dir, options) = folder("");
    assert_eq!(state(&options.folder).unwrap(), Status::Absent);
    let put = |supervisor: &Supervisor| {
        let json = serde_json::to_vec(&Status::Running(supervisor.clone())).unwrap();
        fs::write(options.folder.join(STATUS_FILE), json).unwrap();
    };
    let me = process::own();
    put(&me);
    assert_eq!(state(&options.folder).unwrap(), Status::Running(me.clone()));
    // Another process has the number by now.
    let gone = Supervisor { start_ticks: me.start_ticks + 1, ..me };
    put(&gone);
    let lost = Status::Lost { supervisor: gone };
    assert_eq!(followed(&options.folder, Offsets::default()).last(), Some(&Followed::Status(lost)));
}

#[test]
fn a_run_that_was_given_up_never_begins() {
    let (_dir, options) = folder("#!/bin/sh\nexit 0\n");
    assert_eq!(stop(&options.folder).unwrap(), Status::Absent);
    assert!(refusal(&options).contains("given this attempt up"));
}

#[test]
fn endless_lines_are_passed_over() {
    let (_dir, options) = folder("");
    let long = "x".repeat(3 << 20);
    let text = format!("BMOE_BEGIN {{}}\n{long}\nBMOE_BEGIN {{}}\nBMOE_BEG");
    fs::write(options.folder.join(LINES_FILE), &text).unwrap();
    let lines = followed(&options.folder, Offsets::default());
    assert_eq!(lines.iter().filter(|line| matches!(line, Followed::Line(_))).count(), 2);
    let Some(Followed::At(at)) = lines.iter().rev().nth(1) else { panic!("{lines:?}") };
    assert_eq!(at.lines, text.len() as u64);
}
