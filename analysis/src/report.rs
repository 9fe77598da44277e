//! A result folder's report: `report.md`, `report.html` and `plots/`.
//!
//! The output depends on the folder's files alone: the same folder gives the same bytes anywhere.

mod against;
mod definitions;
mod groups;
mod imported;
mod page;
mod prose;
mod published;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::atomic;
use crate::cells::{Cell, Figures, Shortfall};
use crate::data::imported::is_imported;
use crate::data::{DataReader, FileMetadata, RunRow, Table, TokenRow};
use crate::error::{AnalysisError, Result};
use crate::journal::{read_environment, read_groups, read_published};
use crate::measured::Measured;
use crate::plots::{Distribution, Heatmap, Picture, Theme, Timeline};
use crate::pressure::Pressure;
use crate::result_set::{CellRecord, Environment, Verdict};
use crate::routes;
use crate::routes::views::{Hot, Overlap, Selection};
use crate::stats::{Intervals, Runs};
use crate::table::{Against, Row, Steady};

/// What [`render`] wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportPaths {
    /// `DIR/report.md`.
    pub report: PathBuf,
    /// `DIR/report.html`, which is whole in itself.
    pub page: PathBuf,
    /// The pictures, SVG and PNG.
    pub plots: Vec<PathBuf>,
}

/// Everything about one model that the report says.
struct ModelPart<'a> {
    name: &'a str,
    /// Any run on it, for its shape.
    run: Option<&'a RunRow>,
    rows: Vec<Row<'a>>,
    heatmap: Option<HeatmapPart>,
    /// File of the picture of single tokens' rates.
    distribution: Option<String>,
    timelines: Vec<TimelinePart>,
}

struct HeatmapPart {
    hot: Hot,
    overlap: Overlap,
    run: String,
    /// File name within `plots/`, without its ending.
    file: String,
}

struct TimelinePart {
    cell: String,
    file: String,
}

/// The folder's data.
struct Loaded {
    environment: Environment,
    matrix: Option<String>,
    metadata: FileMetadata,
    measured: Measured,
    /// Tokens at the start of each run that the steady state is without; 0 = it is not asked for.
    warmup_tokens: usize,
    /// Valid attempts whose run is not in the data: cell and run.
    without_data: Vec<(String, String)>,
}

/// Renders a result folder, building its Parquet files first when one of them is missing, or an imported folder.
///
/// # Errors
/// The folder is no result folder, or one of its files is missing, damaged or of another version; the
/// error names the file and what to do. Nothing half-written is left.
pub fn render(dir: &Path) -> Result<ReportPaths> {
    render_with(dir, None)
}

/// The same with a table of the steady state, without the first `warmup_tokens` of each run; `None` = as
/// `warmup_tokens` of `DIR/matrix.toml` says, and without one no such table.
///
/// # Errors
/// As for [`render`].
pub fn render_with(dir: &Path, warmup_tokens: Option<usize>) -> Result<ReportPaths> {
    if is_imported(dir) {
        if warmup_tokens.is_some() {
            let message = "was made by `bmoe import`; expected no --warmup-tokens, since the published table counts every token";
            return Err(AnalysisError::ImportRefused {
                path: dir.to_owned(),
                message: message.to_owned(),
            });
        }
        return imported::render(dir);
    }
    let measured = Measured::read(dir)?;
    let reader = DataReader::new(dir);
    let attempts = measured.journal.records.iter();
    let without_data = attempts
        .filter(|c| c.verdict == Verdict::Valid && measured.row_of(c).is_none())
        .map(|c| (c.name.clone(), c.run_id.clone().unwrap_or_default()))
        .collect();
    let matrix = matrix(dir);
    let of_matrix = || usize::try_from(matrix.as_ref()?.get("warmup_tokens")?.as_integer()?).ok();
    let loaded = Loaded {
        environment: read_environment(dir)?,
        matrix: matrix.as_ref().and_then(|m| Some(m.get("name")?.as_str()?.to_owned())),
        warmup_tokens: warmup_tokens.or_else(of_matrix).unwrap_or(0),
        metadata: reader.metadata(Table::Runs)?,
        measured,
        without_data,
    };
    let mut pictures = Pictures::new(dir);
    let cells = loaded.measured.cells();
    let mut models: Vec<&str> = Vec::new();
    for cell in &cells {
        if !models.contains(&cell.model) {
            models.push(cell.model);
        }
    }
    let mut parts = Vec::new();
    for model in models {
        let of_model = cells.iter().filter(|c| c.model == model).cloned().collect();
        parts.push(model_part(model, of_model, &loaded, &reader, &mut pictures)?);
    }
    let report = dir.join("report.md");
    let groups = groups::compared(&read_groups(dir)?, &loaded.measured);
    let published = published::section(read_published(dir)?.as_ref(), &parts);
    let text = prose::report(&loaded, &parts, &groups, &published);
    atomic::write(&report, text.as_bytes())?;
    let runs = page::measured_runs(&cells, &loaded.measured, &reader)?;
    let page = page::write(dir, &text, &pictures.svgs, &runs)?;
    Ok(ReportPaths { report, page, plots: pictures.written })
}

