//! Files of other versions.
//!
//! `tests/fixtures/version-N` is a result folder as version N of the Parquet files left it. It is read for
//! as long as that version is supported, and is never written again. (The binary trace of version 1 never
//! left a development tree, so nothing reads it.)

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use bmoe_analysis::data::{DataReader, SCHEMA_VERSION, Table, read_trace};
use bmoe_analysis::{AnalysisError, ingest, render};
use bmoe_trace::config::ComputeTrace;
use bmoe_trace::{CacheBudget, Mode};
use polars::prelude::*;

use crate::folder::{Folder, cell};
use crate::synthetic::Shape;

fn fixture(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/version-{version}"))
}

/// A copy that may be written to.
fn copy_of_fixture(version: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture(version), dir.path());
    dir
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn a_folder_of_version_1_is_read() {
    let reader = DataReader::new(&fixture(1));
    let (run_id, row) = &reader.runs().unwrap()[1];
    assert_eq!((run_id.as_str(), row.tokens, row.cache_mib), ("s1-r0", 5, Some(4)));
    let tokens = &reader.tokens().unwrap()["s1-r0"];
    assert_eq!((tokens.len(), tokens[4].step, tokens[4].reads), (5, 5, Some(9)));
    assert_eq!(reader.routes_of("s1-r0").unwrap().len(), 68);
    // It has zeros where `mmap` mode measures nothing, and lacks what came later.
    let mapped = &reader.tokens().unwrap()["m0-r0"];
    assert!(mapped.iter().all(|t| t.io_wait_ns.is_none() && t.reads.is_none()));
    assert_eq!(reader.runs().unwrap()[0].1.prefill_hits, None);
    assert_eq!((row.overlap, row.perturbed, row.turns), (None, None, None));
    assert!(tokens.iter().all(|t| t.io_active_ns.is_none() && t.mem_free_bytes.is_none()));
    assert!(reader.reads_of("s1-r0").unwrap().is_empty());
}

#[test]
fn a_folder_of_version_1_is_rendered_and_written_anew_as_the_version_of_today() {
    let dir = copy_of_fixture(1);
    let published = fs::read_to_string(render(dir.path()).unwrap().report).unwrap();
    assert!(published.contains("I/O wait ms") && !published.contains("stall"), "{published}");
    let before = DataReader::new(dir.path()).tokens().unwrap();
    assert_eq!(ingest(dir.path()).unwrap().kept, 2);
    assert_eq!(DataReader::new(dir.path()).tokens().unwrap(), before);
    assert_eq!(version_of(&Table::Runs.path(dir.path())), "2");
    let rebuilt = fs::read_to_string(render(dir.path()).unwrap().report).unwrap();
    assert_eq!(published, rebuilt);
}

#[test]
fn a_folder_of_version_2_is_read() {
    let run = read_trace(&fixture(2).join("runs/s1-r0/trace.bin")).unwrap();
    assert_eq!((run.tables.tokens.len(), run.start.model.layers.len()), (5, 2));
    let reader = DataReader::new(&fixture(2));
    let (run_id, row) = &reader.runs().unwrap()[1];
    assert_eq!((run_id.as_str(), row.tokens, row.cache_mib), ("s1-r0", 5, None));
    assert_eq!((row.overlap, row.cache_resizes, row.perturbed), (Some(true), Some(1), Some(true)));
    assert_eq!(reader.tokens().unwrap()["s1-r0"], run.tables.tokens);
    assert_eq!(reader.routes_of("s1-r0").unwrap(), run.tables.routes);
    assert_eq!(reader.scores_of("s1-r0").unwrap(), run.tables.scores);
    assert_eq!(reader.reads_of("s1-r0").unwrap(), run.tables.reads);
    assert_eq!(reader.compute_of("s1-r0").unwrap(), run.tables.compute);
    assert_eq!(reader.budgets_of("s1-r0").unwrap(), run.tables.budgets);
    assert!(!run.tables.scores.is_empty() && !run.tables.reads.is_empty());

    // Without the traces, as a published folder is; and with them, built anew.
    let dir = copy_of_fixture(2);
    fs::rename(dir.path().join("runs"), dir.path().join("elsewhere")).unwrap();
    let published = fs::read_to_string(render(dir.path()).unwrap().report).unwrap();
    fs::rename(dir.path().join("elsewhere"), dir.path().join("runs")).unwrap();
    ingest(dir.path()).unwrap();
    let rebuilt = fs::read_to_string(render(dir.path()).unwrap().report).unwrap();
    assert_eq!(published, rebuilt);
}

