//! Tokens per second from bytes per token: a device reduced to three figures.
//!
//! A decode step that reads `b` bytes takes
//!
//! ```text
//! compute + io - overlap * min(compute, io),   io = b / rate
//! ```
//!
//! so `overlap` 0 means one after the other (`compute + io`) and 1 means that the shorter one is hidden completely
//! (`max(compute, io)`). The rate of a replay is tokens over the sum of all its steps. The model knows nothing of
//! queues, request sizes or heat; it answers "what would these bytes cost there", not "how fast is this policy".

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::data::{DataReader, RunMetadata, Table, TokenRow};
use crate::error::AnalysisError;
use crate::stats::percentile;

const MIB: f64 = 1024.0 * 1024.0;

/// A device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DeviceModel {
    /// What a decode step takes when nothing has to be read, seconds.
    pub compute_s: f64,
    /// Rate of expert reads while any is outstanding, MiB/s.
    pub read_mib_s: f64,
    /// Share of the shorter of computation and reading that the longer one hides, 0 to 1.
    pub overlap: f64,
}

impl DeviceModel {
    /// A device, if the figures are those of one: times and rates above 0, an overlap of 0 to 1.
    #[must_use]
    pub fn new(compute_s: f64, read_mib_s: f64, overlap: f64) -> Option<Self> {
        let positive = |x: f64| x.is_finite() && x > 0.0;
        (positive(compute_s) && positive(read_mib_s) && (0.0..=1.0).contains(&overlap))
            .then_some(Self { compute_s, read_mib_s, overlap })
    }

    /// Seconds of a decode step that reads so many bytes.
    #[must_use]
    pub fn step_s(&self, read_bytes: u64) -> f64 {
        let io_s = read_bytes as f64 / MIB / self.read_mib_s;
        self.compute_s + io_s - self.overlap * self.compute_s.min(io_s)
    }

    /// Tokens per second over decode steps that read so many bytes each; `None` without any.
    #[must_use]
    pub fn tok_s(&self, tokens: usize, step_bytes: &[u64]) -> Option<f64> {
        let seconds: f64 = step_bytes.iter().map(|bytes| self.step_s(*bytes)).sum();
        (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
    }
}

/// A device model fitted from measured runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The medians.
    pub model: DeviceModel,
    /// The cell whose runs were used.
    pub cell: String,
    /// Decode steps that were used.
    pub steps: usize,
}

/// Why no device model came out of a result folder.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// The folder can't be read.
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
    /// No cell reads experts.
    #[error(
        "{} has no run in stream mode with reads while it decodes, from which a device could be fitted",
        dir.display()
    )]
    NoStream {
        /// The folder.
        dir: PathBuf,
    },
    /// Several cells, and none or none of these was named.
    #[error(
        "{}: {} (cells that read experts: {})", dir.display(),
        match wanted {
            Some(name) => format!("no cell '{name}' reads experts"),
            None => "several cells read experts, each with rates of its own; name one with --fit-cell".to_owned(),
        },
        cells.join("; ")
    )]
    WhichCell {
        /// The folder.
        dir: PathBuf,
        /// What was asked for.
        wanted: Option<String>,
        /// Those that can be used.
        cells: Vec<String>,
    },
}

/// Fits a device to the decode steps of one cell of a result folder, repetitions pooled: the median of what a step took
/// beside waiting for reads, the median rate of its reads while any was outstanding, and the median share of the
/// shorter of the two that was hidden.
///
/// # Errors
/// The folder can't be read, or it isn't clear which cell is meant.
pub fn fit(dir: &Path, cell: Option<&str>) -> Result<Fit, FitError> {
    let reader = DataReader::new(dir);
    let runs = reader.metadata(Table::Tokens)?.runs;
    let mut by_cell: Vec<(String, Vec<Sample>)> = Vec::new();
    for (run_id, tokens) in reader.tokens()? {
        let name = runs.get(&run_id).and_then(cell_name).unwrap_or(run_id);
        let samples = tokens.iter().filter_map(Sample::of);
        match by_cell.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => known.extend(samples),
            None => by_cell.push((name, samples.collect())),
        }
    }
    by_cell.retain(|(_, samples)| !samples.is_empty());
    by_cell.sort_by(|a, b| a.0.cmp(&b.0));
    if by_cell.is_empty() {
        return Err(FitError::NoStream { dir: dir.to_owned() });
    }
    let which = match cell {
        Some(wanted) => by_cell.iter().position(|(name, _)| name == wanted),
        None => (by_cell.len() == 1).then_some(0),
    };
    let Some(which) = which else {
        return Err(FitError::WhichCell {
            dir: dir.to_owned(),
            wanted: cell.map(str::to_owned),
            cells: by_cell.into_iter().map(|(name, _)| name).collect(),
        });
    };
    let (cell, samples) = by_cell.swap_remove(which);
    let model = fitted(&samples).ok_or_else(|| FitError::NoStream { dir: dir.to_owned() })?;
    Ok(Fit { model, cell, steps: samples.len() })
}

