//! Folders that lost something: what is there is kept, what is not is said.

use std::fs;
use std::path::Path;

use bmoe_analysis::data::{DataReader, Table, read_trace};
use bmoe_analysis::result_set::CellRecord;
use bmoe_analysis::{AnalysisError, ingest, render};
use bmoe_trace::{Mode, RunConfig};

use crate::folder::{Folder, cell};
use crate::synthetic::{SHAPE, records, trace_bytes};

/// Two valid runs of 6 tokens, in Parquet already.
fn ingested() -> Folder {
    let mut folder = Folder::new();
    let short = |cell: CellRecord| CellRecord {
        config: RunConfig { n_predict: 6, ..cell.config.clone() },
        ..cell
    };
    folder.add_run(&short(cell("m0", "mmap", Mode::Mmap, 0, 1)), 6);
    folder.add_run(&short(cell("s0", "stream, cache off, 4 lanes", Mode::Stream, 0, 4)), 6);
    ingest(folder.path()).unwrap();
    folder
}

fn files(dir: &Path) -> Vec<Option<Vec<u8>>> {
    Table::ALWAYS.iter().map(|t| fs::read(t.path(dir)).ok()).collect()
}

/// Keeps the first `share` of a run's trace.
fn cut_trace(folder: &Folder, run_id: &str, share: f64) {
    let path = folder.trace_path(run_id);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..(bytes.len() as f64 * share) as usize]).unwrap();
}

fn report(folder: &Folder) -> String {
    ingest(folder.path()).unwrap();
    fs::read_to_string(render(folder.path()).unwrap().report).unwrap()
}

/// The last cell of a configuration's row in the benchmark table.
fn verdict(report: &str, name: &str) -> String {
    let row = report.lines().find(|l| l.starts_with(&format!("| {name}"))).unwrap();
    row.trim_end_matches(" |").rsplit(" | ").next().unwrap().to_owned()
}

#[test]
fn a_missing_file_does_not_empty_the_others() {
    for missing in Table::ALWAYS {
        let folder = ingested();
        let whole = files(folder.path());
        let path = missing.path(folder.path());
        fs::remove_file(&path).unwrap();
        let left = files(folder.path());
        // The traces give it back.
        ingest(folder.path()).unwrap();
        assert!(files(folder.path()) == whole, "rebuilt without {}", path.display());

        fs::remove_file(&path).unwrap();
        fs::remove_dir_all(folder.path().join("runs/m0-r0")).unwrap();
        for error in [ingest(folder.path()).unwrap_err(), render(folder.path()).unwrap_err()] {
            let text = error.to_string();
            assert!(text.starts_with(&path.display().to_string()), "{text}");
            assert!(text.contains("no whole trace of 1 of the runs"), "{text}");
            assert!(text.contains("copy the missing file, or runs/"), "{text}");
        }
        assert!(files(folder.path()) == left, "the other files changed");
    }
}

#[test]
fn a_folder_without_data_and_traces_gets_no_empty_files() {
    let folder = ingested();
    fs::remove_dir_all(folder.path().join("runs")).unwrap();
    fs::remove_dir_all(folder.path().join("data")).unwrap();
    let error = ingest(folder.path()).unwrap_err();
    assert!(matches!(error, AnalysisError::NoData { .. }), "{error}");
    assert!(!folder.path().join("data").exists());
}

#[test]
fn a_damaged_file_is_made_anew_only_when_the_traces_give_every_run() {
    let folder = ingested();
    let whole = files(folder.path());
    fs::write(Table::Runs.path(folder.path()), "damaged").unwrap();
    ingest(folder.path()).unwrap();
    assert!(files(folder.path()) == whole);

    fs::write(Table::Runs.path(folder.path()), "damaged").unwrap();
    cut_trace(&folder, "s0-r0", 0.5);
    let before = files(folder.path());
    let error = ingest(folder.path()).unwrap_err().to_string();
    assert!(error.contains("runs.parquet: damaged"), "{error}");
    assert!(files(folder.path()) == before);
}

