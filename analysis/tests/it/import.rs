//! Traces and logs of others: imported, loaded, reported.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use bmoe_analysis::data::imported::{ImportedReader, ImportedRun, Partitioned, Plan, import};
use bmoe_analysis::routes::{LoadOptions, RouteTrace, load, load_all};
use bmoe_analysis::{AnalysisError, render};
use bmoe_trace::Mode;
use bmoe_trace::record::{Phase, Residency};

use crate::folder::{Folder, cell};

const ROUTES: &str = "# route_trace v1\n\
    # model=/data/m.gguf arch=qwen3moe n_layer=3 n_expert=8 n_expert_used=2\n\
    # layer=1 expert_bytes=640\n\
    # layer=2 expert_bytes=700\n\
    turn,phase,step,layer,slot,expert,weight,residency,expert_bytes,note\n\
    0,0,0,1,0,3,0.75,0,640,a\n\
    0,0,0,1,1,7,0.25,0,640,\n\
    0,0,1,1,0,3,nan,0,0,\n\
    0,0,1,1,1,1,0.5,2,0,\n\
    0,0,1,2,0,2,0.5,0,700,\n\
    0,0,1,2,1,1,0.5,1,0,\n\
    0,1,2,1,0,3,0.5,1,0,\n\
    0,1,2,1,1,6,0.5,0,640,b\n";

const LOG: &str = "step,steps,wall_ms,io_ms,compute_ms,read_bytes,cache_hit_pct,stall_ms\n\
    1,2,100.000,60.000,40.000,2097152,12.50,0.000\n\
    2,2,300.000,180.000,120.000,1048576,25.99,0.000\n\
    # summary tokens=2 tok/s=5.0 load_s=1.5 n_prompt=3 prefill_s=0.5\n";

/// Files in a folder of their own.
struct Files(tempfile::TempDir);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn import(
        &self,
        names: &[&str],
        out: &str,
    ) -> Result<Vec<(String, ImportedRun)>, AnalysisError> {
        let paths: Vec<PathBuf> = names.iter().map(|name| self.path(name)).collect();
        import(Plan::new(&paths)?, &self.path(out), false, &mut |_| ControlFlow::Continue(()))
    }

    fn refused(&self, names: &[&str], out: &str) -> String {
        let error = self.import(names, out).unwrap_err().to_string();
        error.replace(&self.0.path().display().to_string(), "DIR")
    }
}

/// A trace without its name, which tells where it came from.
fn unnamed(mut trace: RouteTrace) -> RouteTrace {
    trace.name.clear();
    trace
}

fn all(source: &Path) -> RouteTrace {
    load(source, LoadOptions::default()).unwrap()
}

#[test]
fn a_trace_is_the_same_raw_and_imported() {
    let files = Files::new(&[("x.route.csv", ROUTES)]);
    let runs = files.import(&["x.route.csv"], "out").unwrap();
    assert_eq!((runs[0].0.as_str(), runs[0].1.route_rows, runs[0].1.route_events), ("x", 8, 3));
    let raw = all(&files.path("x.route.csv"));
    assert_eq!(
        (raw.name.as_str(), raw.arch.as_str(), raw.n_expert, raw.has_sizes()),
        ("x", "qwen3moe", 8, true)
    );
    let imported = all(&files.path("out"));
    // NaN is not equal to itself.
    let known = LoadOptions { weights: false, ..LoadOptions::default() };
    let without = |source: &Path| unnamed(load(source, known).unwrap());
    assert_eq!(without(&files.path("x.route.csv")), without(&files.path("out")));
    let events: Vec<_> = imported.events().collect();
    assert_eq!(
        (events[0].phase, events[0].layer, events[0].positions),
        (Phase::Prefill, 0, &[0, 1][..])
    );
    assert_eq!(
        (events[0].experts, events[0].read_bytes),
        (&[3, 7, 3, 1][..], &[640, 640, 0, 0][..])
    );
    assert_eq!(events[0].residency[3], Residency::PrefetchHit);
    assert!(events[0].weights[2].is_nan() && (events[0].weights[0] - 0.75).abs() < 1e-9);
    assert_eq!(
        (events[1].layer, events[1].positions, events[2].phase),
        (1, &[1][..], Phase::Decode)
    );
    let bare =
        load(&files.path("out"), LoadOptions { weights: false, residency: false, scores: false })
            .unwrap();
    let event = bare.events().next().unwrap();
    assert!(event.weights.is_empty() && event.residency.is_empty() && event.read_bytes.is_empty());
}

