//! The report of an imported folder: per-token logs in the published form, and what traces there are.

use std::fmt::Write as _;
use std::path::Path;

use bmoe_trace::import::Keys;

use super::{Pictures, ReportPaths, page};
use crate::atomic;
use crate::data::imported::{ImportedReader, ImportedRun, LogColumns};
use crate::error::Result;
use crate::markdown::{Markdown, escape};
use crate::plots::{Distribution, Theme};
use crate::stats::Rates;

const MIB: f64 = 1024.0 * 1024.0;

/// What stands where nothing was measured.
const NONE: &str = "–";

const DEFINITIONS: &str = "\
## Definitions

These are the logs' own figures, with the meaning that the published tables give them.

- **tok/s mean**: decoded tokens over total decode seconds (not the mean of rates). **min, max**: single tokens.
  **median, p5, p95**: over the rates of single tokens (1000 / `wall_ms`), all of them, none dropped as warm-up;
  percentiles interpolate linearly between order statistics. Loading and the prompt are in none of them.
- **hit %**: from the start of the run, prompt included: the summary's `cache_hit_pct`, which has one decimal, in whole
  per cent, half to even, as published (without a summary that of the last row). The second table has the last row's
  with its decimals. Without a cache: –.
- **MiB/token**: `read_bytes` of an average token, experts read ahead included.
- **compute + I/O s/token**: means of `compute_ms` and `io_ms`. Without overlap `io_ms` is the time in which the graph
  was blocked on reads. *Lane-busy* marks runs whose reads overlap with computation: there `io_ms` sums the busy
  time of all read lanes, so that the two terms add up to more than a token took, and `stall` is the time in which
  computation waited. In logs of BigMoeOnEdge `compute_ms` is what the rest leaves of the wall time, at least 0; in
  ours it is measured. Logs that read no experts themselves (mmap): –, their page faults are in the wall time.
- **verdict**: *whole* = the log has its summary; one without was ended from outside.
";

/// A run with the figures of its log.
struct Logged<'a> {
    run: &'a ImportedRun,
    log: LogColumns,
    rates: Option<Rates>,
}

/// Writes `DIR/report.md` and `DIR/report.html`.
pub(super) fn render(dir: &Path) -> Result<ReportPaths> {
    let reader = ImportedReader::new(dir);
    let runs = reader.runs()?;
    let mut logged = Vec::new();
    for (run_id, run) in runs.iter().filter(|(_, run)| run.log_rows > 0) {
        let log = reader.log(run_id)?;
        logged.push(Logged { run, rates: Rates::from_wall_ns(wall_ns(&log)), log });
    }
    let mut models: Vec<Option<&str>> = Vec::new();
    for run in &logged {
        let model = run.run.model.as_deref();
        if !models.contains(&model) {
            models.push(model);
        }
    }
    let mut pictures = Pictures::new(dir);
    let mut parts = Vec::new();
    for model in models {
        let of_model: Vec<&Logged<'_>> =
            logged.iter().filter(|l| l.run.model.as_deref() == model).collect();
        parts.push(ModelPart::new(model, of_model, &mut pictures)?);
    }
    let report = dir.join("report.md");
    let text = text(&runs, &parts);
    atomic::write(&report, text.as_bytes())?;
    let page = page::write(dir, &text, &pictures.svgs, &page::imported_runs(dir, &runs)?)?;
    Ok(ReportPaths { report, page, plots: pictures.written })
}

/// All logs of a model.
struct ModelPart<'a> {
    heading: &'a str,
    logged: Vec<&'a Logged<'a>>,
    /// File of the picture of single tokens' rates, without its ending.
    distribution: Option<String>,
}

impl<'a> ModelPart<'a> {
    fn new(
        model: Option<&'a str>,
        logged: Vec<&'a Logged<'a>>,
        pictures: &mut Pictures,
    ) -> Result<Self> {
        let heading = model.unwrap_or("Logs that name no model");
        let cells: Vec<(&str, Vec<f64>)> = logged
            .iter()
            .map(|logged| (logged.run.cell.as_str(), logged.token_rates()))
            .filter(|(_, rates)| !rates.is_empty())
            .collect();
        let mut distribution = None;
        if !cells.is_empty() {
            let picture = Distribution { model: heading, cells };
            let what = format!("{heading} rates");
            distribution = Some(pictures.add(&what, || picture.render(Theme::Auto))?);
        }
        Ok(Self { heading, logged, distribution })
    }
}

