//! Traces to Parquet and back.

use std::fs;

use crate::folder::{Folder, cell};
use crate::synthetic::{PROMPT_TOKENS, SHAPE, records, trace_bytes};
use bmoe_analysis::data::{DataReader, Table};
use bmoe_analysis::ingest;
use bmoe_analysis::result_set::{CellRecord, Verdict};
use bmoe_trace::config::ComputeTrace;
use bmoe_trace::record::{Phase, Residency, TurnRecord};
use bmoe_trace::{CacheBudget, Mode, Record};
use polars::prelude::*;

#[test]
fn every_record_comes_back() {
    let mut folder = Folder::new();
    let cached = cell("s1", "stream, cache 120 MiB, 1 lane", Mode::Stream, 120, 1);
    folder.add_run(&cell("m0", "mmap", Mode::Mmap, 0, 1), 4);
    let added = folder.add_run(&cached, 5);
    let run_id = added.run_id.unwrap();
    let done = ingest(folder.path()).unwrap();
    assert_eq!((done.runs, done.truncated, done.kept), (2, 0, 0));

    let reader = DataReader::new(folder.path());
    let runs = reader.runs().unwrap();
    let ids: Vec<_> = runs.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["m0-r0", "s1-r0"]);
    let (_, run) = &runs[1];
    assert_eq!(run.cell_name.as_deref(), Some("stream, cache 120 MiB, 1 lane"));
    assert_eq!((run.baseline, run.verdict.as_deref()), (Some(false), Some("valid")));
    assert_eq!(run.cache_budget_bytes, Some(120 << 20));
    assert_eq!(run.direct_io.as_deref(), Some("used"));
    assert_eq!((run.tokens, run.outcome.as_deref()), (5, Some("complete")));

    let expected = records(&run_id, SHAPE, &cached.config, 5, 0);
    let tokens = &reader.tokens().unwrap()[&run_id];
    let mut steps = tokens.iter();
    let routes = reader.routes_of(&run_id).unwrap();
    let mut rows = routes.iter();
    let mut event = 0;
    for record in &expected {
        match record {
            Record::Token(token) => {
                let row = steps.next().unwrap();
                assert_eq!(
                    (row.step, row.position, row.token),
                    (token.step, token.position, token.token)
                );
                assert_eq!(row.wall_ns, token.cost.wall_ns);
                assert_eq!(row.expert_read_bytes, Some(token.cost.expert_read_bytes));
                assert_eq!(row.cumulative_hit_rate, Some(token.cumulative_hit_rate));
            }
            Record::Route(route) => {
                let mut read = 0;
                for (pair, expert) in route.experts.iter().enumerate() {
                    let row = rows.next().unwrap();
                    let token = pair / route.top_k as usize;
                    assert_eq!(
                        (row.event, row.ubatch, row.layer),
                        (event, route.ubatch, route.layer)
                    );
                    assert_eq!(row.position, route.positions[token]);
                    assert_eq!((row.expert, row.phase), (u32::from(*expert), route.phase));
                    assert_eq!(row.weight, Some(route.weights[pair]));
                    read += row.read_bytes.unwrap();
                }
                assert_eq!(read, route.read_bytes.iter().sum::<u64>());
                event += 1;
            }
            _ => {}
        }
    }
    assert!(steps.next().is_none() && rows.next().is_none());
    assert!(routes.iter().any(|r| r.residency == Some(Residency::Hit)));
    let prefill = routes.iter().filter(|r| r.phase == Phase::Prefill && r.layer == 0);
    assert_eq!(prefill.count() as u32, PROMPT_TOKENS * SHAPE.top_k);

    // A mode without a cache of ours has routes, and nothing is known of where experts came from.
    let mmap = reader.routes_of("m0-r0").unwrap();
    assert!(
        mmap.iter().all(|r| r.residency.is_none() && r.read_bytes.is_none()) && !mmap.is_empty()
    );
}