#[test]
fn whole_rows_outlive_a_trace_that_was_cut_off() {
    let folder = ingested();
    let reader = DataReader::new(folder.path());
    let rows =
        || (reader.runs().unwrap(), reader.tokens().unwrap(), reader.routes_of("s0-r0").unwrap());
    let before = rows();
    cut_trace(&folder, "s0-r0", 0.5);
    let done = ingest(folder.path()).unwrap();
    assert_eq!((done.runs, done.kept, done.left_out.len()), (2, 1, 1));
    assert_eq!(rows(), before);
    let report = report(&folder);
    assert_eq!(verdict(&report, "stream"), "valid");
    let note = "- `runs/s0-r0/trace.bin` was left out: it was cut off after 0 of 6 tokens; the rows of its \
                run s0-r0 made from it before are kept.";
    assert!(report.contains(note), "{report}");
}

#[test]
fn a_valid_run_without_its_end_is_not_plainly_valid() {
    let folder = ingested();
    fs::remove_dir_all(folder.path().join("data")).unwrap();
    cut_trace(&folder, "s0-r0", 0.8);
    let text = report(&folder);
    let left = read_trace(&folder.trace_path("s0-r0")).unwrap().tables.tokens.len();
    assert!((1..6).contains(&left), "{left}");
    let cut = format!("valid, trace cut off after {left} of 6 tokens");
    assert_eq!(verdict(&text, "stream"), cut);
    assert_eq!(verdict(&text, "mmap"), "valid");
    assert!(text.contains("its trace ends in an unfinished record"), "{text}");

    // Cut where a record ends, and one repetition of two.
    let mut folder = Folder::new();
    let mut first = cell("m0", "mmap", Mode::Mmap, 0, 1);
    first.config.n_predict = 3;
    folder.add_run(&first, 3);
    let second = CellRecord { repetition: 1, run_id: Some("m0-r1".into()), ..first };
    let mut endless = records("m0-r1", SHAPE, &second.config, 3, 0);
    endless.pop();
    folder.add(second, Some(&trace_bytes(&endless)));
    let text = report(&folder);
    let cut = "2 of 2 valid, repetition 2: trace cut off after 3 of 3 tokens";
    assert_eq!(verdict(&text, "mmap"), cut);
    assert!(
        text.contains("(run m0-r1): its trace lacks its end; 3 of 3 tokens were kept"),
        "{text}"
    );
}

#[test]
fn tokens_that_are_of_other_runs_are_said_to_be_missing() {
    let folder = ingested();
    let mut other = Folder::new();
    other.add_run(&cell("x9", "mmap", Mode::Mmap, 0, 1), 6);
    ingest(other.path()).unwrap();
    let path = Table::Tokens.path(folder.path());
    fs::copy(Table::Tokens.path(other.path()), &path).unwrap();
    fs::remove_dir_all(folder.path().join("runs")).unwrap();
    let text = report(&folder);
    assert_eq!(verdict(&text, "stream"), "valid, 0 of 6 tokens in the data");
    assert!(text.contains("`data/tokens.parquet` holds 0 of its 6 tokens"), "{text}");
}

#[test]
fn names_do_not_break_the_report() {
    let mut folder = Folder::new();
    let name = "a | b\n| c \u{1b}[31m\u{0}\\| <!-- [x](y) \u{202e}";
    folder.add_run(&cell("m0", name, Mode::Mmap, 0, 1), 3);
    let text = report(&folder);
    let shown = "a ¦ b ¦ c [31m \\¦ \\<!-- [x](y)";
    assert!(text.lines().any(|l| l.starts_with(&format!("| {shown} (baseline) | "))), "{text}");
    let picture = "![Time of each decode token, a ¦ b ¦ c (31m \\¦ \\<!-- (x)(y)](plots/";
    assert!(text.contains(picture), "{text}");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
    let tables: Vec<&str> = text.lines().filter(|l| l.starts_with('|')).collect();
    for pair in tables.windows(2).filter(|pair| pair[1].starts_with("|---")) {
        assert_eq!(pair[0].matches('|').count(), pair[1].matches('|').count());
    }
    for line in tables.iter().filter(|l| l.starts_with("| a ")) {
        assert!([15, 13, 12, 9, 8].contains(&line.matches('|').count()), "{line}");
    }
    let svg = fs::read_dir(folder.path().join("plots")).unwrap().map(|e| e.unwrap().path());
    for path in svg.filter(|p| p.extension().is_some_and(|e| e == "svg")) {
        let text = fs::read_to_string(path).unwrap();
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
    }
}
