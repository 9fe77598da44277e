//! `bmoe routes`

use bmoe_analysis::plots::view_picture;
use bmoe_analysis::routes::tokens::Phases;
use bmoe_analysis::routes::views::{Selection, View};
use serde_json::json;

use super::ask::{Answer, OutputArgs, TraceArgs, describe, mib_to_bytes};
use super::simulate::request;
use crate::error::Error;

/// Ask a route trace: reuse, working set, concentration and more
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Views:
  matrix        every step in every layer: its experts, those repeated marked
  hot           concentration: how few experts do most of a layer's work
  reuse         distance since an expert's last use, in tokens and in bytes
  overlap       experts shared with the token 1 to 16 steps back
  workset       distinct experts and MiB against tokens, and against a budget
  cache         where the experts of the recorded run came from
  entropy       how evenly the layer routes, and how evenly the router weighs
  bytes         expert bytes that each step needed, read and used first
  coactivation  experts that come together, in a layer and from layer to layer
  phases        prompt against generated text, and drift over the text
  loops         repetition that would flatter a cache
docs/routes.md defines every figure.

Examples:
  bmoe routes overlap run.trace
  bmoe routes matrix run.trace --layer 0 --top 0
  bmoe routes workset qwen.route.csv --budget-mib 4000 --plot workset.png
  bmoe routes hot runs/first --csv > hot.csv
  bmoe routes cache 'runs/first:stream, cache 345 MiB, 4 lanes' --phase all --json")]
pub(super) struct Args {
    /// What is asked
    #[arg(value_name = "VIEW")]
    view: View,
    #[command(flatten)]
    trace: TraceArgs,
    /// One layer, by its number in the model [default: all]
    #[arg(long, value_name = "N")]
    layer: Option<u32>,
    /// The part of the run; `phases` compares its parts whatever this says
    #[arg(long, value_name = "decode|prefill|all", default_value = "decode", value_parser = phases)]
    phase: Phases,
    /// With `workset`: a cache budget to compare with [default: 1/16 to 1/2 of all experts]
    #[arg(long, value_name = "MIB", value_parser = request::positive)]
    budget_mib: Option<f64>,
    #[command(flatten)]
    output: OutputArgs,
}

/// For clap.
fn phases(text: &str) -> Result<Phases, String> {
    [Phases::Decode, Phases::Prefill, Phases::All]
        .into_iter()
        .find(|phases| phases.as_str() == text)
        .ok_or_else(|| "choose one of decode, prefill, all".to_owned())
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    if args.budget_mib.is_some() && args.view != View::Workset {
        return Err(Error::Refused(format!(
            "--budget-mib has no effect on `{}`; only `workset` compares with a budget",
            args.view
        )));
    }
    let trace = args.trace.load()?;
    let selection = Selection {
        layer: args.layer,
        phases: args.phase,
        budget_bytes: args.budget_mib.map(mib_to_bytes),
    };
    let shown = args.view.of(&trace, &selection).map_err(|e| args.trace.refused(&e))?;
    args.output.show(&Answer {
        terminal: &|top| shown.terminal(top),
        csv: &|| shown.table().csv(),
        json: &|| {
            Ok(json!({
                "view": args.view.name(),
                "trace": describe(&trace),
                "phase": args.phase,
                "layer": args.layer,
                "answer": serde_json::to_value(&shown)?,
            }))
        },
        picture: &|theme| view_picture(&shown, &trace, &selection, theme),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        args: Args,
    }

    /// The help lists the views by hand.
    #[test]
    fn help_has_every_view_with_its_description() {
        let help = Only::try_parse_from(["routes", "--help"]).unwrap_err().to_string();
        for view in View::ALL {
            assert!(help.contains(&format!("  {view:<13} {}\n", view.description())), "{help}");
        }
    }
}
