//! Reports of synthetic result folders, as a person reads them.

use std::fs;

use crate::folder::{Folder, cell, full_folder, keep_picture};
use bmoe_analysis::report::render_with;
use bmoe_analysis::result_set::{CellRecord, Conditions, Gate, LoadAverage, State, Verdict};
use bmoe_analysis::{ingest, render};
use bmoe_trace::config::ComputeTrace;
use bmoe_trace::{CacheBudget, Mode};

fn report_of(folder: &Folder) -> String {
    let paths = render(folder.path()).unwrap();
    fs::read_to_string(paths.report).unwrap()
}

#[test]
fn a_matrix_with_repetitions_and_cells_that_are_not_valid() {
    let folder = full_folder();
    insta::assert_snapshot!(report_of(&folder));
    let plots = fs::read_dir(folder.path().join("plots")).unwrap().count();
    // One heatmap, the rates and four timelines, two formats each; nothing of cells without valid runs.
    assert_eq!(plots, 12);
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert!(left.is_empty(), "temporary files are left: {left:?}");
}

#[test]
fn the_page_has_the_whole_report_and_the_routes_of_each_cell() {
    let folder = full_folder();
    let paths = render(folder.path()).unwrap();
    let page = fs::read_to_string(&paths.page).unwrap();
    let report = fs::read_to_string(&paths.report).unwrap();
    assert_eq!(page.matches("class=\"plot\" role=\"img\"").count(), paths.plots.len() / 2);
    let tables = report.lines().filter(|line| line.starts_with("|---")).count();
    assert_eq!(page.matches("<table>").count(), tables);
    for heading in report.lines().filter_map(|line| line.strip_prefix("## ")) {
        assert!(page.contains(&format!("{heading}</h2>")), "{heading}");
    }
    // Four cells have valid runs; the map does not know where its experts were.
    let runs: Vec<&str> =
        page.lines().filter(|line| line.starts_with("<script type=\"application/json\"")).collect();
    assert_eq!(runs.len(), 4);
    assert!(runs[0].contains("\"residency\":null") && !runs[3].contains("\"residency\":null"));
    assert!(page.contains("<option value=\"3\">stream, cache 320 MiB, 4 lanes</option>"));
    render(folder.path()).unwrap();
    assert_eq!(fs::read_to_string(&paths.page).unwrap(), page);
}

/// The part of a report that has the tables, and its definitions.
fn tables_of(report: &str) -> String {
    let (before, _) = report.split_once("### Expert reuse").unwrap();
    let (_, behind) = report.split_once("## Definitions").unwrap();
    let (definitions, _) = behind.split_once("## Environment").unwrap();
    let (_, own) = definitions.split_once("- **verdict**").unwrap();
    format!("{before}...\n- **verdict**{own}")
}

#[test]
fn overlap_reading_ahead_and_policies_have_columns_where_they_occur() {
    let mut folder = Folder::new();
    let cell = |id: &str, name: &str, cache_mib: u64| {
        let mut cell = cell(id, name, Mode::Stream, cache_mib, 4);
        cell.config.overlap = true;
        cell
    };
    let mut serial =
        crate::folder::cell("s0", "stream, cache 120 MiB, overlap off", Mode::Stream, 120, 4);
    serial.baseline = true;
    let overlapped = cell("s1", "stream, cache 120 MiB", 120);
    let mut ahead = cell("s2", "stream, cache auto, lfu, prefetch 1", 0);
    ahead.config.cache_mib = CacheBudget::Auto;
    ahead.config.cache_policy = "lfu".into();
    ahead.config.prefetch_layers = 1;
    let mut traced = cell("s3", "stream, cache 120 MiB, layers traced", 120);
    traced.config.compute_trace = ComputeTrace::Layers;
    for cell in [&serial, &overlapped, &ahead, &traced] {
        for repetition in 0..2 {
            let load = LoadAverage { start: 0.4 + f64::from(repetition), end: 2.0 };
            let cell = CellRecord { repetition, load_average: Some(load), ..cell.clone() };
            folder.add_run(&cell, 24);
        }
    }
    insta::assert_snapshot!(tables_of(&report_of(&folder)));
    let plots = folder.path().join("plots");
    let legend = |name: &str| fs::read_to_string(plots.join(name)).unwrap();
    let timeline = legend("qwen-tiny-stream-cache-120-mib-timeline.svg");
    assert!(timeline.contains("stall") && !timeline.contains("I/O wait"));
    let timeline = legend("qwen-tiny-stream-cache-120-mib-overlap-off-timeline.svg");
    assert!(timeline.contains("I/O wait") && !timeline.contains("stall"));
}

