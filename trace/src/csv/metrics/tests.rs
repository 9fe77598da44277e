use std::collections::HashMap;

use super::*;
use crate::record::{BudgetRecord, IoEngineUsed, LayerShape, MemoryState, ModelShape, TurnRecord};

fn start() -> Record {
    Record::Start(Box::new(RunStart {
        run_id: "r-1".into(),
        started_unix_ms: 0,
        engine_version: "0.1.0".into(),
        llama_version: "0.1.161".into(),
        config: RunConfig {
            model: "models/my model.gguf".into(),
            cache_mib: CacheBudget::Mib(8),
            n_predict: 2,
            threads: 2,
            ..RunConfig::default()
        },
        model: ModelShape {
            arch: "qwen3moe".into(),
            n_layer: 2,
            n_expert: 8,
            n_expert_used: 2,
            file_bytes: 40 << 20,
            dense_bytes: 16 << 20,
            layers: (0..2)
                .map(|layer| LayerShape { layer, expert_bytes: (1 + u64::from(layer)) << 20 })
                .collect(),
        },
    }))
}

fn load(direct_io: DirectIo) -> Record {
    Record::Load(LoadRecord {
        load_ns: 1_500_000_000,
        dense_read_ns: 1,
        dense_read_bytes: 16 << 20,
        expert_read_bytes: 0,
        cache_budget_bytes: 8 << 20,
        event_room_bytes: 4 << 20,
        direct_io,
        io_engine: IoEngineUsed::Pread,
        rss_bytes: 30 << 20,
        preloaded_bytes: 0,
        preload_ns: 0,
    })
}

fn token(step: u32) -> Record {
    Record::Token(TokenRecord {
        step,
        position: 10 + step,
        token: 5,
        cost: Cost {
            wall_ns: 100_000_000,
            io_wait_ns: 40_000_000,
            compute_ns: 55_000_000,
            mgmt_ns: 1_000_000,
            lane_busy_ns: 90_000_000,
            io_active_ns: 50_000_000,
            other_ns: 4_000_000,
            expert_read_bytes: 3 << 20,
            device_read_bytes: (3 << 20) + 8192,
            reads: 2,
            hits: 2,
            misses: 2,
            speculated: 4,
            speculated_bytes: 1 << 20,
            speculated_hits: 1,
            speculated_wasted: 2,
            major_faults: 1,
            cpu_ns: 110_000_000,
        },
        cumulative_hit_rate: 0.5,
        cache_resident_bytes: 7 << 20,
        cache_budget_bytes: 8 << 20,
        rss_bytes: 50 << 20,
        memory: MemoryState {
            anon_bytes: Some(40 << 20),
            available_bytes: Some(900 << 20),
            ..MemoryState::default()
        },
    })
}

fn end(tokens: u32) -> Record {
    Record::End(Box::new(RunEnd {
        outcome: Outcome::Complete,
        tokens,
        decode_ns: 100_000_000 * u64::from(tokens),
        peak_rss_bytes: 60 << 20,
        peak_cache_bytes: 8 << 20,
        peak_event_bytes: 2 << 20,
        text: "two words".into(),
        logits_sha256: None,
    }))
}

fn write(records: &[Record]) -> String {
    let mut csv = MetricsCsv::new(Vec::new());
    for record in records {
        csv.record(record).unwrap();
    }
    String::from_utf8(csv.into_inner()).unwrap()
}

fn serial() -> Record {
    let mut start = start();
    if let Record::Start(start) = &mut start {
        start.config.overlap = false;
    }
    start
}

/// The values of a file's n-th row by their column, and its last line.
fn row_of(text: &str, n: usize) -> (HashMap<&str, &str>, &str) {
    let mut lines = text.lines().skip_while(|l| l.starts_with('#'));
    let names: Vec<_> = lines.next().unwrap().split(',').collect();
    let values: Vec<_> = lines.nth(n).unwrap().split(',').collect();
    assert_eq!(names.len(), values.len());
    (names.into_iter().zip(values).collect(), text.lines().last().unwrap())
}

#[test]
fn the_preamble_says_what_ran() {
    let text = write(&[start(), load(DirectIo::Used), token(1), token(2), end(2)]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[..2], ["# bmoe_metrics v2", "# engine=bmoe-engine-0.1.0"]);
    assert!(lines[2].starts_with("# model=my%20model.gguf arch=qwen3moe n_layer=2 "), "{text}");
    assert!(lines[2].ends_with(" n_ubatch=512 chatml=0"), "{text}");
    assert!(lines[3].contains(" cache_mb=8 ") && lines[3].contains(" o_direct=1 "), "{text}");
    assert_eq!(lines[4], "# temp=0 top_k=40 top_p=0.95 seed=0 compute_trace_layers=0 spec=off");
    assert!(lines[5].contains(" cache_policy=lru io_engine=pread "), "{text}");
    // Readers refuse a key that comes twice.
    let pairs = lines[1..6].iter().flat_map(|l| l[2..].split(' '));
    let mut keys: Vec<_> = pairs.map(|pair| pair.split_once('=').unwrap().0).collect();
    let all = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), all, "{text}");
}