fn model_part<'a>(
    name: &'a str,
    cells: Vec<Cell<'a>>,
    loaded: &'a Loaded,
    reader: &DataReader,
    pictures: &mut Pictures,
) -> Result<ModelPart<'a>> {
    let measured = &loaded.measured;
    let row_of = |attempt: &CellRecord| measured.row_of(attempt);
    let tokens_of = |attempt: &CellRecord| measured.tokens_of(attempt);
    let run = cells.iter().flat_map(|c| &c.attempts).find_map(|a| row_of(a));
    let heatmap = heatmap(name, &cells, loaded, reader, pictures)?;
    let distribution = distribution(name, &cells, measured, pictures)?;
    let mut timelines = Vec::new();
    for cell in &cells {
        let drawn = cell.valid().find_map(|a| Some((row_of(a)?, tokens_of(a))));
        let Some((row, tokens)) = drawn.filter(|(_, tokens)| !tokens.is_empty()) else { continue };
        let timeline = Timeline {
            tokens,
            model: name,
            cell: cell.name,
            streams: row.mode == "stream",
            overlaps: row.overlap == Some(true),
            cached: row.cache_budget_bytes.is_some_and(|b| b > 0),
        };
        let file = pictures
            .add(&format!("{name} {} timeline", cell.name), || timeline.render(Theme::Auto))?;
        timelines.push(TimelinePart { cell: cell.name.to_owned(), file });
    }
    let mut compared = against::baselines(&cells, measured);
    let rows = cells.into_iter().map(|cell| {
        let against = compared.remove(cell.id);
        row(cell, against, loaded)
    });
    let rows = rows.collect();
    Ok(ModelPart { name, run, rows, heatmap, distribution, timelines })
}

fn row<'a>(cell: Cell<'a>, against: Option<Against>, loaded: &'a Loaded) -> Row<'a> {
    let measured = &loaded.measured;
    let runs = measured.valid_runs(&cell);
    let shortfall = |a: &CellRecord| {
        Some((a.repetition, Shortfall::of(measured.row_of(a), measured.tokens_of(a))?))
    };
    let shortfalls = cell.valid().filter_map(shortfall).collect();
    let warmup = loaded.warmup_tokens;
    let behind: Vec<(&RunRow, &[TokenRow])> =
        runs.iter().map(|(run, tokens)| (*run, &tokens[warmup.min(tokens.len())..])).collect();
    let steady = Figures::pooled(&behind).filter(|f| warmup > 0 && f.rates.is_some());
    let attempts: Vec<(&CellRecord, Option<&RunRow>, &[TokenRow])> = cell
        .earlier
        .iter()
        .chain(&cell.attempts)
        .map(|a| (*a, measured.row_of(a), measured.tokens_of(a)))
        .collect();
    Row {
        figures: Figures::pooled(&runs),
        shortfalls,
        intervals: intervals(&runs),
        steady: steady.map(|figures| Steady { figures, intervals: intervals(&behind) }),
        against,
        pressure: Pressure::of(&attempts),
        cell,
    }
}

fn intervals(runs: &[(&RunRow, &[TokenRow])]) -> Option<Intervals> {
    let seconds = |tokens: &[TokenRow]| {
        tokens.iter().filter(|t| t.wall_ns > 0).map(|t| t.wall_ns as f64 / 1e9).collect()
    };
    Some(Runs::new(runs.iter().map(|(_, tokens)| seconds(tokens)))?.intervals())
}