#[test]
fn the_published_results_of_this_repository_are_rendered() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results");
    for folder in fs::read_dir(results).unwrap().map(|e| e.unwrap().path()) {
        if !folder.join("cells.jsonl").is_file() {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        for name in ["cells.jsonl", "environment.json", "matrix.toml"] {
            fs::copy(folder.join(name), dir.path().join(name)).unwrap();
        }
        copy(&folder.join("data"), &dir.path().join("data"));
        let report = fs::read_to_string(render(dir.path()).unwrap().report).unwrap();
        let table = report.lines().filter(|l| l.starts_with('|') && l.contains(" valid |"));
        assert!(table.count() > 0, "{report}");
    }
}

fn version_of(path: &Path) -> String {
    let mut reader = ParquetReader::new(File::open(path).unwrap());
    let metadata = reader.get_metadata().unwrap().key_value_metadata().clone().unwrap();
    metadata.into_iter().find(|kv| kv.key == "bmoe.schema_version").unwrap().value.unwrap()
}

/// Reads a Parquet file, changes it, and writes it back with the metadata of the given version.
fn rewrite(path: &Path, version: &str, change: impl FnOnce(&mut DataFrame)) {
    let mut reader = ParquetReader::new(File::open(path).unwrap());
    let metadata = reader.get_metadata().unwrap().key_value_metadata().clone().unwrap();
    let metadata = metadata
        .into_iter()
        .filter(|kv| kv.key.starts_with("bmoe."))
        .map(|kv| match kv.key.as_str() {
            "bmoe.schema_version" => (kv.key, version.to_owned()),
            _ => (kv.key, kv.value.unwrap()),
        })
        .collect();
    let mut frame = reader.finish().unwrap();
    change(&mut frame);
    ParquetWriter::new(File::create(path).unwrap())
        .with_key_value_metadata(Some(KeyValueMetadata::from_static(metadata)))
        .finish(&mut frame)
        .unwrap();
}

#[test]
fn columns_of_a_later_writer_are_passed_over_and_optional_ones_may_be_missing() {
    let dir = copy_of_fixture(2);
    rewrite(&Table::Tokens.path(dir.path()), "2", |frame| {
        let novel = Column::new("novel_ns".into(), vec![7_u64; frame.height()]);
        frame.with_column(novel).unwrap();
        frame.drop_in_place("cumulative_hit_rate").unwrap();
    });
    let tokens = DataReader::new(dir.path()).tokens().unwrap();
    assert!(tokens["s1-r0"].iter().all(|t| t.cumulative_hit_rate.is_none()));
    rewrite(&Table::Tokens.path(dir.path()), "2", |frame| {
        frame.drop_in_place("wall_ns").unwrap();
    });
    let error = DataReader::new(dir.path()).tokens().unwrap_err().to_string();
    assert!(error.contains("tokens.parquet") && error.contains("wall_ns"), "{error}");
}

#[test]
fn a_later_version_and_a_foreign_file_are_refused() {
    let dir = copy_of_fixture(2);
    rewrite(&Table::Runs.path(dir.path()), "3", |_| {});
    let error = render(dir.path()).unwrap_err();
    assert!(matches!(&error, AnalysisError::SchemaVersion { found, .. } if found == "3"));
    fs::copy(Table::Tokens.path(dir.path()), Table::Runs.path(dir.path())).unwrap();
    let error = render(dir.path()).unwrap_err().to_string();
    assert!(error.contains("it holds the table `tokens`"), "{error}");
}

/// Writes the fixture: only for a new version, into a folder of its own.
#[test]
#[ignore = "writes tests/fixtures"]
fn write_fixture() {
    let shape = Shape { layers: 2, experts: 8, top_k: 2 };
    let mut folder = Folder::new();
    folder.add_run_of(shape, &cell("m0", "mmap", Mode::Mmap, 0, 1), 4);
    let mut everything = cell("s1", "stream, cache auto, 1 lane", Mode::Stream, 4, 1);
    let config = &mut everything.config;
    (config.cache_mib, config.overlap, config.prefetch_layers) = (CacheBudget::Auto, true, 1);
    (config.io_trace, config.compute_trace, config.trace_scores) = (true, ComputeTrace::Layers, 4);
    folder.add_run_of(shape, &everything, 5);
    ingest(folder.path()).unwrap();
    let to = fixture(SCHEMA_VERSION);
    assert!(!to.exists(), "{} is there already", to.display());
    let status = std::process::Command::new("cp")
        .args(["-r".as_ref(), folder.path().as_os_str(), to.as_os_str()])
        .status();
    assert!(status.unwrap().success());
}
