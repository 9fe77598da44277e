//! The published table comes out of the published logs, to the printed digits.

use std::collections::HashMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use bmoe_analysis::data::imported::{Plan, import};
use bmoe_analysis::routes::{LoadOptions, load};
use bmoe_analysis::stats::Rates;
use bmoe_trace::record::Phase;

/// File, then mean, min, max, median, p5, p95 (tok/s), hit % and MiB/token (0 decimals), compute and I/O
/// (s/token): the rows of the Qwen3 table as published.
const PUBLISHED: [(&str, &str); 8] = [
    ("qwen_mmap", "2.00 0.15 8.15 2.76 0.93 5.90 - 0 -"),
    ("qwen_stream", "1.71 0.50 1.81 1.78 1.62 1.80 - 1051 0.123 + 0.462"),
    ("qwen_c2000_l2", "2.01 1.17 4.66 2.04 1.42 3.17 53 480 0.187 + 0.312"),
    ("qwen_c2000_l4", "2.37 1.45 4.88 2.40 1.73 3.57 53 480 0.181 + 0.241"),
    ("qwen_c4000_l2", "3.12 1.24 6.66 3.30 2.01 5.46 76 225 0.159 + 0.161"),
    ("qwen_c4000_l4", "3.47 1.09 7.62 3.64 2.15 6.00 76 225 0.161 + 0.127"),
    ("qwen_stream_ov", "1.27 0.58 2.02 1.44 0.83 2.00 - 1051 0.412 + 1.627"),
    ("qwen_c4000_l4_ov", "3.98 1.26 8.43 4.89 2.00 7.37 76 225 0.193 + 0.300"),
];

#[test]
fn the_published_rows_come_out_of_the_published_logs() {
    let folder =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/published/2026-07-12");
    if !folder.is_dir() {
        eprintln!("skipped: the published logs are not beside this repository");
        return;
    }
    for (file, want) in PUBLISHED {
        let text = fs::read_to_string(folder.join(file).with_extension("csv")).unwrap();
        let columns = columns(&text);
        let wall_ns = columns["wall_ms"].iter().map(|ms| (ms * 1e6).round() as u64);
        let rates = Rates::from_wall_ns(wall_ns).unwrap();
        let mean = |name: &str| {
            let values = &columns[name];
            values.iter().sum::<f64>() / values.len() as f64
        };
        let hit = *columns["cache_hit_pct"].last().unwrap();
        let hit = if hit < 0.0 { "-".to_owned() } else { format!("{:.0}", hit.floor()) };
        let terms = if file == "qwen_mmap" {
            "-".to_owned()
        } else {
            format!("{:.3} + {:.3}", mean("compute_ms") / 1e3, mean("io_ms") / 1e3)
        };
        let got = format!(
            "{:.2} {:.2} {:.2} {:.2} {:.2} {:.2} {hit} {:.0} {terms}",
            rates.mean,
            rates.min,
            rates.max,
            rates.median,
            rates.p5,
            rates.p95,
            mean("read_bytes") / f64::from(1 << 20),
        );
        assert_eq!(got, want, "{file}");
        assert_eq!(rates.tokens, 256, "{file}");
    }
}

