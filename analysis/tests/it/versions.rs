//! Files of other versions.
//!
//! `tests/fixtures/version-1` is a result folder as version 1 of the formats wrote it. It is read for as
//! long as that version is supported, and is never written again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use bmoe_analysis::data::{DataReader, Table, read_trace};
use bmoe_analysis::{AnalysisError, ingest, render};
use bmoe_trace::Mode;
use polars::prelude::*;

use crate::folder::{Folder, cell};
use crate::synthetic::Shape;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-1")
}

/// A copy that may be written to.
fn copy_of_fixture() -> tempfile::TempDir {
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
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture(), dir.path());
    dir
}

#[test]
fn a_folder_of_version_1_is_read() {
    let run = read_trace(&fixture().join("runs/s1-r0/trace.bin")).unwrap();
    assert_eq!((run.tokens.len(), run.start.model.layers.len()), (5, 2));
    let reader = DataReader::new(&fixture());
    let (run_id, row) = &reader.runs().unwrap()[1];
    assert_eq!((run_id.as_str(), row.tokens, row.cache_mib), ("s1-r0", 5, 4));
    assert_eq!(reader.tokens().unwrap()["s1-r0"], run.tokens);
    assert_eq!(reader.routes_of("s1-r0").unwrap(), run.routes);
    // It has zeros where `mmap` mode measures nothing.
    let tokens = &reader.tokens().unwrap()["m0-r0"];
    assert!(tokens.iter().all(|t| t.io_wait_ns.is_none() && t.reads.is_none()));
    assert_eq!(reader.runs().unwrap()[0].1.prefill_hits, None);

    // Without the traces, as a published folder is; and with them, built anew.
    let dir = copy_of_fixture();
    fs::rename(dir.path().join("runs"), dir.path().join("elsewhere")).unwrap();
    let published = fs::read_to_string(render(dir.path()).unwrap().report).unwrap();
    fs::rename(dir.path().join("elsewhere"), dir.path().join("runs")).unwrap();
    ingest(dir.path()).unwrap();
    let rebuilt = fs::read_to_string(render(dir.path()).unwrap().report).unwrap();
    assert_eq!(published, rebuilt);
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
    let dir = copy_of_fixture();
    rewrite(&Table::Tokens.path(dir.path()), "1", |frame| {
        let novel = Column::new("stall_ns".into(), vec![7_u64; frame.height()]);
        frame.with_column(novel).unwrap();
        frame.drop_in_place("cumulative_hit_rate").unwrap();
    });
    let tokens = DataReader::new(dir.path()).tokens().unwrap();
    assert!(tokens["s1-r0"].iter().all(|t| t.cumulative_hit_rate.is_none()));
    rewrite(&Table::Tokens.path(dir.path()), "1", |frame| {
        frame.drop_in_place("wall_ns").unwrap();
    });
    let error = DataReader::new(dir.path()).tokens().unwrap_err().to_string();
    assert!(error.contains("tokens.parquet") && error.contains("wall_ns"), "{error}");
}

#[test]
fn a_later_version_and_a_foreign_file_are_refused() {
    let dir = copy_of_fixture();
    rewrite(&Table::Runs.path(dir.path()), "2", |_| {});
    let error = render(dir.path()).unwrap_err();
    assert!(matches!(&error, AnalysisError::SchemaVersion { found, .. } if found == "2"));
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
    folder.add_run_of(shape, &cell("s1", "stream, cache 4 MiB, 1 lane", Mode::Stream, 4, 1), 5);
    ingest(folder.path()).unwrap();
    let to = fixture();
    assert!(!to.exists(), "{} is there already", to.display());
    let status = std::process::Command::new("cp")
        .args(["-r".as_ref(), folder.path().as_os_str(), to.as_os_str()])
        .status();
    assert!(status.unwrap().success());
}
