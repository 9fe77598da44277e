//! Compute threads and read lanes on their own cores.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bmoe_engine::run::default_threads;
use bmoe_trace::record::Record;
use bmoe_trace::{Mode, RunConfig};

/// Number, name and cores of every thread of this process.
fn threads() -> Vec<(i32, String, String)> {
    let field = |status: &str, name: &str| {
        status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or("").trim().to_owned()
    };
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok())
        .map(|status| {
            let number = field(&status, "Pid:").parse().unwrap();
            (number, field(&status, "Name:"), field(&status, "Cpus_allowed_list:"))
        })
        .collect()
}

/// What was seen while a run went on.
struct Seen {
    threads: BTreeSet<(i32, String, String)>,
    /// The thread that ran the engine.
    main: i32,
    /// The mask that was recorded.
    mask: String,
}

impl Seen {
    /// The cores of the threads with a name, but not of the main one.
    fn cores(&self, name: &str) -> BTreeSet<&str> {
        let of = self.threads.iter().filter(|(t, n, _)| n.starts_with(name) && *t != self.main);
        of.map(|(.., cores)| cores.as_str()).collect()
    }
}

fn watch(config: &RunConfig) -> Seen {
    let over = Arc::new(AtomicBool::new(false));
    let watched = Arc::clone(&over);
    let watcher = std::thread::spawn(move || {
        let mut seen = BTreeSet::new();
        while !watched.load(Ordering::SeqCst) {
            seen.extend(threads());
            std::thread::yield_now();
        }
        seen
    });
    let config = config.clone();
    // ggml's threads inherit the name of the one that computes, and its cores.
    let computing = std::thread::Builder::new().name("computing".into());
    let run = computing.spawn(move || {
        let main = rustix::thread::gettid().as_raw_nonzero().get();
        let cores = || threads().into_iter().find(|t| t.0 == main);
        let before = cores();
        let result = common::run(&config);
        assert_eq!(cores(), before, "the thread gets its cores back");
        (result, main)
    });
    let (result, main) = run.unwrap().join().unwrap();
    over.store(true, Ordering::SeqCst);
    let (_, records) = result.unwrap();
    let Record::Start(start) = &records.0[0] else { panic!("the first record is the start") };
    Seen { threads: watcher.join().unwrap(), main, mask: start.config.cpu_mask.clone() }
}

#[test]
fn compute_threads_and_lanes_are_apart() {
    if default_threads() != 2 {
        return eprintln!("skipped: this test is made for two cores");
    }
    let _place = common::place(2);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let base = RunConfig { n_predict: 1, threads: 2, ..common::config(&model, Mode::Stream) };

    let seen = watch(&RunConfig { cpu_mask: "0x2".into(), ..base.clone() });
    assert_eq!(seen.mask, "1");
    assert_eq!(seen.cores("bmoe-lane"), BTreeSet::from(["0"]));
    let computing = seen.cores("computing");
    // A lane has its creator's name at first.
    assert!(computing.contains("1") && !computing.contains("0-1"), "{computing:?}");

    // Both cores compute: lanes share them.
    let seen = watch(&RunConfig { cpu_mask: "0,1".into(), ..base });
    assert_eq!(seen.mask, "0-1");
    assert_eq!(seen.cores("bmoe-lane"), BTreeSet::from(["0-1"]));
}
