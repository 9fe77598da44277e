//! What people read, from made-up measurements.

use bmoe_bench::contender::{CEILING, CONTENDERS, Cache, Part};
use bmoe_bench::data::{
    Ceiling, Entry, Environment, MachineFacts, ModelFacts, Noise, Parts, Run, Settings, SliceFacts,
    Steps,
};
use bmoe_bench::render::report;
use bmoe_trace::Mode;

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

fn environment() -> Environment {
    Environment {
        version: 1,
        started: "2026-01-02T03:04:05Z".into(),
        engine: "bmoe-engine 0.1.0".into(),
        commit: "0123456789ab".into(),
        engine_sha256: "ab".repeat(32),
        machine: MachineFacts {
            cpu: "a processor".into(),
            cores: 2,
            mem_total_mib: 24_000,
            kernel: "6.1".into(),
            disk: "vda".into(),
            read_ahead_kib: 8192,
            huge_pages: "madvise".into(),
        },
        model: ModelFacts {
            shape: "qwen3-30b-a3b".into(),
            layers: 2,
            file: "qwen3-30b-a3b-2layers.gguf".into(),
            file_bytes: 1000 * MIB,
            dense_bytes: 200 * MIB,
            expert_bytes: 800 * MIB,
            slices: vec![
                SliceFacts { bytes: MIB, per_token: 24 },
                SliceFacts { bytes: 2 * MIB, per_token: 4 },
            ],
        },
        settings: Settings {
            tokens: 4,
            repeats: 2,
            cache_mib: 250,
            limit_mib: 500,
            threads: 2,
            lanes: 4,
            shape: "qwen3-30b-a3b".into(),
            layers: 2,
        },
    }
}

/// Milliseconds of one token of a contender.
fn wall_ms(name: &str) -> u64 {
    match name {
        "resident" => 60,
        "mmap" => 130,
        "mmap-own-readahead" => 1300,
        "stream" | "layers" => 80,
        "stream-serial" | "layers-serial" => 95,
        "stream-whole" => 61,
        _ => 160,
    }
}

fn run(name: &str, round: u32) -> Run {
    let contender = CONTENDERS.iter().find(|c| c.name == name).unwrap();
    let tokens = contender.tokens(&environment().settings) as usize;
    let stream = contender.mode == Mode::Stream;
    let read = match (contender.mode, contender.cache) {
        (Mode::Stream, Cache::Off) => 32 * MIB,
        (Mode::Stream, Cache::Part) => 4 * MIB,
        _ => 0,
    };
    let wall = (wall_ms(name) + u64::from(round)) * MS;
    let all = |value: u64| vec![value; tokens];
    let budget = match contender.cache {
        Cache::Off => 0,
        Cache::Part => 250 * MIB,
        Cache::Whole => 800 * MIB,
    };
    let weights = if stream { 200 * MIB + budget + 20 * MIB } else { 1000 * MIB };
    let records = Steps {
        wall_ns: all(wall),
        compute_ns: all(wall * 3 / 4),
        io_wait_ns: all(wall / 5),
        mgmt_ns: all(MS),
        io_active_ns: all(if read > 0 { 20 * MS } else { 0 }),
        expert_read_bytes: all(read),
        device_read_bytes: all(read + read / 256),
        hits: all(12),
        misses: all(4),
        cpu_ns: all(2 * wall),
        major_faults: all(0),
        cache_resident_bytes: (1..=tokens as u64).map(|t| budget.min(t * 100 * MIB)).collect(),
    };
    let parts = Parts {
        dense_ns: all(40 * MS),
        fetch_ns: all(MS),
        experts_ns: all(20 * MS),
        stall_ns: all(15 * MS),
        io_ns: all(30 * MS),
        bound_ns: all(70 * MS),
        serial_ns: all(90 * MS),
    };
    let words = ["ko", "re", "ta", "mi"];
    Run {
        text: words[..tokens].join(" "),
        logits_sha256: (contender.part == Part::Check).then(|| "cd".repeat(32)),
        load_ns: if stream { 300 * MS } else { 3000 * MS },
        dense_read_ns: if stream { 150 * MS } else { 0 },
        dense_read_bytes: if stream { 200 * MIB } else { 0 },
        load_expert_bytes: 0,
        cache_budget_bytes: budget,
        event_room_bytes: if stream { 20 * MIB } else { 0 },
        direct_io: "used".into(),
        prompt_tokens: 64,
        prefill_ns: 500 * MS,
        prefill_wait_ns: 300 * MS,
        prefill_read_bytes: 400 * MIB,
        first_token_ns: if stream { 2900 * MS } else { 4000 * MS },
        peak_rss_bytes: weights + 90 * MIB,
        peak_group_bytes: 0,
        steps: if contender.part == Part::Telemetry { Steps::default() } else { records },
        parts: if contender.part == Part::Layers { parts } else { Parts::default() },
        arrivals_ns: if contender.part == Part::Telemetry {
            all(60 * MS + if name == "telemetry-none" { 0 } else { MS / 5 })
        } else {
            Vec::new()
        },
    }
}

fn entry(name: &str, round: u32) -> Entry {
    Entry {
        name: name.into(),
        round,
        started: "2026-01-02T03:04:05Z".into(),
        noise: Noise { load_before: 1.0, load_after: 1.5, ..Noise::default() },
        run: None,
        ceiling: None,
        failure: None,
    }
}

fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for contender in CONTENDERS {
        let rounds = if matches!(contender.part, Part::Check | Part::Profile) { 1 } else { 2 };
        for round in 0..rounds {
            let run = (contender.part != Part::Profile).then(|| run(contender.name, round));
            entries.push(Entry { run, ..entry(contender.name, round) });
        }
    }
    let ceiling = [(MIB, 1500.0), (2 * MIB, 1800.0)]
        .map(|(bytes, mib_s)| Ceiling { bytes, lanes: 4, mib_s })
        .to_vec();
    entries.push(Entry { ceiling: Some(ceiling), ..entry(CEILING, 0) });
    entries
}

#[test]
fn a_whole_benchmark() {
    insta::assert_snapshot!(report(&environment(), &entries(), true));
}

#[test]
fn what_went_wrong_is_said() {
    let mut entries = entries();
    for entry in &mut entries {
        match entry.name.as_str() {
            "stream-off" => {
                entry.run = None;
                entry.failure = Some("exit status: 4: error: no".into());
            }
            "stream-serial" => entry.noise.others_cores = 0.5,
            "check-mmap" => {
                entry.run.as_mut().unwrap().logits_sha256 = Some("ef".repeat(32));
            }
            "stream" => entry.run.as_mut().unwrap().text = "other".into(),
            _ => {}
        }
    }
    entries.retain(|e| e.name != CEILING);
    let text = report(&environment(), &entries, false);
    for said in [
        "stream-off, repeat 1, failed: exit status: 4: error: no",
        "| stream-serial | 1 | 0.50 |",
        "**Other logits**: check-mmap.",
        "**Other text**: stream.",
        "The disk's ceiling was not measured.",
        "| 4 | cache off: rate while reads are outstanding, over the disk's ceiling | ≥ 0.9 | – | not measured |",
    ] {
        assert!(text.contains(said), "{said:?} is missing from\n{text}");
    }
}

#[test]
fn nothing_measured_is_no_reason_to_panic() {
    assert!(report(&environment(), &[], false).contains("not measured"));
}