#[test]
fn logs_devices_and_routes_of_one_name_are_one_run() {
    let device = "peak_rss_kb=2048\ncpu_temp_max_mC=65600\n";
    let files = Files::new(&[
        ("a.csv", LOG),
        ("a.metrics", device),
        ("a.route.csv", ROUTES),
        ("b.csv", LOG),
        ("notes.md", "hello\n"),
    ]);
    // The folder itself, with the file that is neither.
    let plan = Plan::new(&[files.0.path().to_owned()]).unwrap();
    assert_eq!(plan.passed_over().len(), 1);
    let out = files.path("out");
    let mut seen = 0;
    let runs = import(plan, &out, false, &mut |done| {
        seen = done;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(seen > 0);
    let ids: Vec<&str> = runs.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
    let reader = ImportedReader::new(&out);
    assert_eq!(reader.runs().unwrap(), runs);
    let run = &runs[0].1;
    assert_eq!((run.log_rows, run.route_rows, run.model.as_deref()), (2, 8, Some("m.gguf")));
    assert_eq!(run.device().unwrap().get("peak_rss_kb"), Some("2048"));
    assert_eq!(run.files_json, r#"["a.route.csv","a.csv","a.metrics"]"#);
    assert_eq!(runs[1].1.device(), None);
    let log = reader.log("a").unwrap();
    assert_eq!(
        (log.rows, log.get("io_ms"), log.get("majflt")),
        (2, &[Some(60.0), Some(180.0)][..], &[None, None][..])
    );
    // Only one of the runs has routes, so it needs no name.
    assert_eq!(all(&out).rows(), 8);
    render(&out).unwrap();
    insta::assert_snapshot!(fs::read_to_string(out.join("report.md")).unwrap());
}

#[test]
fn a_log_s_metrics_file_comes_along_and_one_without_a_log_is_refused() {
    let files = Files::new(&[("a.csv", LOG), ("a.metrics", "k=1\n"), ("lone.metrics", "k=1\n")]);
    let runs = files.import(&["a.csv"], "out").unwrap();
    assert!(runs[0].1.device().is_some());
    // Naming it, twice even, changes nothing.
    let again = files.import(&["a.csv", "a.metrics", "a.csv"], "again").unwrap();
    assert_eq!(again, runs);
    insta::assert_snapshot!(files.refused(&["a.csv", "lone.metrics"], "out2"), @"DIR/lone.metrics holds device metrics, and no trace or log named lone is imported with it");
}

#[test]
fn damage_leaves_nothing_and_names_file_line_and_column() {
    let damaged = ROUTES.replace("0,1,2,1,1,6", "0,1,2,1,1,9");
    let files = Files::new(&[("good.csv", LOG), ("bad.csv", &damaged)]);
    insta::assert_snapshot!(
        files.refused(&["good.csv", "bad.csv"], "out"),
        @"DIR/bad.csv: line 13, column 6 (expert): `9`; expected an expert, 0 to 7"
    );
    let left: Vec<String> = fs::read_dir(files.0.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn a_stopped_import_leaves_nothing() {
    let files = Files::new(&[("good.csv", LOG)]);
    let plan = Plan::new(&[files.path("good.csv")]).unwrap();
    let error =
        import(plan, &files.path("out"), false, &mut |_| ControlFlow::Break(())).unwrap_err();
    assert!(matches!(error, AnalysisError::ImportStopped));
    assert_eq!(fs::read_dir(files.0.path()).unwrap().count(), 1);
}

#[test]
fn folders_in_the_way_are_kept_unless_they_are_imports_to_be_replaced() {
    let files = Files::new(&[("a.csv", LOG), ("b.csv", LOG)]);
    files.import(&["a.csv"], "out").unwrap();
    insta::assert_snapshot!(
        files.refused(&["b.csv"], "out"),
        @"DIR/out holds an import already; --force replaces it, another --out keeps both"
    );
    let again = Plan::new(&[files.path("b.csv")]).unwrap();
    import(again, &files.path("out"), true, &mut |_| ControlFlow::Continue(())).unwrap();
    let runs = ImportedReader::new(&files.path("out")).runs().unwrap();
    assert_eq!((runs.len(), runs[0].0.as_str()), (1, "b"));
    assert!(!Partitioned::Logs.path(&files.path("out"), "a").exists());
    fs::create_dir(files.path("mine")).unwrap();
    fs::write(files.path("mine/file"), "x").unwrap();
    let plan = Plan::new(&[files.path("b.csv")]).unwrap();
    let error =
        import(plan, &files.path("mine"), true, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("was not made by `bmoe import`"), "{error}");
    assert!(files.path("mine/file").exists());
}

#[test]
fn a_file_of_another_program_or_a_damaged_one_is_refused() {
    let files = Files::new(&[("x.csv", ROUTES)]);
    files.import(&["x.csv"], "out").unwrap();
    let out = files.path("out");
    let path = Partitioned::Routes.path(&out, "x");
    let whole = fs::read(&path).unwrap();
    let error = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        load(&out, LoadOptions::default()).unwrap_err().to_string()
    };
    let cut = error(&whole[..whole.len() / 2]);
    assert!(cut.contains("part-0.parquet") && cut.contains("import the traces again"), "{cut}");
    let mut folder = Folder::new();
    folder.add_run(&cell("s", "stream", Mode::Stream, 8, 2), 2);
    bmoe_analysis::ingest(folder.path()).unwrap();
    let other = error(&fs::read(folder.path().join("data/routes.parquet")).unwrap());
    assert!(other.ends_with("was not made by `bmoe import`"), "{other}");
}

#[test]
fn of_several_runs_one_is_chosen_by_its_name() {
    let other = ROUTES.replace("0,1,2,1,1,6", "0,1,2,1,1,4");
    let files = Files::new(&[("x.csv", ROUTES), ("y.csv", &other)]);
    files.import(&["x.csv", "y.csv"], "out").unwrap();
    let out = files.path("out");
    let named =
        |name: &str| load(Path::new(&format!("{}:{name}", out.display())), LoadOptions::default());
    assert_eq!(named("y").unwrap().events().last().unwrap().experts, [3, 4]);
    let both = load_all(&out, LoadOptions::default()).unwrap();
    assert_eq!(both.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["x", "y"]);
    let plain = |error: AnalysisError| error.to_string().replace(&out.display().to_string(), "DIR");
    insta::assert_snapshot!(
        plain(load(&out, LoadOptions::default()).unwrap_err()),
        @"DIR holds the routes of 2 runs; choose one: DIR:NAME, where NAME is x or y"
    );
    insta::assert_snapshot!(plain(named("z").unwrap_err()), @"DIR has no run or cell with routes that is called `z`");
}

#[test]
fn result_folders_give_their_baseline_or_the_cell_named() {
    let mut folder = Folder::new();
    let stream = cell("s", "stream, cache 8 MiB", Mode::Stream, 8, 2);
    folder.add_run(&stream, 6);
    let mut mmap = cell("m", "mmap", Mode::Mmap, 0, 1);
    mmap.baseline = true;
    folder.add_run(&mmap, 6);
    bmoe_analysis::ingest(folder.path()).unwrap();
    let baseline = all(folder.path());
    assert_eq!(
        (baseline.name.as_str(), baseline.decode_tokens(), baseline.has_sizes()),
        ("mmap", 6, true)
    );
    assert!(baseline.events().all(|e| e.residency.is_empty()), "a map tells no residency");
    let named = all(Path::new(&format!("{}:stream, cache 8 MiB", folder.path().display())));
    assert_eq!(named.name, "stream, cache 8 MiB");
    assert!(named.events().all(|e| e.residency.len() == e.experts.len()));
    assert_eq!(load_all(folder.path(), LoadOptions::default()).unwrap().len(), 2);
    // The trace of the run itself holds the same.
    let raw = all(&folder.trace_path("s-r0"));
    assert_eq!(unnamed(raw.clone()), unnamed(named));
    // And so does an import of it, which brings the log along.
    let out = folder.path().join("imported");
    let plan = Plan::new(&[folder.trace_path("s-r0")]).unwrap();
    let runs = import(plan, &out, false, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((runs[0].1.log_rows, runs[0].1.log_version), (6, Some(2)));
    assert_eq!(unnamed(all(&out)), unnamed(raw));
}