#[test]
fn a_row_names_every_column() {
    let text = write(&[serial(), load(DirectIo::Used), token(1), token(2), end(2)]);
    let (row, summary) = row_of(&text, 0);
    for (name, value) in [
        ("step", "1"),
        ("steps", "2"),
        ("turn", "0"),
        ("wall_ms", "100.000"),
        ("io_ms", "40.000"),
        ("stall_ms", "0.000"),
        ("compute_ms", "55.000"),
        ("read_bytes", "4194304"),
        ("cache_hit_pct", "50.00"),
        ("rss_mib", "50.0"),
        ("rss_anon_mib", "40.0"),
        ("mem_available_mib", "900.0"),
        ("swap_mib", "-1.0"),
        ("mtp_batch", "-1"),
        ("drain_ms", "-1.000"),
        ("io_wait_ms", "40.000"),
        ("lane_busy_ms", "90.000"),
        ("io_active_ms", "50.000"),
        ("misses", "2"),
        ("speculated_wasted", "2"),
    ] {
        assert_eq!(row[name], value, "{name}");
    }
    assert!(summary.starts_with("# summary tokens=2 s/tok=0.100 tok/s=10.000 read_MiB=8.0 "));
    for pair in [
        " io_s=0.08 ",
        " stall_s/tok=0.000 ",
        " cache_resizes=0 ",
        " spec_read_MiB=2.0 spec_experts=8 spec_useful=2 ",
        " token_demand_MiB=6.0 layer_demand_MiB=4.0 ",
        " spec_wasted=4 ",
    ] {
        assert!(summary.contains(pair), "{pair}: {summary}");
    }
    assert!(summary.ends_with(" outcome=complete"), "{summary}");
}

#[test]
fn under_overlap_io_is_the_lanes_time_and_stall_is_what_computation_waited() {
    let text = write(&[start(), load(DirectIo::Used), token(1), end(1)]);
    assert!(text.contains(" overlap=1 "), "{text}");
    let (row, summary) = row_of(&text, 0);
    assert_eq!((row["io_ms"], row["stall_ms"]), ("90.000", "40.000"));
    assert_eq!((row["io_wait_ms"], row["lane_busy_ms"]), ("40.000", "90.000"));
    assert!(summary.contains(" io_s/tok=0.090 "), "{summary}");
    assert!(summary.contains(" stall_s/tok=0.040 "), "{summary}");
}

#[test]
fn turns_and_changes_of_the_budget_are_counted() {
    let turn = |turn, reused_tokens| {
        let id = format!("request {turn}");
        Record::Turn(TurnRecord { turn, id, prompt_tokens: 12, reused_tokens, n_predict: 2 })
    };
    let prefill = |prompt_tokens| {
        Record::Prefill(PrefillRecord {
            prompt_tokens,
            ubatches: 1,
            cost: Cost { wall_ns: 500_000_000, ..Cost::default() },
            time_to_first_token_ns: 2_000_000_000,
        })
    };
    let budget = Record::Budget(BudgetRecord {
        step: 1,
        from_bytes: 8 << 20,
        to_bytes: 6 << 20,
        available_bytes: 100 << 20,
        evicted: 2,
    });
    let mut smaller = token(1);
    if let Record::Token(token) = &mut smaller {
        token.cache_budget_bytes = 6 << 20;
    }
    let text = write(&[
        start(),
        load(DirectIo::Used),
        turn(0, 0),
        prefill(9),
        token(1),
        budget,
        turn(1, 9),
        prefill(3),
        smaller,
        end(2),
    ]);
    let (row, summary) = row_of(&text, 1);
    assert_eq!((row["turn"], row["cache_budget_mib"]), ("1", "6.0"));
    for pair in [
        " n_prompt=12 ",
        " prefill_s=1.000 prefill_tps=12.00 ",
        " cache_budget_MiB=6.0 cache_resizes=1 ",
        " ttft_s=2.000 ",
    ] {
        assert!(summary.contains(pair), "{pair}: {summary}");
    }
}

#[test]
fn what_a_mode_does_not_measure_is_minus_one() {
    for mode in [Mode::Mmap, Mode::Resident] {
        let mut start = start();
        if let Record::Start(start) = &mut start {
            start.config.mode = mode;
        }
        let text = write(&[start, load(DirectIo::NotApplicable), token(1), end(1)]);
        let (row, summary) = row_of(&text, 0);
        for name in ["io_ms", "mgmt_ms", "io_wait_ms", "lane_busy_ms"] {
            assert_eq!(row[name], "-1.000", "{name}");
        }
        assert_eq!(row["stall_ms"], "0.000");
        for name in ["read_bytes", "reads", "device_read_bytes", "hits", "misses", "speculated"] {
            assert_eq!(row[name], "-1", "{name}");
        }
        assert_eq!((row["compute_ms"], row["other_ms"]), ("55.000", "4.000"));
        for pair in [" read_MiB=-1.0 ", " io_s=-1.00 ", " io_s/tok=-1.000 ", " mgmt_s/tok=-1.000 "]
        {
            assert!(summary.contains(pair), "{pair}: {summary}");
        }
    }
}

#[test]
fn direct_io_that_was_not_used_is_not_claimed() {
    let refused = DirectIo::Unavailable { reason: "tmpfs".into() };
    assert!(write(&[start(), load(refused)]).contains(" o_direct=0 "));
}

#[test]
fn no_tokens_leave_unmeasured_rates_and_no_nan() {
    let text = write(&[start(), load(DirectIo::Used), end(0)]);
    assert!(text.contains("tokens=0 s/tok=-1.000 tok/s=-1.000"), "{text}");
    assert!(!text.to_lowercase().contains("nan"), "{text}");
}

#[test]
fn the_start_record_is_needed() {
    assert!(MetricsCsv::new(Vec::new()).record(&token(1)).is_err());
}

#[test]
fn the_published_columns_come_first_in_their_order() {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/published/2026-07-17/qwen_k6.csv");
    let Ok(published) = std::fs::read_to_string(path) else {
        eprintln!("skipped: the published metrics are not beside this repository");
        return;
    };
    let header = published.lines().find(|l| l.starts_with("step,")).unwrap();
    assert!(HEADER.starts_with(&format!("{header},")), "{header}\n{HEADER}");
}