/// The same through an import and its report, as a person gets it.
#[test]
fn the_published_table_comes_out_of_an_import_of_the_published_logs() {
    let Some(folder) = published("2026-07-12") else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("imported");
    let plan = Plan::new(&[folder]).unwrap();
    assert!(plan.passed_over().is_empty());
    let runs = import(plan, &out, false, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(runs.len(), 8);
    assert!(runs.iter().all(|(_, run)| run.device().is_some() && run.notes().is_empty()));
    bmoe_analysis::render(&out).unwrap();
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    for (file, want) in PUBLISHED {
        let row = report.lines().find(|line| line.starts_with(&format!("| {file} |"))).unwrap();
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let got = cells[1..10].join(" ").replace('–', "-");
        // What follows are remarks on runs whose reads overlap.
        let got = got.split(" (lane-busy)").next().unwrap();
        assert_eq!(got, want, "{file}");
    }
    assert!(
        report.contains("| 0.193 + 0.300 (lane-busy), stall 0.058 | 256 | whole |"),
        "{report}"
    );
}

/// Runs of a later generation, which name their settings; the published figures of the top-k comparison were of
/// other runs of the same cells.
#[test]
fn later_generations_are_named_by_their_settings() {
    let Some(folder) = published("2026-07-17") else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("imported");
    let runs =
        import(Plan::new(&[folder]).unwrap(), &out, false, &mut |_| ControlFlow::Continue(()))
            .unwrap();
    let cells: Vec<&str> = runs.iter().map(|(_, run)| run.cell.as_str()).collect();
    let name = |top_k: u32| format!("stream, cache 4000 MiB, 4 lanes, overlap, top-{top_k}");
    assert_eq!(cells, [name(6), name(8)]);
    assert_eq!(runs[0].1.model.as_deref(), Some("Qwen3-30B-A3B-Q4_K_M.gguf"));
    assert_eq!((runs[0].1.log_version, runs[0].1.overlap), (Some(1), Some(true)));
}

/// The published route trace, in memory and through Parquet: decode begins at position 28, and the last layer routes
/// only the last prompt token (6 rows against 168).
#[test]
fn the_published_trace_has_its_published_shape_raw_and_imported() {
    let Some(folder) = published("2026-07-15-route") else { return };
    let raw = load(&folder.join("qwen.route.csv"), LoadOptions::default()).unwrap();
    assert_eq!((raw.arch.as_str(), raw.layers.len(), raw.n_expert), ("qwen3moe", 48, 128));
    assert_eq!((raw.has_sizes(), raw.decode_tokens()), (true, 128));
    // Half of the bank of 16740 MiB; a token's top-6 of all layers take 785 MiB.
    assert_eq!(raw.bank_bytes() >> 20, 16_740);
    let of = |phase| raw.events().filter(move |e| e.phase == phase);
    assert_eq!((of(Phase::Prefill).count(), of(Phase::Decode).count()), (48, 48 * 128));
    let prefill_rows: Vec<usize> = of(Phase::Prefill).map(|e| e.experts.len()).collect();
    assert_eq!((&prefill_rows[..47], prefill_rows[47]), (&[168; 47][..], 6));
    assert_eq!(of(Phase::Decode).next().unwrap().positions, [28]);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("imported");
    let runs =
        import(Plan::new(&[folder]).unwrap(), &out, false, &mut |_| ControlFlow::Continue(()))
            .unwrap();
    // The trace and the log of the run: `qwen.metrics` is a per-token log, whatever its name says.
    assert_eq!((runs.len(), runs[0].1.log_rows, runs[0].1.route_rows), (1, 128, raw.rows() as u64));
    let mut imported = load(&out, LoadOptions::default()).unwrap();
    imported.name.clone_from(&raw.name);
    assert_eq!(imported, raw);
}

#[test]
fn the_published_token_lines_have_their_shape() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/data/routes/kimi-linear-48b.300tok.jsonl");
    if !path.is_file() {
        eprintln!("skipped: the published routes are not beside this repository");
        return;
    }
    let trace = load(&path, LoadOptions::default()).unwrap();
    assert_eq!((trace.layers.len(), trace.n_expert, trace.decode_tokens()), (26, 256, 300));
    assert_eq!((trace.has_sizes(), trace.rows()), (false, 300 * 26 * 8));
    assert!(trace.events().all(|e| e.top_k() == 8 && e.weights.is_empty()));
}

/// A folder of the published data; `None`, said on standard error, when they are not there.
fn published(folder: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/published");
    let path = path.join(folder);
    if !path.is_dir() {
        eprintln!("skipped: the published data ({folder}) are not beside this repository");
        return None;
    }
    Some(path)
}

/// Columns by name, comment lines passed over.
fn columns(text: &str) -> HashMap<String, Vec<f64>> {
    let mut lines = text.lines().filter(|l| !l.starts_with('#'));
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let mut columns: HashMap<String, Vec<f64>> = HashMap::new();
    for line in lines {
        for (name, value) in names.iter().zip(line.split(',')) {
            columns.entry((*name).to_owned()).or_default().push(value.parse().unwrap());
        }
    }
    columns
}
