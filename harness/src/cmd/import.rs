//! `bmoe import`

use std::ops::ControlFlow;
use std::path::PathBuf;

use bmoe_analysis::AnalysisError;
use bmoe_analysis::data::imported::{ImportedRun, Plan, import};

use super::ask;
use crate::error::Error;
use crate::progress::Bytes;
use crate::runner::Interrupt;
use crate::say::say;

/// Bring traces and logs of any program into a folder of Parquet files
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Reads bmoe traces, `route_trace v1` CSV, JSON lines {\"tok\",\"layers\"}, moe-cache-lab.routing-jsonl
v1, and per-token CSVs of every published generation with their .metrics files. Formats are told
apart by content. A folder means the files in it. Damaged rows are refused, with file, line, column.

Examples:
  bmoe import qwen.route.csv --out imports/qwen
  bmoe import logs/ --out imports/phone && bmoe report imports/phone")]
pub(super) struct Args {
    /// Traces, logs, or folders of them
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The folder to make
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
    /// Replace a folder that `bmoe import` made
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let plan = Plan::new(&args.paths).map_err(|error| {
        let gone = args.paths.iter().find(|path| !path.exists());
        ask::missing(error, gone.unwrap_or(&args.out))
    })?;
    for note in plan.passed_over() {
        eprintln!("note: {note}");
    }
    let interrupt = Interrupt::watch().map_err(Error::io("watch signals for", &args.out))?;
    let mut bar = Bytes::new("importing into", &args.out, plan.bytes());
    let imported = import(plan, &args.out, args.force, &mut |done| {
        bar.at(done);
        if interrupt.signal().is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let runs = match imported {
        Ok(runs) => runs,
        Err(error) => {
            bar.clear();
            return Err(match (error, interrupt.signal()) {
                (AnalysisError::ImportStopped, Some(signal)) => {
                    let what = format!("; nothing is left of {}", args.out.display());
                    Error::Interrupted { signal, what }
                }
                (error, _) => error.into(),
            });
        }
    };
    bar.done();
    for (_, run) in &runs {
        say!("{}: {}", run.name, contents(run));
        for note in run.notes() {
            eprintln!("note: {}: {note}", run.name);
        }
    }
    say!("imported into {}", args.out.display());
    Ok(())
}

/// What a run has, in a few words.
fn contents(run: &ImportedRun) -> String {
    let mut parts = Vec::new();
    if let Some(format) = &run.route_format {
        let (layers, top_k) = (run.layers().len(), run.top_k.unwrap_or(0));
        let experts = run.n_expert.unwrap_or(0);
        let rows =
            format!("{} rows of routes, {} events ({format}", run.route_rows, run.route_events);
        parts.push(format!("{rows}; {layers} layers, {experts} experts, top-{top_k})"));
    }
    if let Some(version) = run.log_version {
        let generation = match version {
            0 => "without a preamble".to_owned(),
            n => format!("bmoe_metrics v{n}"),
        };
        parts.push(format!("{} decode steps ({generation})", run.log_rows));
    }
    if run.device_json.is_some() {
        parts.push("device metrics".to_owned());
    }
    parts.join("; ")
}