fn text(runs: &[(String, ImportedRun)], parts: &[ModelPart<'_>]) -> String {
    let mut text = "# Imported logs and traces\n\nMade by `bmoe report .` in this folder, from `data/`; `bmoe import` made that.\n".to_owned();
    for ModelPart { heading, logged: of_model, distribution } in parts {
        let _ = writeln!(text, "\n## {}\n", escape(heading));
        text.push_str(&benchmark(of_model));
        if let Some(file) = distribution {
            let _ = write!(text, "\n![Rates of single tokens](plots/{file}.svg)\n");
        }
        let _ = write!(text, "\n### An average token\n\n{}", per_token(of_model));
        let tables =
            [("Before the first token", start_up(of_model)), ("The device", device(of_model))];
        for (heading, table) in tables.iter().filter(|(_, table)| !table.is_empty()) {
            let _ = write!(text, "\n### {heading}\n\n{table}");
        }
    }
    let routes = routes(runs);
    if !routes.is_empty() {
        let _ = write!(text, "\n## Routes\n\n{routes}");
    }
    if !parts.is_empty() {
        let _ = write!(text, "\n{DEFINITIONS}");
    }
    let notes: Vec<String> = runs
        .iter()
        .flat_map(|(_, run)| {
            run.notes()
                .into_iter()
                .map(|note| format!("- {}: {}", escape(&run.name), escape(&note)))
        })
        .collect();
    if !notes.is_empty() {
        let _ = write!(text, "\n## Notes\n\n{}\n", notes.join("\n"));
    }
    text
}

fn wall_ns(log: &LogColumns) -> impl Iterator<Item = u64> {
    log.get("wall_ms").iter().flatten().map(|ms| (ms * 1e6).round() as u64)
}

impl Logged<'_> {
    /// Tokens a second, token by token.
    fn token_rates(&self) -> Vec<f64> {
        wall_ns(&self.log).filter(|ns| *ns > 0).map(|ns| 1e9 / ns as f64).collect()
    }

    /// Mean over the rows that measured it.
    fn mean(&self, column: &str) -> Option<f64> {
        let values: Vec<f64> = self.log.get(column).iter().flatten().copied().collect();
        crate::stats::mean(&values)
    }

    /// Whether the engine read experts itself. Earlier generations write zeros where a map leaves that to the kernel.
    fn reads_experts(&self) -> bool {
        match self.run.log_keys().parsed::<u32>("moe_stream") {
            Some(streams) => streams > 0,
            None => {
                ["io_ms", "read_bytes"].iter().any(|c| self.mean(c).is_some_and(|mean| mean > 0.0))
            }
        }
    }

    fn hit_pct(&self) -> Option<f64> {
        self.log.get("cache_hit_pct").last().copied().flatten()
    }

    /// As the published tables take it, from the summary.
    fn published_hit_pct(&self) -> Option<f64> {
        let of_summary = self.run.summary().and_then(|keys| keys.parsed::<f64>("cache_hit_pct"));
        of_summary.or_else(|| self.hit_pct()).filter(|pct| *pct >= 0.0)
    }

    fn compute_and_io(&self) -> String {
        let seconds = |column: &str| number(self.mean(column).map(|ms| ms / 1e3), 3);
        if !self.reads_experts() {
            return NONE.to_owned();
        }
        let terms = format!("{} + {}", seconds("compute_ms"), seconds("io_ms"));
        match self.run.overlap {
            Some(true) => format!("{terms} (lane-busy), stall {}", seconds("stall_ms")),
            _ => terms,
        }
    }

    fn verdict(&self) -> String {
        if self.run.summary_json.is_some() { "whole" } else { "no summary" }.to_owned()
    }
}

