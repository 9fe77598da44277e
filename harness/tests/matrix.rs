//! Matrix files: expansion, names, ids, filters, and what they say when something is wrong.

use std::fs;
use std::path::Path;

use bmoe::matrix::{Matrix, MatrixError, Schedule, Selection};

const BASE: &str = r#"
name = "m"
baseline = { mode = "mmap" }
[[model]]
name = "a"
path = "models/a.gguf"
[base]
prompt = "hello"
"#;

const MODEL: &str = "[[model]]\nname = \"a\"\npath = \"models/a.gguf\"\n";

fn load(text: &str) -> Result<Schedule, MatrixError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.toml");
    fs::write(&path, text).unwrap();
    Matrix::load(&path)?.0.schedule()
}

fn with(more: &str) -> Schedule {
    load(&format!("{BASE}{more}")).unwrap()
}

fn without_baseline(more: &str) -> Schedule {
    load(&format!("{BASE}{more}").replace("baseline = { mode = \"mmap\" }", "")).unwrap()
}

fn names(schedule: &Schedule) -> Vec<&str> {
    schedule.runs.iter().map(|r| schedule.cells[r.cell].name.as_str()).collect()
}

const AXES: &str = r#"
[axes]
mode = ["mmap", "stream"]
cache_mib = [0, 128]
io_threads = [1, 4]
"#;

#[test]
fn settings_without_meaning_in_a_mode_do_not_multiply_its_cells() {
    assert_eq!(
        names(&with(AXES)),
        [
            "mmap",
            "stream, cache off, 1 lane",
            "stream, cache off, 4 lanes",
            "stream, cache 128 MiB, 1 lane",
            "stream, cache 128 MiB, 4 lanes",
        ]
    );
}

#[test]
fn excludes_and_further_cells() {
    let schedule = with(&format!(
        "{AXES}[[exclude]]\ncache_mib = 0\nio_threads = 1\n[[cell]]\nname = \"reference\"\n\
         mode = \"resident\"\n"
    ));
    assert_eq!(
        names(&schedule),
        [
            "mmap",
            "stream, cache off, 4 lanes",
            "stream, cache 128 MiB, 1 lane",
            "stream, cache 128 MiB, 4 lanes",
            "reference",
        ]
    );
}

#[test]
fn only_what_varies_is_in_the_names() {
    let schedule = without_baseline(
        "[axes]\nmode = [\"mmap\"]\nn_expert_used = [0, 6]\n[[cell]]\nmode = \"mmap\"\nthreads = 2\n",
    );
    assert_eq!(
        names(&schedule),
        [
            "mmap, the model's top-k, all threads",
            "mmap, top-6, all threads",
            "mmap, the model's top-k, 2 threads"
        ]
        .as_slice()
    );
}

#[test]
fn a_cell_with_a_name_of_its_own_changes_no_other_name() {
    let schedule = with(&format!(
        "{AXES}[[cell]]\nname = \"six experts\"\nmode = \"stream\"\nn_expert_used = 6\noverlap = false\n"
    ));
    assert!(names(&schedule).contains(&"six experts"));
    assert!(names(&schedule).contains(&"stream, cache 128 MiB, 4 lanes"), "{:?}", names(&schedule));
}

#[test]
fn names_tell_how_experts_are_kept_and_read() {
    let schedule = with(
        "[axes]\nmode = [\"mmap\", \"stream\"]\ncache_mib = [0, 1500, \"auto\"]\n\
         cache_policy = [\"lru\", \"lfu\"]\n\
         [[exclude]]\ncache_mib = \"auto\"\ncache_policy = \"lru\"\n\
         [[cell]]\nmode = \"stream\"\nio_engine = \"uring\"\noverlap = false\nodirect = false\n\
         [[cell]]\nmode = \"stream\"\ncache_mib = 1500\nprefetch_layers = 2\npredict_experts = 3\n\
         dense_weights = \"warm\"\n",
    );
    assert_eq!(
        names(&schedule),
        [
            "mmap",
            "stream, cache off, 4 lanes, pread, overlap, dense anon",
            "stream, cache 1500 MiB, lru, no prefetch, no prediction, 4 lanes, pread, overlap, dense anon",
            "stream, cache 1500 MiB, lfu, no prefetch, no prediction, 4 lanes, pread, overlap, dense anon",
            "stream, cache auto, lfu, no prefetch, no prediction, 4 lanes, pread, overlap, dense anon",
            "stream, cache off, 4 lanes, uring, buffered, overlap off, dense anon",
            "stream, cache 1500 MiB, lru, prefetch 2, predict 3, 4 lanes, pread, overlap, dense warm",
        ]
    );
}

