//! Published figures: in the matrices of the repository, in their pages, and in reports.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use bmoe::matrix::{Matrix, Schedule};
use bmoe_analysis::result_set::PublishedFigures;
use common::place::{MATRIX, Place, RUN, stderr, stdout};

/// The matrices of the repository, by name.
fn matrices() -> Vec<(String, Matrix, Schedule)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../matrices");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    paths.sort();
    let load = |path: PathBuf| {
        let (matrix, _) = Matrix::load(&path).unwrap_or_else(|e| panic!("{e}"));
        let schedule = matrix.schedule().unwrap_or_else(|e| panic!("{e}"));
        (path.file_stem().unwrap().to_string_lossy().into_owned(), matrix, schedule)
    };
    paths.into_iter().map(load).collect()
}

/// A matrix's published figures as its page has them.
fn table(matrix: &Matrix, schedule: &Schedule) -> String {
    type Of = fn(&PublishedFigures) -> Option<f64>;
    // Names, most decimals, fewest decimals.
    let columns: [(&str, usize, usize, Of); 11] = [
        ("tok/s mean", 3, 2, |f| f.tok_s),
        ("min", 2, 2, |f| f.min_tok_s),
        ("max", 2, 2, |f| f.max_tok_s),
        ("median", 2, 2, |f| f.median_tok_s),
        ("p5", 2, 2, |f| f.p5_tok_s),
        ("p95", 2, 2, |f| f.p95_tok_s),
        ("hit %", 1, 0, |f| f.hit_pct),
        ("MiB/token", 2, 0, |f| f.mib_token),
        ("compute s/token", 3, 3, |f| f.compute_s),
        ("I/O or stall s/token", 3, 3, |f| f.io_s),
        ("lanes busy s/token", 3, 3, |f| f.lanes_busy_s),
    ];
    let published = matrix.published.as_ref().unwrap().named(&schedule.cells);
    let there: Vec<_> = columns
        .iter()
        .filter(|(.., of)| published.cells.iter().any(|cell| of(&cell.figures).is_some()))
        .collect();
    let mut text = "| configuration |".to_owned();
    there.iter().for_each(|(name, ..)| text += &format!(" {name} |"));
    text += &format!("\n|---|{}\n", "---:|".repeat(there.len()));
    for cell in &published.cells {
        text += &format!("| {} |", cell.name);
        for (_, most, least, of) in &there {
            let figure = of(&cell.figures).map(|value| {
                let mut text = format!("{value:.most$}");
                for _ in *least..*most {
                    text = text.strip_suffix('0').unwrap_or(&text).to_owned();
                }
                text.trim_end_matches('.').to_owned()
            });
            text += &format!(" {} |", figure.unwrap_or_else(|| "–".to_owned()));
        }
        text += "\n";
    }
    text
}

#[test]
fn every_matrix_of_the_repository_can_be_run() {
    let all = matrices();
    assert!(all.len() >= 12, "{} matrices", all.len());
    for (file, matrix, schedule) in &all {
        assert_eq!(*file, matrix.name);
        assert!(!schedule.runs.is_empty() && !matrix.description.is_empty(), "{file}");
        if let Some(published) = &matrix.published {
            // Each in a cell of its own.
            let mut ids: Vec<_> =
                published.named(&schedule.cells).cells.into_iter().map(|cell| cell.id).collect();
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), published.cells.len(), "{file}");
        }
    }
}

/// Each page has the figures of its matrix, and says how to measure them again.
#[test]
fn pages_have_the_figures_of_their_matrices() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/published");
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let pages: String = files.map(|path| fs::read_to_string(path).unwrap()).collect();
    let mut tables = 0;
    for (file, matrix, schedule) in matrices() {
        if matrix.published.is_none() {
            continue;
        }
        let table = table(&matrix, &schedule);
        assert!(
            pages.contains(&table),
            "no page of docs/published has this table of {file}:\n{table}"
        );
        let command = format!("bmoe run matrices/{file}.toml");
        assert!(pages.contains(&command), "no page of docs/published has `{command}`");
        tables += 1;
    }
    assert!(tables >= 7, "{tables} tables");
}

const PUBLISHED: &str = "\n[published]\nsource = \"a paper\"\ndevice = \"a phone\"\n\
    [[published.cell]]\nsettings = { mode = \"mmap\" }\nfigures = { tok_s = 50 }\n\
    [[published.cell]]\nsettings = { mode = \"stream\", cache_mib = 0 }\nfigures = { tok_s = 80.5, mib_token = 480 }\n\
    [[published.cell]]\nsettings = { mode = \"stream\", cache_mib = 16 }\nfigures = { tok_s = 120, mib_token = 225, hit_pct = 76 }\n";

