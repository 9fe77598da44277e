//! The device that stalls and token rates are estimated for.

use std::path::PathBuf;

use bmoe_analysis::device_model::{DeviceModel, fit};

use super::simulate::request;
use crate::error::Error;

/// A device, given or fitted.
#[derive(Debug, clap::Args)]
pub(super) struct DeviceArgs {
    /// Estimate for a device: what a token takes to compute
    #[arg(long, value_name = "MS", value_parser = request::positive, requires = "read_mib_s")]
    compute_ms: Option<f64>,
    /// Estimate for a device: rate of expert reads
    #[arg(long, value_name = "RATE", value_parser = request::positive, requires = "compute_ms")]
    read_mib_s: Option<f64>,
    /// Share of the shorter of computing and reading that the longer one hides: 0 = one after the other, 1 = the
    /// longer one counts [default: 1; of `predict` 0]
    #[arg(long, value_name = "0..1", value_parser = request::share, requires = "compute_ms")]
    overlap: Option<f64>,
    /// Estimate for a device fitted from this result folder
    #[arg(long, value_name = "DIR", conflicts_with = "compute_ms")]
    fit: Option<PathBuf>,
    /// The cell of --fit, where several read experts
    #[arg(long, value_name = "NAME", requires = "fit")]
    fit_cell: Option<String>,
}

/// The device of the estimates.
#[derive(Debug, Clone)]
pub(super) struct Device {
    pub(super) model: DeviceModel,
    /// Decode steps of which cell; `None` = it was given.
    pub(super) fitted_from: Option<String>,
}

impl DeviceArgs {
    /// The device asked for.
    pub(super) fn device(&self, default_overlap: f64) -> Result<Option<Device>, Error> {
        if let (Some(compute_ms), Some(read_mib_s)) = (self.compute_ms, self.read_mib_s) {
            let overlap = self.overlap.unwrap_or(default_overlap);
            let model = DeviceModel::new(compute_ms / 1e3, read_mib_s, overlap);
            return Ok(model.map(|model| Device { model, fitted_from: None }));
        }
        let Some(dir) = &self.fit else { return Ok(None) };
        let fit = fit(dir, self.fit_cell.as_deref()).map_err(|e| Error::Refused(e.to_string()))?;
        let fitted_from = Some(format!("{} decode steps of {}", fit.steps, fit.cell));
        Ok(Some(Device { model: fit.model, fitted_from }))
    }
}