#[test]
fn what_a_mode_does_not_measure_is_null() {
    let mut folder = Folder::new();
    for (id, mode) in [("m0", Mode::Mmap), ("r0", Mode::Resident), ("s0", Mode::Stream)] {
        folder.add_run(&cell(id, id, mode, 0, 1), 3);
    }
    ingest(folder.path()).unwrap();
    // As another program reads them, without this crate's reader between.
    let nulls = |table: Table, column: &str| -> Vec<bool> {
        let file = fs::File::open(table.path(folder.path())).unwrap();
        let frame = ParquetReader::new(file).finish().unwrap();
        let nulls = frame.column(column).unwrap().is_null();
        let ids = frame.column("run_id").unwrap().str().unwrap();
        let of = |run: &str| {
            let rows = ids.iter().zip(nulls.iter()).filter(|(id, _)| *id == Some(run));
            let nulls: Vec<bool> = rows.map(|(_, null)| null.unwrap()).collect();
            assert!(nulls.iter().all(|null| *null == nulls[0]), "{column} of {run}");
            nulls[0]
        };
        ["m0-r0", "r0-r0", "s0-r0"].map(of).to_vec()
    };
    for column in [
        "io_wait_ns",
        "mgmt_ns",
        "lane_busy_ns",
        "io_active_ns",
        "speculated",
        "cache_budget_bytes",
        "expert_read_bytes",
        "device_read_bytes",
        "reads",
        "hits",
        "misses",
    ] {
        assert_eq!(nulls(Table::Tokens, column), [true, true, false], "{column}");
    }
    for column in
        ["prefill_io_wait_ns", "prefill_hits", "prefill_misses", "overlap", "dense_weights"]
    {
        assert_eq!(nulls(Table::Runs, column), [true, true, false], "{column}");
    }
    for column in ["dense_read_ns", "dense_read_bytes", "load_expert_read_bytes"] {
        assert_eq!(nulls(Table::Runs, column), [true, false, false], "{column}");
    }
    assert_eq!(nulls(Table::Routes, "read_bytes"), [true, true, false]);
    assert_eq!(nulls(Table::Tokens, "compute_ns"), [false, false, false]);
}

/// A configuration that records whatever can be recorded.
fn everything_traced(id: &str) -> CellRecord {
    let mut traced = cell(id, id, Mode::Stream, 0, 4);
    let config = &mut traced.config;
    (config.cache_mib, config.overlap, config.prefetch_layers) = (CacheBudget::Auto, true, 1);
    (config.io_trace, config.compute_trace, config.trace_scores) = (true, ComputeTrace::Nodes, 8);
    traced
}

#[test]
fn reads_computation_scores_and_budgets_have_tables_when_they_were_recorded() {
    let mut folder = Folder::new();
    folder.add_run(&cell("s0", "plain", Mode::Stream, 120, 4), 3);
    ingest(folder.path()).unwrap();
    let files = || Table::WHEN_RECORDED.map(|t| t.path(folder.path()).is_file());
    assert_eq!(files(), [false; 4]);
    let reader = DataReader::new(folder.path());
    assert!(reader.reads_of("s0-r0").unwrap().is_empty());

    let traced = everything_traced("s1");
    let mut folder = Folder::new();
    folder.add_run(&cell("s0", "plain", Mode::Stream, 120, 4), 3);
    folder.add_run(&traced, 3);
    ingest(folder.path()).unwrap();
    let reader = DataReader::new(folder.path());
    let (mut scores, mut reads, mut compute, mut budgets) = (0, 0, 0, 0);
    for record in records("s1-r0", SHAPE, &traced.config, 3, 0) {
        match record {
            Record::Route(route) => scores += route.scored.len(),
            Record::Read(_) => reads += 1,
            Record::Compute(_) => compute += 1,
            Record::Budget(_) => budgets += 1,
            _ => {}
        }
    }
    let counts = |run: &str| {
        (
            reader.scores_of(run).unwrap().len(),
            reader.reads_of(run).unwrap().len(),
            reader.compute_of(run).unwrap().len(),
            reader.budgets_of(run).unwrap().len(),
        )
    };
    assert_eq!(counts("s1-r0"), (scores, reads, compute, budgets));
    assert_eq!(counts("s0-r0"), (0, 0, 0, 0));
    assert!(scores > 0 && reads > 0 && compute > 0 && budgets == 1);
    let (_, run) = &reader.runs().unwrap()[1];
    assert_eq!((run.cache_mib, run.cache_resizes, run.perturbed), (None, Some(1), Some(true)));
    assert_eq!((run.overlap, run.cache_policy.as_deref()), (Some(true), Some("lru")));
    let token = &reader.tokens().unwrap()["s1-r0"][2];
    assert_eq!((token.turn, token.speculated, token.swap_free_bytes), (Some(0), Some(5), None));
    assert_eq!(token.cache_budget_bytes, Some(200 << 20));
    // The second of eight scores of the first token.
    let score = &reader.scores_of("s1-r0").unwrap()[1];
    assert_eq!((score.position, score.rank, score.expert, score.score), (0, 1, 6, 0.25));

    // Without its traces, everything is taken over; without the run, its tables go.
    fs::remove_dir_all(folder.path().join("runs")).unwrap();
    let before = (reader.scores_of("s1-r0").unwrap(), reader.compute_of("s1-r0").unwrap());
    ingest(folder.path()).unwrap();
    assert_eq!((reader.scores_of("s1-r0").unwrap(), reader.compute_of("s1-r0").unwrap()), before);
    assert_eq!(reader.reads_of("s1-r0").unwrap().len(), reads);
}