fn cell_name(run: &RunMetadata) -> Option<String> {
    let cell = run.cell.as_ref()?;
    Some(run.model.as_ref().map_or_else(|| cell.clone(), |model| format!("{model}: {cell}")))
}

/// One decode step that read experts.
#[derive(Debug, Clone, Copy)]
struct Sample {
    compute_s: f64,
    read_mib_s: f64,
    overlap: f64,
}

impl Sample {
    fn of(token: &TokenRow) -> Option<Self> {
        let wait_s = token.io_wait_ns? as f64 / 1e9;
        // Version 1, which has no such column, had no overlap: it waited as long as it read.
        let active_s = token.io_active_ns.map_or(wait_s, |ns| ns as f64 / 1e9);
        let bytes = token.expert_read_bytes? + token.speculated_bytes.unwrap_or(0);
        let compute_s = token.wall_ns as f64 / 1e9 - wait_s;
        let shorter_s = compute_s.min(active_s);
        (bytes > 0 && shorter_s > 0.0).then(|| Self {
            compute_s,
            read_mib_s: bytes as f64 / MIB / active_s,
            overlap: ((active_s - wait_s) / shorter_s).clamp(0.0, 1.0),
        })
    }
}

fn fitted(samples: &[Sample]) -> Option<DeviceModel> {
    let median = |of: fn(&Sample) -> f64| {
        let mut values: Vec<f64> = samples.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        percentile(&values, 0.5)
    };
    DeviceModel::new(median(|s| s.compute_s)?, median(|s| s.read_mib_s)?, median(|s| s.overlap)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_takes_the_sum_the_longer_or_something_between() {
        let step =
            |overlap, mib: u64| DeviceModel::new(0.1, 1000.0, overlap).unwrap().step_s(mib << 20);
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
        close(step(0.0, 50), 0.15);
        close(step(1.0, 50), 0.1);
        close(step(1.0, 300), 0.3);
        close(step(0.5, 300), 0.35);
        // Two tokens over 0.1 + 0.3 seconds.
        let device = DeviceModel::new(0.1, 1000.0, 1.0).unwrap();
        close(device.tok_s(2, &[0, 300 << 20]).unwrap(), 5.0);
        assert_eq!(device.tok_s(0, &[]), None);
    }

    #[test]
    fn figures_of_no_device_are_refused() {
        for (compute_s, read_mib_s, overlap) in
            [(0.0, 1.0, 0.5), (1.0, f64::INFINITY, 0.5), (1.0, 1.0, 1.5), (1.0, -1.0, 0.0)]
        {
            assert_eq!(DeviceModel::new(compute_s, read_mib_s, overlap), None);
        }
    }

    #[test]
    fn a_fit_gives_back_the_device_that_made_the_steps() {
        let device = DeviceModel::new(0.08, 900.0, 0.7).unwrap();
        let samples: Vec<Sample> = [20.0, 60.0, 90.0, 200.0]
            .iter()
            .map(|mib| {
                let io_s = mib / device.read_mib_s;
                let wall_s = device.step_s((mib * MIB) as u64);
                let wait_s = wall_s - device.compute_s;
                Sample {
                    compute_s: wall_s - wait_s,
                    read_mib_s: mib / io_s,
                    overlap: (io_s - wait_s) / device.compute_s.min(io_s),
                }
            })
            .collect();
        let fit = fitted(&samples).unwrap();
        for (got, want) in [(fit.compute_s, 0.08), (fit.read_mib_s, 900.0), (fit.overlap, 0.7)] {
            assert!((got - want).abs() < 1e-6, "{got} is not {want}");
        }
    }
}
