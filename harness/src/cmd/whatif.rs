//! `bmoe whatif`

use bmoe_analysis::plots::whatif_picture;
use bmoe_analysis::routes::whatif::{WhatIf, WhatIfOptions};
use bmoe_cache::PolicyKind;
use serde_json::json;

use super::ask::{Answer, OutputArgs, TraceArgs, describe, mib_to_bytes};
use super::simulate::request;
use crate::error::Error;

/// What changed routing would save, and what of the router's weight it would lose
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Changes: fewer experts; dropping experts that are not in the cache and weigh less than a share of
1/k; cache-aware routing (max-rank, arXiv 2412.00099), for traces with router scores. All of them
are lossy, and text quality is not measured. docs/routes.md defines every figure.

Examples:
  bmoe whatif run.trace --budget-mib 4000
  bmoe whatif run.trace --budget-mib 4000 --policy lfu --csv
  bmoe whatif run.trace --plot whatif.svg")]
pub(super) struct Args {
    #[command(flatten)]
    trace: TraceArgs,
    /// Size of the cache beside which the changes are replayed [default: no cache]
    #[arg(long, value_name = "MIB", value_parser = request::positive)]
    budget_mib: Option<f64>,
    /// The cache's policy
    #[arg(long, value_name = "NAME", default_value = "lru", requires = "budget_mib")]
    policy: PolicyKind,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let trace = args.trace.load()?;
    let options = WhatIfOptions {
        policy: args.policy,
        budget_bytes: args.budget_mib.map_or(0, mib_to_bytes),
    };
    let whatif = WhatIf::of(&trace, &options).map_err(|e| args.trace.refused(&e))?;
    args.output.show(&Answer {
        terminal: &|top| whatif.table().terminal(top),
        csv: &|| whatif.table().csv(),
        json: &|| {
            Ok(json!({
                "trace": describe(&trace),
                "lossy": true,
                "text_quality_measured": false,
                "answer": serde_json::to_value(&whatif)?,
            }))
        },
        picture: &|theme| whatif_picture(&whatif, &trace, theme),
    })
}