#[test]
fn tables_that_no_run_fills_any_more_are_removed() {
    let mut folder = Folder::new();
    let traced = folder.add_run(&everything_traced("s1"), 2);
    ingest(folder.path()).unwrap();
    let plain = cell("s1", "plain", Mode::Stream, 120, 4);
    let bytes = trace_bytes(&records(&traced.run_id.unwrap(), SHAPE, &plain.config, 2, 0));
    fs::write(folder.trace_path("s1-r0"), bytes).unwrap();
    ingest(folder.path()).unwrap();
    assert!(Table::WHEN_RECORDED.iter().all(|t| !t.path(folder.path()).exists()));
    assert_eq!(DataReader::new(folder.path()).tokens().unwrap()["s1-r0"].len(), 2);
}

#[test]
fn turns_of_a_session_stay_apart() {
    let mut folder = Folder::new();
    let session =
        CellRecord { run_id: Some("s0-r0".into()), ..cell("s0", "session", Mode::Stream, 120, 4) };
    let mut all = records("s0-r0", SHAPE, &session.config, 2, 0);
    let second: Vec<Record> = all
        .iter()
        .filter(|r| matches!(r, Record::Prefill(_) | Record::Token(_)))
        .cloned()
        .collect();
    let end = all.pop().unwrap();
    all.push(Record::Turn(TurnRecord {
        turn: 1,
        id: "again".into(),
        prompt_tokens: 20,
        reused_tokens: 14,
        n_predict: 5,
    }));
    all.extend(second);
    all.push(end);
    folder.add(session, Some(&trace_bytes(&all)));
    ingest(folder.path()).unwrap();
    let reader = DataReader::new(folder.path());
    let steps: Vec<_> =
        reader.tokens().unwrap()["s0-r0"].iter().map(|t| (t.turn, t.step)).collect();
    assert_eq!(steps, [(Some(0), 1), (Some(0), 2), (Some(1), 1), (Some(1), 2)]);
    let (_, run) = &reader.runs().unwrap()[0];
    assert_eq!((run.turns, run.prompt_tokens, run.tokens), (Some(2), Some(PROMPT_TOKENS), 4));
}

#[test]
fn metadata_describe_the_runs() {
    let mut folder = Folder::new();
    let added = folder.add_run(&cell("s0", "stream, cache off, 4 lanes", Mode::Stream, 0, 4), 2);
    ingest(folder.path()).unwrap();
    for table in Table::ALWAYS {
        let metadata = DataReader::new(folder.path()).metadata(table).unwrap();
        assert_eq!(metadata.table, table.as_str());
        let run = &metadata.runs["s0-r0"];
        // As text has it: a value made directly holds its f32 as f64.
        let config = serde_json::to_string(&added.config).unwrap();
        assert_eq!(run.config, serde_json::from_str::<serde_json::Value>(&config).unwrap());
        assert_eq!(run.shape, SHAPE.model());
        assert_eq!(run.cell.as_deref(), Some("stream, cache off, 4 lanes"));
    }
}