#[test]
fn settings_of_sampling_and_profiles_are_named_where_they_vary() {
    let schedule = without_baseline(
        "[axes]\nmode = [\"stream\"]\ncache_mib = [9]\nwarm_profile = [\"\", \"p/hot.json\"]\n\
         sampling = [{}, { temperature = 0.7, seed = 3 }]\n",
    );
    assert_eq!(
        names(&schedule),
        [
            "stream, cache 9 MiB, 4 lanes, cold, greedy",
            "stream, cache 9 MiB, 4 lanes, warm hot.json, greedy",
            "stream, cache 9 MiB, 4 lanes, cold, temperature 0.7 seed 3",
            "stream, cache 9 MiB, 4 lanes, warm hot.json, temperature 0.7 seed 3",
        ]
    );
    let lossless: Vec<_> =
        (0..4).map(|i| schedule.cells[0].same_text(&schedule.cells[i])).collect();
    assert_eq!(lossless, [true, true, false, false]);
}

#[test]
fn ids_depend_on_content_and_on_nothing_else() {
    let ids = |schedule: &Schedule| -> Vec<String> {
        schedule.cells.iter().map(|c| c.id.clone()).collect()
    };
    let first = ids(&with(AXES));
    // Another order, another folder, another name of the matrix and of the model.
    let other = load(
        &format!("{BASE}{AXES}")
            .replace("name = \"m\"", "name = \"other\"\nrepetitions = 3")
            .replace("name = \"a\"", "name = \"b\"")
            .replace("models/a.gguf", "elsewhere/a.gguf")
            .replace("[0, 128]", "[128, 0]"),
    )
    .unwrap();
    let mut sorted = (first.clone(), ids(&other));
    sorted.0.sort();
    sorted.1.sort();
    assert_eq!(sorted.0, sorted.1);
    let distinct: std::collections::HashSet<_> = first.iter().collect();
    assert_eq!(distinct.len(), first.len());
    // Ids are in published results: a change of how they are made would orphan those.
    assert_eq!(first[0], "ec3f6862ddc5");
}

#[test]
fn cells_are_compared_only_where_their_texts_must_agree() {
    let schedule = with(
        "[axes]\nmode = [\"mmap\", \"stream\"]\n[[cell]]\nmode = \"stream\"\nn_expert_used = 6\n",
    );
    let lossless: Vec<_> = schedule.cells.iter().map(|c| c.lossless).collect();
    assert_eq!(lossless, [true, true, false]);
}

