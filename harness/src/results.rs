//! Result folders: making one, filling in what isn't a run, rendering it.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use bmoe_analysis::data::imported::is_imported;
use bmoe_analysis::journal::Journal;
use bmoe_analysis::report::ReportPaths;
use bmoe_analysis::result_set::{Environment, NamedGroup, PublishedSet};
use serde::Serialize;

use crate::error::Error;
use crate::say::say;
use crate::{atomic, console};

/// Where an attempt leaves its files, relative to the result folder.
#[must_use]
pub fn attempt_folder(cell_id: &str, repetition: u32, attempt: u32) -> String {
    format!("runs/{}", attempt_name(cell_id, repetition, attempt))
}

/// Names an attempt within its result folder.
#[must_use]
pub fn attempt_name(cell_id: &str, repetition: u32, attempt: u32) -> String {
    format!("{cell_id}-r{repetition}-a{attempt}")
}

/// Refuses a folder that holds something already.
///
/// # Errors
/// It isn't empty, or can't be looked at.
pub fn check_free(folder: &Path) -> Result<(), Error> {
    let mut entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io("use as a result folder", folder)(e)),
    };
    if entries.next().is_none() {
        return Ok(());
    }
    let hint = if folder.join("cells.jsonl").exists() {
        format!(
            "holds results already; `bmoe report {}` renders them, another --out keeps both",
            folder.display()
        )
    } else {
        "is not empty; give another --out".to_owned()
    };
    Err(Error::Refused(format!("the folder {} {hint}", folder.display())))
}

/// Makes a folder with the matrix that it is for.
///
/// # Errors
/// It can't be written.
pub fn keep_matrix(folder: &Path, matrix_text: &str) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(Error::io("make", folder))?;
    let path = folder.join("matrix.toml");
    atomic::write(&path, matrix_text.as_bytes()).map_err(Error::io("write", &path))
}

/// Makes a result folder with what is known before the first run.
///
/// # Errors
/// It can't be written.
pub fn create(
    folder: &Path,
    matrix_text: &str,
    groups: &[NamedGroup],
    published: Option<&PublishedSet>,
    environment: &Environment,
) -> Result<(), Error> {
    keep_matrix(folder, matrix_text)?;
    if !groups.is_empty() {
        write_json(&folder.join("groups.json"), groups)?;
    }
    if let Some(published) = published {
        write_json(&folder.join("published.json"), published)?;
    }
    // The last one: a folder that has it has the others.
    write_json(&folder.join("environment.json"), environment)
}

fn write_json<T: Serialize + ?Sized>(path: &Path, content: &T) -> Result<(), Error> {
    let mut json =
        serde_json::to_vec_pretty(content).map_err(|e| Error::io("write", path)(e.into()))?;
    json.push(b'\n');
    atomic::write(path, &json).map_err(Error::io("write", path))
}

/// What rendering left.
#[derive(Debug)]
pub struct Rendered {
    folder: PathBuf,
    paths: ReportPaths,
}

/// Converts the traces of a result folder and renders its report.
///
/// # Errors
/// It is no result folder, holds damaged files, or can't be written.
pub fn render(folder: &Path) -> Result<Rendered, Error> {
    render_with(folder, None)
}

/// The same with a table of the steady state, without the first so many tokens of each run; `None` = as the
/// matrix says.
///
/// # Errors
/// As for [`render`].
pub fn render_with(folder: &Path, warmup_tokens: Option<usize>) -> Result<Rendered, Error> {
    if is_imported(folder) {
        let paths = bmoe_analysis::report::render_with(folder, warmup_tokens)?;
        return Ok(Rendered { folder: folder.to_owned(), paths });
    }
    let ingested = bmoe_analysis::ingest(folder)?;
    let records = Journal::read(folder)?.records;
    // An engine that ended before its first record has nothing to leave out, and its own reason.
    let empty: HashSet<String> = records
        .iter()
        .filter(|record| record.run_id.is_none())
        .map(|r| format!("{}/", attempt_folder(&r.id, r.repetition, r.attempt)))
        .collect();
    let surprising = |trace: &str| !empty.iter().any(|folder| trace.starts_with(folder));
    for left_out in ingested.left_out.iter().filter(|l| surprising(&l.trace)) {
        eprintln!("note: {} is left out: {}", left_out.trace, left_out.reason);
    }
    let paths = bmoe_analysis::report::render_with(folder, warmup_tokens)?;
    Ok(Rendered { folder: folder.to_owned(), paths })
}

impl Rendered {
    /// Shows the figures and says where everything is, on standard output.
    pub fn print(&self) {
        let report = fs::read_to_string(&self.paths.report).unwrap_or_default();
        say!("{}", console::benchmark_tables(&report));
        for line in console::beside_published(&report) {
            say!("{line}");
        }
        say!("report   {}", self.paths.report.display());
        say!("page     {}", self.paths.page.display());
        let is = |path: &Path, end: &str| path.to_string_lossy().ends_with(end);
        for plot in self.paths.plots.iter().filter(|p| is(p, "-experts.png")) {
            say!("heatmap  {} (and .svg)", plot.display());
        }
        for plot in self.paths.plots.iter().filter(|p| is(p, "-rates.png")) {
            say!("rates    {} (and .svg)", plot.display());
        }
        if self.paths.plots.iter().any(|p| is(p, "-timeline.png")) {
            say!("timeline {} (and .svg)", self.folder.join("plots/*-timeline.png").display());
        }
        let data = if is_imported(&self.folder) {
            "data/imported.parquet"
        } else {
            "data/{runs,tokens,routes}.parquet"
        };
        say!("data     {}", self.folder.join(data).display());
    }
}
