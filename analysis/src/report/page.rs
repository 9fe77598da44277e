//! `report.html`: the report with its pictures and routes in one file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::atomic;
use crate::cells::Cell;
use crate::data::DataReader;
use crate::data::imported::ImportedRun;
use crate::error::{AnalysisError, Result};
use crate::html::{self, Runs};
use crate::measured::Measured;
use crate::routes::{self, LoadOptions};

/// Routes with more rows than this are not even read for the page.
const MOST_ROWS: u64 = 8_000_000;

/// Residency and weights are shown, scores are not.
const SHOWN: LoadOptions = LoadOptions { weights: true, residency: true, scores: false };

/// Writes `DIR/report.html`.
pub(super) fn write(
    dir: &Path,
    markdown: &str,
    svgs: &BTreeMap<String, String>,
    runs: &Runs,
) -> Result<PathBuf> {
    let path = dir.join("report.html");
    let page = html::page(markdown, &|address| svgs.get(address).cloned(), runs)
        .map_err(|message| AnalysisError::Plot { path: path.clone(), message })?;
    atomic::write(&path, page.as_bytes())?;
    Ok(path)
}

/// The first valid run with routes of each cell.
pub(super) fn measured_runs(
    cells: &[Cell<'_>],
    measured: &Measured,
    reader: &DataReader,
) -> Result<Runs> {
    let mut runs = Runs::default();
    let one_model = cells.windows(2).all(|pair| pair[0].model == pair[1].model);
    for cell in cells {
        let name =
            if one_model { cell.name.to_owned() } else { format!("{}: {}", cell.model, cell.name) };
        for run_id in cell.valid().filter_map(|attempt| attempt.run_id.as_deref()) {
            let Some(row) = measured.runs.get(run_id) else { continue };
            if runs.full() {
                runs.leave_out(name);
                break;
            }
            // What does not fit together can't be shown.
            let Ok(trace) = routes::from_rows(reader.routes_of(run_id)?, row.n_expert) else {
                continue;
            };
            if trace.rows() > 0 {
                runs.add(name, &trace);
                break;
            }
        }
    }
    Ok(runs)
}

/// The runs of an imported folder.
pub(super) fn imported_runs(dir: &Path, imported: &[(String, ImportedRun)]) -> Result<Runs> {
    let mut runs = Runs::default();
    for (run_id, run) in imported.iter().filter(|(_, run)| run.route_rows > 0) {
        if runs.full() || run.route_rows > MOST_ROWS {
            runs.leave_out(run.name.clone());
            continue;
        }
        for trace in routes::from_imported(dir, Some(run_id), SHOWN)? {
            runs.add(run.name.clone(), &trace);
        }
    }
    Ok(runs)
}