#[test]
fn conditions_verdicts_and_the_steady_state_have_their_tables() {
    let mut folder = Folder::new();
    let state = |millic: i32| State {
        cpu_temperature_millic: Some(millic),
        mem_available_bytes: Some(900 << 20),
        max_clock_khz: vec![1_800_000, 2_800_000],
        ..State::default()
    };
    let conditions = |clock_floor_khz: u32, swapped: u64| Conditions {
        entry: state(41_500),
        exit: Some(state(62_000)),
        mem_available_floor_bytes: Some(250 << 20),
        swap_peak_bytes: Some(12 << 20),
        swap_in_pages: Some(swapped),
        swap_out_pages: Some(0),
        cpu_temperature_peak_millic: Some(64_000),
        clock_floor_khz: Some(clock_floor_khz),
        psi_memory_peak_pct: Some(1.25),
        samples: 3,
        gate: Some(Gate {
            waited_s: 30.0,
            gave_up: (clock_floor_khz < 2_000_000).then(|| "CPU at 45.0 °C, wanted 42.0".into()),
            ..Gate::default()
        }),
        ..Conditions::default()
    };
    let mmap = cell("m0", "mmap", Mode::Mmap, 0, 1);
    folder.add_run(&CellRecord { conditions: Some(conditions(2_800_000, 0)), ..mmap }, 24);
    let mut stream = cell("s1", "stream, cache 120 MiB, 4 lanes", Mode::Stream, 120, 4);
    stream.conditions = Some(conditions(1_800_000, 700));
    for (repetition, attempt, verdict, reason) in [
        (0, 1, Verdict::Throttled, Some("clock held at 1800 MHz of 2800")),
        (0, 2, Verdict::Valid, None),
        (1, 1, Verdict::Swapped, Some("700 pages read from swap")),
    ] {
        let mut cell = CellRecord { repetition, attempt, verdict, ..stream.clone() };
        cell.reason = reason.map(str::to_owned);
        cell.id = "s1".into();
        let run_id = format!("s1-r{repetition}-a{attempt}");
        let records = crate::synthetic::records(
            &run_id,
            crate::synthetic::SHAPE,
            &cell.config,
            24,
            u64::from(attempt),
        );
        let trace = crate::synthetic::trace_bytes(&records);
        folder.add(CellRecord { run_id: Some(run_id), ..cell }, Some(&trace));
    }
    for (verdict, reason) in [
        (Verdict::OutOfMemory, "the kernel's counter of such kills rose"),
        (Verdict::Lost, "the device did not come back within 120 s"),
        (Verdict::Faulting, "41.0 major page faults a token, comparable cells 0.0"),
    ] {
        let id = verdict.as_str();
        let cell = cell(id, verdict.words(), Mode::Stream, 64, 4);
        folder.add(CellRecord { verdict, reason: Some(reason.into()), ..cell }, None);
    }
    let report = fs::read_to_string(render_with(folder.path(), Some(8)).unwrap().report).unwrap();
    let (tables, behind) = report.split_once("### Expert reuse").unwrap();
    let (definitions, _) = behind.split_once("## Environment").unwrap();
    let (_, own) = definitions.split_once("- **95 % interval**").unwrap();
    insta::assert_snapshot!(format!("{tables}...\n- **95 % interval**{own}"));

    // A matrix says it for itself.
    let matrix = folder.path().join("matrix.toml");
    fs::write(&matrix, "name = \"tiny\"\nwarmup_tokens = 8\n").unwrap();
    assert_eq!(report, report_of(&folder));
    fs::write(&matrix, "name = \"tiny\"\n").unwrap();
    assert!(!report_of(&folder).contains("Steady state"));
}

#[test]
fn repetitions_that_differ_and_a_busy_machine_are_told() {
    let mut folder = Folder::new();
    let cell = cell("m0", "mmap", Mode::Mmap, 0, 1);
    folder.add_run(&cell, 5);
    let busy = LoadAverage { start: 3.4, end: 3.5 };
    // The first five tokens of this noise are slower by a half.
    let mut again = CellRecord { repetition: 1, load_average: Some(busy), ..cell.clone() };
    again.run_id = Some("m0-r1".into());
    let mut records =
        crate::synthetic::records("m0-r1", crate::synthetic::SHAPE, &again.config, 5, 1);
    for record in &mut records {
        if let bmoe_trace::Record::Token(token) = record {
            token.cost.wall_ns *= 2;
        }
    }
    folder.add(again, Some(&crate::synthetic::trace_bytes(&records)));
    let report = report_of(&folder);
    let remarks: Vec<_> = report.lines().filter(|l| l.starts_with("- mmap: ")).collect();
    assert!(remarks[0].contains("the repetitions differ by ") && remarks[0].contains(" tok/s)"));
    assert_eq!(
        remarks[1..],
        ["- mmap: the machine was busy before a repetition began (load average 3.4 on 2 cores)."]
    );
}

