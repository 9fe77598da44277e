//! What the engine would leave behind, made without one.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod place;
pub(crate) mod session;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use bmoe_trace::RunConfig;
use bmoe_trace::codec::TraceWriter;
use bmoe_trace::line::{Done, Line, Progress};
use bmoe_trace::record::{
    Cost, LayerShape, MemoryState, ModelShape, Outcome, Record, RunEnd, RunStart, TokenRecord,
};

/// The program in the engine's place. Cargo builds it along with all tests of the workspace, but not with those
/// of this package; asking again costs little.
pub(crate) fn fake_engine() -> PathBuf {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--offline", "--locked", "-p", "bmoe-supervise"])
            .args(["--example", "fake_engine"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(status.success());
    });
    let tests = std::env::current_exe().unwrap();
    tests.parent().and_then(|deps| deps.parent()).unwrap().join("examples/fake_engine")
}

/// The start of a run with the given id.
pub(crate) fn start(run_id: &str, config: RunConfig) -> Record {
    Record::Start(Box::new(RunStart {
        run_id: run_id.to_owned(),
        started_unix_ms: 1_700_000_000_000,
        engine_version: "0.0.0-fake".to_owned(),
        llama_version: "none".to_owned(),
        config,
        model: ModelShape {
            arch: "fake".to_owned(),
            n_layer: 1,
            n_expert: 4,
            n_expert_used: 2,
            file_bytes: 4096,
            dense_bytes: 1024,
            layers: vec![LayerShape { layer: 0, expert_bytes: 768 }],
        },
    }))
}

/// Decode step `step` (from 1) with its token.
pub(crate) fn token(step: u32, token: i32) -> Record {
    Record::Token(TokenRecord {
        step,
        position: 4 + step,
        token,
        cost: Cost { wall_ns: 10_000_000, compute_ns: 8_000_000, ..Cost::default() },
        cumulative_hit_rate: f64::NAN,
        cache_resident_bytes: 0,
        cache_budget_bytes: 0,
        rss_bytes: 1 << 20,
        memory: MemoryState::default(),
    })
}

/// The end of a run.
pub(crate) fn end(outcome: Outcome, tokens: u32, text: &str) -> Record {
    Record::End(Box::new(RunEnd {
        outcome,
        tokens,
        decode_ns: u64::from(tokens) * 10_000_000,
        peak_rss_bytes: 1 << 20,
        peak_cache_bytes: 0,
        peak_event_bytes: 0,
        text: text.to_owned(),
        logits_sha256: None,
    }))
}

/// Writes a trace file.
pub(crate) fn write_trace(path: &Path, records: &[Record]) {
    let mut writer = TraceWriter::new(File::create(path).unwrap()).unwrap();
    for record in records {
        writer.write(record).unwrap();
    }
}

/// A whole run that generated these tokens.
pub(crate) fn whole_trace(run_id: &str, config: RunConfig, tokens: &[i32]) -> Vec<Record> {
    let mut records = vec![start(run_id, config)];
    records.extend((1..).zip(tokens).map(|(step, id)| token(step, *id)));
    let steps = u32::try_from(tokens.len()).unwrap();
    records.push(end(Outcome::Complete, steps, &text(tokens)));
    records
}

/// The text of some tokens.
pub(crate) fn text(tokens: &[i32]) -> String {
    tokens.iter().map(|t| format!(" t{t}")).collect()
}

/// The line of a decode step.
pub(crate) fn progress_line(step: u32, steps: u32) -> Line {
    Line::Progress(Progress {
        step,
        steps,
        wall_ms: 10.0,
        io_ms: 1.0,
        compute_ms: 8.0,
        mgmt_ms: 0.0,
        stall_ms: 1.0,
        read_mb: 0.5,
        cache_hit_pct: 50.0,
        majflt: 0,
        cpu_ms: 9.0,
        dense_resident_frac: -1.0,
        delta_reasoning: String::new(),
        delta_text: " t".to_owned(),
        reset: 0,
        io_wait_ms: 1.0,
        lane_busy_ms: 1.0,
        other_ms: 1.0,
    })
}

/// The last line of a run that worked.
pub(crate) fn done_line(tokens: &[i32]) -> Line {
    Line::Done(Box::new(Done {
        tokens: u32::try_from(tokens.len()).unwrap(),
        tok_s: 100.0,
        prefill_s: 0.01,
        prefill_tps: 400.0,
        load_s: 0.1,
        cache_hit_pct: 50.0,
        n_prompt: 4,
        text: text(tokens),
        ..Done::default()
    }))
}
