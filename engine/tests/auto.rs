//! A cache whose size the engine chooses from the memory that is available.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use bmoe_engine::llama::gguf::ModelInfo;
use bmoe_engine::run::{MemoryWatch, RecordSink, RunOptions};
use bmoe_engine::{EngineError, generate};
use bmoe_trace::codec::TraceReader;
use bmoe_trace::record::{BudgetRecord, Record};
use bmoe_trace::{CacheBudget, Mode, RunConfig};

const MIB: u64 = 1 << 20;

/// A model with experts of some tens of MiB.
fn model(folder: &Path) -> PathBuf {
    let mut shape = common::tiny("qwen3moe").with_type(bmoe_synth::WeightType::F32).unwrap();
    shape.dims.experts = 32;
    common::model(folder, &shape, "m", None)
}

fn auto(model: &Path, floor: u64) -> RunConfig {
    RunConfig {
        cache_mib: CacheBudget::Auto,
        cache_floor_mib: floor,
        force_cache: false,
        ..common::config(model, Mode::Stream)
    }
}

/// A root folder whose system says how much memory is available.
fn say(root: &Path, available_mib: u64) {
    std::fs::create_dir_all(root.join("proc")).unwrap();
    let text = format!(
        "MemTotal: {} kB\nMemFree: 1 kB\nMemAvailable: {} kB\n",
        640 * 1024,
        available_mib * 1024
    );
    std::fs::write(root.join("proc/meminfo"), text).unwrap();
}

/// Changes what the system says behind certain tokens.
struct Changes<'a> {
    root: &'a Path,
    /// (step, available MiB)
    at: &'a [(u32, u64)],
    records: common::Records,
}

impl RecordSink for Changes<'_> {
    fn record(&mut self, record: &Record) -> Result<(), EngineError> {
        if let Record::Token(token) = record
            && let Some((_, available)) = self.at.iter().find(|(step, _)| *step == token.step)
        {
            say(self.root, *available);
        }
        self.records.record(record)
    }

    fn wants_routes(&self) -> bool {
        true
    }
}

fn run(config: &RunConfig, root: &Path, at: &[(u32, u64)]) -> Result<common::Records, EngineError> {
    let memory = MemoryWatch { root: root.to_owned(), every: Duration::ZERO };
    let options = RunOptions { poison: true, memory, ..RunOptions::default() };
    let mut changes = Changes { root, at, records: common::Records::default() };
    generate(config, &options, &mut [&mut changes])?;
    Ok(changes.records)
}

fn budgets(records: &common::Records) -> Vec<&BudgetRecord> {
    records
        .0
        .iter()
        .filter_map(|r| if let Record::Budget(b) = r { Some(b) } else { None })
        .collect()
}

#[test]
fn the_cache_shrinks_when_memory_runs_short_and_the_text_stays() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = model(folder.path());
    let info = ModelInfo::read(&model).unwrap();
    let (all, demand) =
        (info.experts.total_bytes(), info.experts.token_demand_bytes(info.n_expert_used));
    let (resident, _) = common::run(&common::config(&model, Mode::Resident)).unwrap();

    say(folder.path(), 600);
    // The reserve of 640 MiB is 32.
    let records =
        run(&auto(&model, 1), folder.path(), &[(5, 100), (10, 10), (11, 100), (20, 0)]).unwrap();
    let Some(Record::End(end)) = records.0.last() else { panic!("no last record") };
    assert_eq!(end.logits_sha256, resident.logits_sha256);
    assert_eq!(records.load().cache_budget_bytes, all);

    let budgets = budgets(&records);
    assert!(!budgets.is_empty());
    assert_eq!((budgets[0].step, budgets[0].from_bytes), (10, all));
    assert_eq!(budgets[0].available_bytes, 10 * MIB);
    assert!(budgets.windows(2).all(|b| b[0].to_bytes == b[1].from_bytes));
    let last = budgets.last().unwrap();
    assert_eq!(last.to_bytes, demand, "never below what one token needs");
    assert!(budgets.iter().map(|b| b.evicted).sum::<u64>() > 0);
    for token in records.tokens() {
        assert!(token.cache_resident_bytes <= token.cache_budget_bytes);
        let expected = if token.step <= 10 { all } else { budgets[0].to_bytes };
        if token.step <= 20 {
            assert_eq!(token.cache_budget_bytes, expected, "step {}", token.step);
        }
    }
}

#[test]
fn a_floor_that_is_not_there_is_refused() {
    let folder = common::folder();
    let model = model(folder.path());
    say(folder.path(), 40);
    let error = run(&auto(&model, 30), folder.path(), &[]).unwrap_err();
    assert_eq!(error.exit_code(), 3);
    let message = error.to_string();
    for part in ["40 MiB of 640 MiB", "the system", "32 MiB in reserve", "--cache-floor-mb 30"] {
        assert!(message.contains(part), "no {part:?} in {message}");
    }
    let error = run(&auto(&model, 1), &folder.path().join("nothing"), &[]).unwrap_err();
    assert!(error.to_string().contains("doesn't tell"), "{error}");
}

/// A control group of version 1, removed at the end.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> std::io::Result<Self> {
        let folder = format!("/sys/fs/cgroup/memory/bmoe-{name}-{}", std::process::id());
        std::fs::create_dir(&folder)?;
        let group = Self(folder.into());
        group.limit(1 << 40)?;
        Ok(group)
    }

    fn limit(&self, bytes: u64) -> std::io::Result<()> {
        std::fs::write(self.0.join("memory.limit_in_bytes"), bytes.to_string())
    }

    fn engine(&self, arguments: &[&str]) -> Output {
        Command::new("sh")
            .args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""])
            .arg(&self.0)
            .arg(env!("CARGO_BIN_EXE_bmoe-engine"))
            .args(arguments)
            .output()
            .unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_control_group_is_the_memory_that_there_is() {
    let group = match Group::new("auto") {
        Ok(group) => group,
        Err(e) => {
            return eprintln!("skipped: no memory control group of version 1 can be made: {e}");
        }
    };
    let _place = common::place(1);
    let folder = common::folder();
    let model = model(folder.path());
    let path = model.display().to_string();
    let trace = folder.path().join("run.trace");
    let arguments = |floor| {
        let trace = trace.to_str().unwrap();
        ["generate", "-m", &path, "-p", "a", "-n", "8", "-t", "1", "--cache-mb", "auto"]
            .into_iter()
            .chain(["--cache-floor-mb", floor, "--trace", trace])
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let engine = |floor| {
        let arguments = arguments(floor);
        group.engine(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    // Dense weights, context and the program itself take some of it.
    group.limit(100 * MIB).unwrap();
    let output = engine("1");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let file = std::io::BufReader::new(std::fs::File::open(&trace).unwrap());
    let mut reader = TraceReader::new(file).unwrap();
    let load = loop {
        if let Record::Load(load) = reader.read().unwrap().expect("the trace has a load record") {
            break load;
        }
    };
    // The reserve of 100 MiB is 32.
    let memory = load.cache_budget_bytes + load.event_room_bytes;
    assert!(load.cache_budget_bytes >= MIB && memory <= 68 * MIB, "{load:?}");

    let output = engine("90");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("of 100 MiB available (control group /bmoe-auto-"), "{text}");
}