#[test]
fn a_cut_off_trace_gives_what_it_holds_and_says_so() {
    let mut folder = Folder::new();
    let killed = CellRecord {
        run_id: Some("s0-r0".into()),
        verdict: Verdict::Killed,
        reason: Some("ended by SIGKILL".into()),
        exit_code: None,
        ..cell("s0", "stream, cache off, 4 lanes", Mode::Stream, 0, 4)
    };
    let whole = trace_bytes(&records("s0-r0", SHAPE, &killed.config, 6, 0));
    folder.add(killed, Some(&whole[..whole.len() - 5]));
    let done = ingest(folder.path()).unwrap();
    assert_eq!((done.runs, done.truncated), (1, 1));
    let reader = DataReader::new(folder.path());
    let (_, run) = &reader.runs().unwrap()[0];
    assert_eq!((run.tokens, run.outcome.as_deref()), (6, None));
    assert!(run.truncated_bytes > 0 && run.peak_rss_bytes.is_none());
    assert_eq!(
        reader.metadata(Table::Tokens).unwrap().runs["s0-r0"].truncated_bytes,
        run.truncated_bytes
    );
}

#[test]
fn traces_that_cannot_be_used_are_left_out_and_named() {
    let mut folder = Folder::new();
    folder.add_run(&cell("m0", "mmap", Mode::Mmap, 0, 1), 2);
    for (name, bytes) in [("empty", &trace_bytes(&[])[..]), ("foreign", b"step,steps,wall_ms\n")] {
        let path = folder.trace_path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let copy = folder.trace_path("zz-copy");
    fs::create_dir_all(copy.parent().unwrap()).unwrap();
    fs::copy(folder.trace_path("m0-r0"), copy).unwrap();
    let mut damaged =
        trace_bytes(&records("bad", SHAPE, &cell("x", "x", Mode::Mmap, 0, 1).config, 2, 0));
    damaged[40] ^= 0xff;
    let path = folder.trace_path("bad");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, damaged).unwrap();

    let done = ingest(folder.path()).unwrap();
    assert_eq!(done.runs, 1);
    let named: Vec<String> =
        done.left_out.iter().map(|l| format!("{}: {}", l.trace, l.reason)).collect();
    insta::assert_snapshot!(named.join("\n"));
    let recorded = DataReader::new(folder.path()).metadata(Table::Runs).unwrap().left_out;
    assert_eq!(recorded, done.left_out);
}

#[test]
fn runs_whose_traces_were_deleted_are_kept() {
    let mut folder = Folder::new();
    folder.add_run(&cell("m0", "mmap", Mode::Mmap, 0, 1), 3);
    ingest(folder.path()).unwrap();
    let reader = DataReader::new(folder.path());
    let before = (reader.tokens().unwrap(), reader.routes_of("m0-r0").unwrap());
    fs::remove_dir_all(folder.path().join("runs")).unwrap();
    folder.add_run(&cell("s0", "stream, cache off, 4 lanes", Mode::Stream, 0, 4), 3);
    let done = ingest(folder.path()).unwrap();
    assert_eq!((done.runs, done.kept), (2, 1));
    let tokens = reader.tokens().unwrap();
    assert_eq!(
        (&tokens["m0-r0"], reader.routes_of("m0-r0").unwrap()),
        (&before.0["m0-r0"], before.1)
    );
    assert_eq!(tokens["s0-r0"].len(), 3);
    assert!(reader.metadata(Table::Routes).unwrap().runs.contains_key("m0-r0"));
}

#[test]
fn an_empty_folder_gives_empty_files() {
    let folder = Folder::new();
    assert_eq!(ingest(folder.path()).unwrap().runs, 0);
    let reader = DataReader::new(folder.path());
    assert!(reader.exists() && reader.runs().unwrap().is_empty());
    assert!(reader.tokens().unwrap().is_empty() && reader.routes_of("x").unwrap().is_empty());
}