#[test]
fn measured_stands_beside_published() {
    let place = Place::new("succeed");
    fs::write(place.at("m.toml"), format!("{MATRIX}{PUBLISHED}")).unwrap();
    let output = place.bmoe(&RUN);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report = fs::read_to_string(place.at("out/report.md")).unwrap();
    let (_, section) = report.split_once("## Measured beside published").unwrap();
    let (section, _) = section.split_once("## Definitions").unwrap();
    insta::assert_snapshot!(section);
    assert!(
        stdout(&output).contains("published: Hit rate and MiB/token agree in "),
        "{}",
        stdout(&output)
    );
    // A copy of the folder needs nothing else.
    fs::remove_file(place.at("out/matrix.toml")).unwrap();
    assert_eq!(place.bmoe(&["report", "out"]).status.code(), Some(0));
    assert!(fs::read_to_string(place.at("out/report.md")).unwrap().contains(section));
}

#[test]
fn published_figures_of_no_cell_or_several_are_refused() {
    let place = Place::new("succeed");
    let refused = |published: String| {
        fs::write(place.at("m.toml"), format!("{MATRIX}{published}")).unwrap();
        let output = place.bmoe(&RUN);
        assert_eq!(output.status.code(), Some(3));
        stderr(&output)
    };
    let all = [
        refused(PUBLISHED.replace("cache_mib = 16", "cache_mib = 17")),
        refused(PUBLISHED.replace(", cache_mib = 16", "")),
        refused(PUBLISHED.replace("hit_pct", "hits")),
        refused(PUBLISHED.replace(
            "settings = { mode = \"mmap\" }",
            "settings = { mode = \"mmap\" }\nmodel = \"other\"",
        )),
    ];
    insta::assert_snapshot!(all.join("---\n"));
}

#[test]
fn a_file_stands_in_for_a_model_of_the_matrix() {
    let place = Place::new("succeed");
    fs::write(place.at("real.gguf"), "GGUF of its own").unwrap();
    let matrix: Matrix = toml::from_str(MATRIX).unwrap();
    let model = format!("{}=real.gguf", matrix.models[0].name);
    let output = place.bmoe(&[&RUN[..], &["--model", &model, "--filter", "mmap"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let environment = fs::read_to_string(place.at("out/environment.json")).unwrap();
    assert!(environment.contains("\"file\": \"real.gguf\""), "{environment}");
    assert!(place.journal()[0].config.model.ends_with("real.gguf"));
    // What goes on goes on with the same file.
    let again = place.bmoe(&["run", "--resume", "out"]);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    // Another file of that name is another model.
    fs::write(place.at("real.gguf"), "GGUF, and another one").unwrap();
    let changed = place.bmoe(&["run", "--resume", "out"]);
    assert_eq!(changed.status.code(), Some(3));
    assert!(stderr(&changed).contains("out was begun with another model"), "{}", stderr(&changed));
    let refused = place.bmoe(&["run", "m.toml", "--out", "new", "--model", "other=real.gguf"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(stderr(&refused).contains("has no model `other` to take"), "{}", stderr(&refused));
}

#[test]
fn a_sweep_is_refined_around_its_fastest_cell() {
    let place = Place::new("succeed");
    assert_eq!(place.bmoe(&RUN).status.code(), Some(0));
    let refined = place.bmoe(&["refine", "out", "--out", "fine.toml"]);
    assert_eq!(refined.status.code(), Some(0), "{}", stderr(&refined));
    let (fine, _) = Matrix::load(&place.at("fine.toml")).unwrap();
    let schedule = fine.schedule().unwrap();
    assert_eq!(schedule.runs.len(), schedule.cells.len() * 5);
    assert!(schedule.cells[0].baseline && schedule.cells.len() > 2, "{:?}", schedule.cells);
    // One setting at a time.
    let best = &schedule.cells[0].config;
    for cell in &schedule.cells[1..] {
        let c = &cell.config;
        let differ = [
            c.cache_mib != best.cache_mib,
            c.io_threads != best.io_threads,
            c.threads != best.threads,
            c.overlap != best.overlap,
        ];
        assert_eq!(differ.iter().filter(|d| **d).count(), 1, "{}", cell.name);
    }
    let again = place.bmoe(&["refine", "out", "--out", "fine.toml"]);
    assert_eq!(again.status.code(), Some(3));
    assert!(stderr(&again).contains("fine.toml is there already"), "{}", stderr(&again));
}