/// The rates of single tokens, cell by cell; `None` without any.
fn distribution(
    model: &str,
    cells: &[Cell<'_>],
    measured: &Measured,
    pictures: &mut Pictures,
) -> Result<Option<String>> {
    let rates = |cell: &Cell<'_>| -> Vec<f64> {
        let tokens = cell.valid().flat_map(|attempt| measured.tokens_of(attempt));
        tokens.filter(|t| t.wall_ns > 0).map(|t| 1e9 / t.wall_ns as f64).collect()
    };
    let cells: Vec<(&str, Vec<f64>)> = cells
        .iter()
        .map(|cell| (cell.name, rates(cell)))
        .filter(|(_, rates)| !rates.is_empty())
        .collect();
    if cells.is_empty() {
        return Ok(None);
    }
    let picture = Distribution { model, cells };
    let file = pictures.add(&format!("{model} rates"), || picture.render(Theme::Auto))?;
    Ok(Some(file))
}

/// The heatmap of the baseline's routes, or of the first valid cell that has any: every lossless cell
/// routes alike.
fn heatmap(
    model: &str,
    cells: &[Cell<'_>],
    loaded: &Loaded,
    reader: &DataReader,
    pictures: &mut Pictures,
) -> Result<Option<HeatmapPart>> {
    let candidates =
        cells.iter().filter(|c| c.baseline).chain(cells.iter().filter(|c| !c.baseline));
    for cell in candidates {
        for run_id in cell.valid().filter_map(|a| a.run_id.as_deref()) {
            let Some(row) = loaded.measured.runs.get(run_id) else { continue };
            let rows = reader.routes_of(run_id)?;
            // What does not fit together can't be drawn.
            let Ok(trace) = routes::from_rows(rows, row.n_expert) else { continue };
            let decode = Selection::default();
            let views = (Hot::new(&trace, &decode), Overlap::new(&trace, &decode));
            let (Ok(hot), Ok(overlap)) = views else { continue };
            let picture = Heatmap { hot: &hot, model, run: cell.name };
            let file = pictures.add(&format!("{model} experts"), || picture.render(Theme::Auto))?;
            return Ok(Some(HeatmapPart { run: cell.name.to_owned(), file, hot, overlap }));
        }
    }
    Ok(None)
}

/// `DIR/matrix.toml`, which a report can do without.
fn matrix(dir: &Path) -> Option<toml::Table> {
    std::fs::read_to_string(dir.join("matrix.toml")).ok()?.parse().ok()
}

/// Writes pictures under names made of what they show.
struct Pictures {
    folder: PathBuf,
    /// SVG texts by the address that the report has for them.
    svgs: BTreeMap<String, String>,
    written: Vec<PathBuf>,
}

impl Pictures {
    fn new(dir: &Path) -> Self {
        Self { folder: dir.join("plots"), svgs: BTreeMap::new(), written: Vec::new() }
    }

    /// Writes both formats and returns the file name without its ending.
    fn add(
        &mut self,
        what: &str,
        render: impl FnOnce() -> std::result::Result<Picture, String>,
    ) -> Result<String> {
        let base = slug(what);
        let address = |name: &str| format!("plots/{name}.svg");
        let name = std::iter::once(base.clone())
            .chain((2..).map(|n| format!("{base}-{n}")))
            .find(|name| !self.svgs.contains_key(&address(name)))
            .unwrap_or(base);
        let path = |ending: &str| self.folder.join(format!("{name}.{ending}"));
        let (svg, png) = (path("svg"), path("png"));
        let picture =
            render().map_err(|message| AnalysisError::Plot { path: svg.clone(), message })?;
        atomic::write(&svg, picture.svg.as_bytes())?;
        atomic::write(&png, &picture.png)?;
        self.written.extend([svg, png]);
        self.svgs.insert(address(&name), picture.svg);
        Ok(name)
    }
}

/// Lower-case letters and digits, everything else as single hyphens.
fn slug(text: &str) -> String {
    let mut slug = String::with_capacity(text.len());
    for c in text.chars().flat_map(char::to_lowercase) {
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    // File systems end names at 255 bytes.
    slug.truncate(120);
    slug.truncate(slug.trim_end_matches('-').len());
    slug
}

#[cfg(test)]
mod tests {
    use super::slug;

    #[test]
    fn file_names_are_plain() {
        assert_eq!(slug("Qwen3 30B: stream, cache 128 MiB"), "qwen3-30b-stream-cache-128-mib");
        assert_eq!(slug("../é |"), "");
        assert_eq!(slug(&"a ".repeat(500)).len(), 119);
    }
}
