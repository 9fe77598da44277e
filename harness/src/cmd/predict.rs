//! `bmoe predict`

use std::path::PathBuf;

use bmoe_analysis::device_model::{DeviceModel, fit};
use bmoe_analysis::plots::predict_picture;
use bmoe_analysis::routes::predict::{Predict, PredictOptions, break_even_bytes};
use bmoe_cache::PolicyKind;
use serde_json::json;

use super::ask::{Answer, OutputArgs, TraceArgs, describe, mib_to_bytes};
use super::simulate::request;
use crate::error::Error;

/// How well a layer's experts can be guessed early, and whether reading them early pays
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Predictors: random (the base line), the token before, the hottest experts of the prompt and of the tokens
before, co-occurrence with the layer above; with router scores in the trace also those. What is fitted is
scored on the tokens behind those that it was fitted on. docs/routes.md defines every figure.

Examples:
  bmoe predict run.trace
  bmoe predict run.trace --experts 8,16 --budget-mib 4000 --policy lru
  bmoe predict run.trace --compute-ms 80 --read-mib-s 1900
  bmoe predict run.trace --fit runs/first --fit-cell 'stream, cache 345 MiB, 4 lanes'")]
pub(super) struct Args {
    #[command(flatten)]
    trace: TraceArgs,
    /// Experts guessed per layer [default: once to four times the model's top-k]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    experts: Vec<usize>,
    /// Share of the generated tokens, the first ones, that is fitted on
    #[arg(long, value_name = "0..1", default_value_t = 0.5, value_parser = request::share)]
    split: f64,
    /// Beside a cache of this size: only what it lacks is read early [default: no cache]
    #[arg(long, value_name = "MIB", value_parser = request::positive)]
    budget_mib: Option<f64>,
    /// The cache's policy
    #[arg(long, value_name = "NAME", default_value = "lru", requires = "budget_mib")]
    policy: PolicyKind,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What stalls are estimated for.
#[derive(Debug, clap::Args)]
struct DeviceArgs {
    /// Estimate stalls: what a token takes to compute
    #[arg(long, value_name = "MS", value_parser = request::positive, requires = "read_mib_s")]
    compute_ms: Option<f64>,
    /// Estimate stalls: rate of expert reads
    #[arg(long, value_name = "RATE", value_parser = request::positive, requires = "compute_ms")]
    read_mib_s: Option<f64>,
    /// Share of the shorter of computing and reading that the longer one hides without reading early [default: 0]
    #[arg(long, value_name = "0..1", value_parser = request::share, requires = "compute_ms")]
    overlap: Option<f64>,
    /// Estimate stalls with a device fitted from this result folder
    #[arg(long, value_name = "DIR", conflicts_with = "compute_ms")]
    fit: Option<PathBuf>,
    /// The cell of --fit, where several read experts
    #[arg(long, value_name = "NAME", requires = "fit")]
    fit_cell: Option<String>,
}

impl DeviceArgs {
    fn model(&self) -> Result<Option<DeviceModel>, Error> {
        if let (Some(compute_ms), Some(read_mib_s)) = (self.compute_ms, self.read_mib_s) {
            let overlap = self.overlap.unwrap_or(0.0);
            return Ok(DeviceModel::new(compute_ms / 1e3, read_mib_s, overlap));
        }
        let Some(dir) = &self.fit else { return Ok(None) };
        let fit = fit(dir, self.fit_cell.as_deref()).map_err(|e| Error::Refused(e.to_string()))?;
        Ok(Some(fit.model))
    }
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let device = args.device.model()?;
    let trace = args.trace.load()?;
    if let Some(n) = args.experts.iter().find(|n| **n == 0 || **n > trace.n_expert as usize) {
        return Err(Error::Refused(format!(
            "--experts {n}: a layer has {} experts; expected 1 to {}",
            trace.n_expert, trace.n_expert
        )));
    }
    let options = PredictOptions {
        experts: args.experts.clone(),
        fit_share: args.split,
        cache: args.budget_mib.map(|mib| (args.policy, mib_to_bytes(mib))),
        device,
    };
    let predict = Predict::of(&trace, &options).map_err(|e| args.trace.refused(&e))?;
    args.output.show(&Answer {
        terminal: &|top| predict.table().terminal(top),
        csv: &|| predict.table().csv(),
        json: &|| {
            Ok(json!({
                "trace": describe(&trace),
                "break_even_bytes": device.map(|d| break_even_bytes(&d, predict.demand_bytes)),
                "answer": serde_json::to_value(&predict)?,
            }))
        },
        picture: &|| predict_picture(&predict, &trace),
    })
}