#[test]
fn filters_take_texts_and_regular_expressions() {
    let select = |filter: &str| {
        let schedule = with(AXES).select(&Selection::new(filter).unwrap());
        names(&schedule).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(select("CACHE OFF, 1"), ["stream, cache off, 1 lane"]);
    assert_eq!(select("^a: mmap$"), ["mmap"]);
    assert_eq!(select("128 MiB, (1|4)").len(), 2);
    let id = &with(AXES).cells[1].id;
    assert_eq!(select(id), ["stream, cache off, 1 lane"]);
    assert!(select("nothing like it").is_empty());
    assert!(Selection::new("(").is_err());
}

#[test]
fn ranges_are_lists_written_shortly() {
    let schedule = with(
        "[axes]\nmode = [\"mmap\", \"stream\"]\ncache_mib = { from = 500, to = 1500, step = 500 }\n\
                         io_threads = { from = 1, to = 4, factor = 2 }\n",
    );
    assert_eq!(schedule.cells.len(), 1 + 3 * 3);
    assert_eq!(schedule.cells[1].name, "stream, cache 500 MiB, 1 lane");
    assert_eq!(schedule.cells[9].name, "stream, cache 1500 MiB, 4 lanes");
    // The same cells as from a list.
    let listed = with(
        "[axes]\nmode = [\"mmap\", \"stream\"]\ncache_mib = [500, 1000, 1500]\nio_threads = [1, 2, 4]\n",
    );
    assert_eq!(schedule.cells, listed.cells);
}

#[test]
fn every_cell_is_run_with_every_prompt() {
    let text = BASE
        .replace("[base]\nprompt = \"hello\"", "[prompts]\nlong = \"tell me all\"\nshort = \"hi\"")
        + "[axes]\nmode = [\"mmap\", \"stream\"]\n[[cell]]\nmode = \"stream\"\nprompt = \"its own\"\n";
    let schedule = load(&text).unwrap();
    assert_eq!(
        names(&schedule),
        [
            "mmap, long",
            "mmap, short",
            "stream, cache off, 4 lanes, long",
            "stream, cache off, 4 lanes, short",
            "stream, cache off, 4 lanes, prompt \"its own\"",
        ]
    );
    let prompts: Vec<&str> = schedule.cells.iter().map(|c| c.config.prompt.as_str()).collect();
    assert_eq!(prompts, ["tell me all", "hi", "tell me all", "hi", "its own"]);
    // A cell is what it runs, not what its prompt is called.
    let plain =
        load(&format!("{}[axes]\nmode = [\"mmap\"]\n", BASE.replace("hello", "hi"))).unwrap();
    assert_eq!(plain.cells[0].id, schedule.cells[1].id);
}

#[test]
fn groups_are_baselines_and_those_beside_them() {
    let groups = "[[group]]\nname = \"lanes\"\nbaseline = { mode = \"stream\", io_threads = 1 }\n\
                  members = { io_threads = 4 }\n";
    let text =
        format!("{BASE}[axes]\nmode = [\"mmap\", \"stream\"]\nio_threads = [1, 2, 4]\n{groups}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.toml");
    fs::write(&path, text).unwrap();
    let matrix = Matrix::load(&path).unwrap().0;
    let schedule = matrix.schedule().unwrap();
    let (baselines, members) = matrix.groups[0].split(&schedule.cells);
    let names = |cells: Vec<&bmoe::matrix::Cell>| {
        cells.iter().map(|cell| cell.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(baselines), ["stream, cache off, 1 lane"]);
    // What a memory map does without lanes counts as the default of 4.
    assert_eq!(names(members), ["mmap", "stream, cache off, 4 lanes"]);
}

#[test]
fn the_order_is_the_matrix_s() {
    let order = |more: &str| -> Vec<(usize, u32)> {
        let schedule = load(&format!(
            "repetitions = 2\n{more}\n{BASE}[axes]\nmode = [\"mmap\", \"stream\"]\n"
        ));
        schedule.unwrap().runs.iter().map(|r| (r.cell, r.repetition)).collect()
    };
    assert_eq!(order(""), [(0, 0), (1, 0), (0, 1), (1, 1)]);
    assert_eq!(order("order = \"reversed\""), [(1, 1), (0, 1), (1, 0), (0, 0)]);
    assert_eq!(order("order = \"as-written\""), [(0, 0), (0, 1), (1, 0), (1, 1)]);
    let random = order("order = \"random\"\nseed = 5");
    assert_eq!(random, order("order = \"random\"\nseed = 5"));
}

#[test]
fn a_model_can_be_named_by_its_hash() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("some.gguf");
    fs::write(&model, "weights").unwrap();
    let hash = bmoe::models::hash(&model, &mut |_| {}).unwrap().sha256.unwrap();
    let locate = |sha256: &str| {
        let text = BASE.replace("path = \"models/a.gguf\"", &format!("sha256 = \"{sha256}\""));
        let path = folder.path().join("m.toml");
        fs::write(&path, format!("{text}[axes]\nmode = [\"mmap\"]\n")).unwrap();
        let matrix = Matrix::load(&path).unwrap().0;
        bmoe::models::locate(&matrix, Path::new(""), folder.path())
    };
    assert_eq!(locate(&hash[..12]).unwrap()[0].path, model);
    let unknown = locate("000000000000").unwrap_err().to_string();
    assert!(unknown.contains(&hash[..12]) && unknown.contains("some.gguf"), "{unknown}");
}

#[test]
fn mistakes_are_named() {
    // 300 to the power of four.
    let values = (1..=300).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let axes = ["n_predict", "ctx_tokens", "ubatch_tokens", "threads"];
    let many: String = axes.iter().map(|axis| format!("{axis} = [{values}]\n")).collect();
    let wrong = [
        BASE.replace("name = \"m\"", "name = \"m m\""),
        BASE.replace("prompt", "promt"),
        format!("{BASE}[axes]\ncache_mib = [\"big\"]\n"),
        format!("{BASE}[axes]\nmode = []\n"),
        format!("{BASE}[axes]\nmode = [\"stream\"]\n"),
        format!("{BASE}[axes]\nmode = [\"mmap\"]\nthreads = [1, 2]\n"),
        format!("{BASE}{AXES}[[exclude]]\ncache_mib = 64\n"),
        format!("{BASE}{AXES}[[cell]]\nmodel = \"b\"\nmode = \"mmap\"\n"),
        BASE.to_owned(),
        format!("{BASE}[axes]\nmode = [\"mmap\", \"stream\"]\nio_threads = [4, 9]\n"),
        BASE.replace("path = ", "synth = { shape = \"x\" }\npath = "),
        format!("{}{AXES}", BASE.replace("prompt = \"hello\"", "")),
        format!("timeout_s = 0\n{BASE}{AXES}"),
        format!("{BASE}{AXES}[[model]]\nname = \"a\"\npath = \"b.gguf\"\n"),
        format!("model = []\n{}{AXES}", BASE.replace(MODEL, "")),
        format!("{}{AXES}", BASE.replace(MODEL, "")),
        BASE.replace("name = \"a\"", "name = \"a|b\""),
        format!("{BASE}[[cell]]\nmode = \"mmap\"\nname = \"two\\nlines\"\n"),
        format!("{BASE}[[cell]]\nmode = \"mmap\"\nname = \"\\u001b[31mred\"\n"),
        format!("repetitions = 4294967295\n{BASE}{AXES}"),
        format!("repetitions = 4000\n{BASE}{AXES}"),
        format!("{BASE}[axes]\nmode = [\"mmap\"]\n{many}"),
        format!("{BASE}[axes]\nmode = [\"mmap\", \"stream\"]\nio_ceiling_mib_s = [-1.0]\n"),
        format!("{BASE}[axes]\nmode = [\"mmap\"]\nio_engine = [\"fast\"]\n"),
        format!(
            "{BASE}[axes]\nmode = [\"mmap\", \"stream\"]\ncache_mib = [9]\ncache_policy = [\"mru\"]\n"
        ),
        format!("{BASE}[axes]\nmode = [\"mmap\"]\nsampling = [{{ temp = 1.0 }}]\n"),
        format!("{BASE}[axes]\nmode = [\"mmap\"]\nthreads = {{ from = 1, to = 4 }}\n"),
        format!("{BASE}{AXES}[[group]]\nname = \"g\"\nbaseline = {{ cache_mib = 64 }}\n"),
        format!("{BASE}{AXES}[[group]]\nname = \"g\"\nbaseline = {{}}\n"),
        BASE.replace("path = \"models/a.gguf\"", "sha256 = \"xyz\""),
        format!("order = \"sorted\"\n{BASE}{AXES}"),
        format!("{BASE}{AXES}[gate]\ncpu_temp = 40\n"),
    ];
    let messages: Vec<String> = wrong
        .iter()
        .map(|text| load(text).unwrap_err().to_string())
        // The folder differs from run to run.
        .map(|message| match message.find("m.toml is not") {
            Some(start) => message[start..].to_owned(),
            None => message,
        })
        .collect();
    insta::assert_snapshot!(messages.join("\n---\n"));
}

#[test]
fn the_matrices_of_the_repository_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../matrices");
    let mut found = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "toml") {
            let (matrix, _) = Matrix::load(&path).unwrap();
            let file = path.file_stem().unwrap().to_str().unwrap();
            assert_eq!(matrix.name, file);
            matrix.schedule().unwrap();
            bmoe::models::locate(&matrix, path.parent().unwrap(), Path::new("models")).unwrap();
            found += 1;
        }
    }
    assert!(found > 0);
}