#[test]
fn the_same_folder_gives_the_same_bytes() {
    let folder = full_folder();
    let read_all = || {
        let paths = render(folder.path()).unwrap();
        let mut files = vec![fs::read(&paths.report).unwrap()];
        files.extend(paths.plots.iter().map(|p| fs::read(p).unwrap()));
        files
    };
    let first = read_all();
    ingest(folder.path()).unwrap();
    assert!(first == read_all(), "a second rendering differs");
}

#[test]
fn pictures_are_what_their_endings_say() {
    let folder = full_folder();
    for path in render(folder.path()).unwrap().plots {
        let bytes = fs::read(&path).unwrap();
        keep_picture(path.file_name().unwrap().to_str().unwrap(), &bytes);
        match path.extension().and_then(|e| e.to_str()) {
            Some("svg") => {
                let text = String::from_utf8(bytes).unwrap();
                assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"));
                assert!(text.contains("decode"), "{}", path.display());
                assert!(text.contains("font-family=\"DejaVu Sans, Verdana, sans-serif\""));
            }
            Some("png") => assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n") && bytes.len() > 5000),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_run_without_tokens_and_an_interrupted_matrix() {
    let mut folder = Folder::new();
    folder.add_run(&cell("m0", "mmap", Mode::Mmap, 0, 1), 0);
    let stopped = CellRecord {
        verdict: Verdict::Interrupted,
        reason: Some("stopped by SIGINT".into()),
        exit_code: Some(130),
        ..cell("s0", "stream, cache off, 4 lanes", Mode::Stream, 0, 4)
    };
    folder.add(stopped, None);
    insta::assert_snapshot!(report_of(&folder));
}

#[test]
fn nothing_ran() {
    let folder = Folder::new();
    let report = report_of(&folder);
    assert!(report.contains("No cell has ended yet."), "{report}");
}

#[test]
fn notes_tell_what_is_missing() {
    let mut folder = Folder::new();
    folder.add_run(&cell("m0", "mmap", Mode::Mmap, 0, 1), 3);
    folder.add_run(&cell("s0", "stream, cache off, 4 lanes", Mode::Stream, 0, 4), 3);
    fs::write(folder.trace_path("s0-r0"), b"BMOETRC\n").unwrap();
    let journal = folder.path().join("cells.jsonl");
    let text = fs::read_to_string(&journal).unwrap() + "{\"id\":\"s1\",\"na";
    fs::write(journal, text).unwrap();
    let report = report_of(&folder);
    let (_, notes) = report.split_once("## Notes").unwrap();
    insta::assert_snapshot!(notes.trim());
}

#[test]
fn a_repetition_that_failed_and_a_retry_stay_visible() {
    let mut folder = Folder::new();
    let first = cell("m0", "mmap", Mode::Mmap, 0, 1);
    folder.add_run(&first, 5);
    let second = CellRecord { repetition: 1, ..first.clone() };
    folder.add(
        CellRecord {
            verdict: Verdict::Killed,
            reason: Some("ended by SIGKILL (memory limit?)".into()),
            exit_code: None,
            ..second.clone()
        },
        None,
    );
    let third = CellRecord { repetition: 2, attempt: 1, ..first.clone() };
    folder.add(
        CellRecord { verdict: Verdict::TimedOut, reason: Some("60 s".into()), ..third.clone() },
        None,
    );
    folder.add_run(&CellRecord { attempt: 2, ..third }, 5);
    let report = report_of(&folder);
    let row = report.lines().find(|l| l.starts_with("| mmap (baseline) |")).unwrap();
    let verdict = "2 of 3 valid; **killed**: ended by SIGKILL (memory limit?) (1 retried) |";
    assert!(row.ends_with(verdict), "{row}");
}

#[test]
fn errors_name_the_file_and_the_next_step() {
    let empty = tempfile::tempdir().unwrap();
    let error = |dir: &std::path::Path| {
        let text = render(dir).unwrap_err().to_string();
        text.replace(&dir.display().to_string(), "DIR")
    };
    let mut texts = vec![error(empty.path())];

    let mut folder = Folder::new();
    folder.add_run(&cell("m0", "mmap", Mode::Mmap, 0, 1), 3);
    fs::remove_dir_all(folder.path().join("runs")).unwrap();
    texts.push(error(folder.path()));

    let folder = full_folder();
    fs::create_dir_all(folder.path().join("data")).unwrap();
    ingest(folder.path()).unwrap();
    fs::write(folder.path().join("data/tokens.parquet"), b"not Parquet at all").unwrap();
    texts.push(error(folder.path()));

    ingest(folder.path()).unwrap();
    fs::write(folder.path().join("environment.json"), "{\n  \"cpu\": 3\n}").unwrap();
    texts.push(error(folder.path()));

    let journal = folder.path().join("cells.jsonl");
    let mut lines = fs::read_to_string(&journal).unwrap();
    lines.insert_str(0, "{\"id\": 1}\n");
    fs::write(&journal, lines).unwrap();
    texts.push(error(folder.path()));
    insta::assert_snapshot!(texts.join("\n\n"));
}
