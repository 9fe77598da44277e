//! `bmoe predict`

use bmoe_analysis::plots::predict_picture;
use bmoe_analysis::routes::predict::{Predict, PredictOptions, break_even_bytes};
use bmoe_cache::PolicyKind;
use serde_json::json;

use super::ask::{Answer, OutputArgs, TraceArgs, describe, mib_to_bytes};
use super::device::DeviceArgs;
use super::simulate::request;
use crate::error::Error;

/// How well a layer's experts can be guessed early, and whether reading them early pays
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Predictors: random (the base line), the token before, the hottest experts of the prompt and of the
first tokens, co-occurrence with the layer above; with router scores in the trace also those. What
is fitted is scored on the tokens behind those that it was fitted on. docs/routes.md defines every
figure.

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

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let device = args.device.device(0.0)?;
    let model = device.as_ref().map(|device| device.model);
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
        device: model,
    };
    let predict = Predict::of(&trace, &options).map_err(|e| args.trace.refused(&e))?;
    args.output.show(&Answer {
        terminal: &|top| predict.table().terminal(top),
        csv: &|| predict.table().csv(),
        json: &|| {
            Ok(json!({
                "trace": describe(&trace),
                "break_even_bytes": model.map(|d| break_even_bytes(&d, predict.demand_bytes)),
                "device_fitted_from": device.as_ref().and_then(|device| device.fitted_from.clone()),
                "answer": serde_json::to_value(&predict)?,
            }))
        },
        picture: &|theme| predict_picture(&predict, &trace, theme),
    })
}