/// The published table.
fn benchmark(rows: &[&Logged<'_>]) -> String {
    let mut table = Markdown::new(&[
        "configuration",
        "tok/s mean",
        "min",
        "max",
        "median",
        "p5",
        "p95",
        "hit %",
        "MiB/token",
        "compute + I/O s/token",
        "tokens",
        "verdict",
    ]);
    table.left_aligned(11);
    for row in rows {
        let rate = |of: fn(&Rates) -> f64| number(row.rates.as_ref().map(of), 2);
        table.row(&[
            row.run.cell.clone(),
            rate(|r| r.mean),
            rate(|r| r.min),
            rate(|r| r.max),
            rate(|r| r.median),
            rate(|r| r.p5),
            rate(|r| r.p95),
            number(row.published_hit_pct(), 0),
            number(row.mean("read_bytes").map(|bytes| bytes / MIB), 0),
            row.compute_and_io(),
            row.log.rows.to_string(),
            row.verdict(),
        ]);
    }
    table.finish()
}

/// Means of whatever the logs measured, with more decimals.
fn per_token(rows: &[&Logged<'_>]) -> String {
    const COLUMNS: [(&str, &str, f64, usize); 13] = [
        ("wall ms", "wall_ms", 1.0, 2),
        ("compute ms", "compute_ms", 1.0, 2),
        ("I/O ms", "io_ms", 1.0, 2),
        ("stall ms", "stall_ms", 1.0, 2),
        ("cache management ms", "mgmt_ms", 1.0, 2),
        ("loop overhead ms", "loop_overhead_ms", 1.0, 2),
        ("other ms", "other_ms", 1.0, 2),
        ("CPU ms", "cpu_ms", 1.0, 1),
        ("MiB read", "read_bytes", MIB, 2),
        ("major faults", "majflt", 1.0, 1),
        ("MiB faulted", "majflt_mib", 1.0, 2),
        ("RSS MiB", "rss_mib", 1.0, 0),
        ("MemAvailable MiB", "mem_available_mib", 1.0, 0),
    ];
    let there: Vec<_> = COLUMNS
        .iter()
        .filter(|(_, column, ..)| rows.iter().any(|r| r.mean(column).is_some()))
        .collect();
    let mut headings = vec!["configuration"];
    headings.extend(there.iter().map(|(heading, ..)| *heading));
    headings.push("hit % at the end");
    let mut table = Markdown::new(&headings);
    for row in rows {
        let mut cells = vec![row.run.cell.clone()];
        cells.extend(there.iter().map(|(_, column, unit, decimals)| {
            number(row.mean(column).map(|v| v / unit), *decimals)
        }));
        cells.push(number(row.hit_pct(), 2));
        table.row(&cells);
    }
    table.finish()
}

/// A heading, the key it stands for, what its value is divided by, decimals.
type Figure = (&'static str, &'static str, f64, usize);

/// What the summaries say about loading, the prompt and the cache; empty when they say nothing.
fn start_up(rows: &[&Logged<'_>]) -> String {
    const FIGURES: [Figure; 7] = [
        ("load s", "load_s", 1.0, 2),
        ("prompt tokens", "n_prompt", 1.0, 0),
        ("prefill s", "prefill_s", 1.0, 2),
        ("prefill tok/s", "prefill_tps", 1.0, 2),
        ("cache MiB", "cache_resident_MiB", 1.0, 1),
        ("cache budget MiB", "cache_budget_MiB", 1.0, 1),
        ("token demand MiB", "token_demand_MiB", 1.0, 1),
    ];
    figures(rows, &FIGURES, ImportedRun::summary)
}

/// What the device's metrics say; empty when there are none.
fn device(rows: &[&Logged<'_>]) -> String {
    const FIGURES: [Figure; 9] = [
        ("peak RSS MiB", "peak_rss_kb", 1024.0, 0),
        ("MemAvailable MiB before", "mem_avail_before_kb", 1024.0, 0),
        ("lowest", "mem_avail_floor_kb", 1024.0, 0),
        ("after", "mem_avail_after_kb", 1024.0, 0),
        ("CPU °C before", "cpu_temp_before_mC", 1000.0, 1),
        ("highest CPU °C", "cpu_temp_max_mC", 1000.0, 1),
        ("battery °C before", "batt_temp_before_dC", 10.0, 1),
        ("highest battery °C", "batt_temp_max_dC", 10.0, 1),
        ("battery °C after", "batt_temp_after_dC", 10.0, 1),
    ];
    figures(rows, &FIGURES, ImportedRun::device)
}

fn figures(
    rows: &[&Logged<'_>],
    figures: &[Figure],
    keys: fn(&ImportedRun) -> Option<Keys>,
) -> String {
    let all: Vec<(&str, Keys)> =
        rows.iter().filter_map(|row| Some((row.run.cell.as_str(), keys(row.run)?))).collect();
    let there: Vec<_> = figures
        .iter()
        .filter(|(_, key, ..)| all.iter().any(|(_, keys)| keys.get(key).is_some()))
        .collect();
    if there.is_empty() {
        return String::new();
    }
    let mut headings = vec!["configuration"];
    headings.extend(there.iter().map(|(heading, ..)| *heading));
    let mut table = Markdown::new(&headings);
    for (cell, keys) in &all {
        let mut cells = vec![(*cell).to_owned()];
        cells.extend(there.iter().map(|(_, key, unit, decimals)| {
            // -1 = not measured.
            let value = keys.parsed::<f64>(key).filter(|value| *value >= 0.0);
            number(value.map(|value| value / unit), *decimals)
        }));
        table.row(&cells);
    }
    table.finish()
}

/// The traces; empty without any.
fn routes(runs: &[(String, ImportedRun)]) -> String {
    let mut table = Markdown::new(&[
        "run",
        "model",
        "format",
        "layers",
        "experts",
        "top-k",
        "events",
        "rows",
        "expert sizes",
    ]);
    table.left_aligned(1);
    table.left_aligned(2);
    table.left_aligned(8);
    for (_, run) in runs.iter().filter(|(_, run)| run.route_rows > 0) {
        let layers = run.layers();
        let known = |n: Option<u32>| n.map_or(NONE.to_owned(), |n| n.to_string());
        let sizes = if layers.iter().all(|l| l.expert_bytes > 0) { "known" } else { "not known" };
        table.row(&[
            run.name.clone(),
            run.model.clone().unwrap_or_else(|| NONE.to_owned()),
            run.route_format.clone().unwrap_or_default(),
            layers.len().to_string(),
            known(run.n_expert),
            known(run.top_k),
            run.route_events.to_string(),
            run.route_rows.to_string(),
            sizes.to_owned(),
        ]);
    }
    table.finish()
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or(NONE.to_owned(), |v| format!("{v:.decimals$}"))
}
