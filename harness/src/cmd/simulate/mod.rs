//! `bmoe simulate`

mod render;
pub(super) mod request;

use std::path::PathBuf;

use bmoe_analysis::curve::LruCurve;
use bmoe_analysis::plots::{Theme, curve_picture, policies_picture};
use bmoe_analysis::routes::{LoadOptions, RouteTrace};
use bmoe_analysis::simulate::{Accesses, Budget, Job, Rules, SimPolicy, Simulator, run_all};

use super::ask::{self, draw, picture_path};
use super::device::DeviceArgs;
use crate::error::Error;
use crate::progress::Work;
use render::Report;
use request::{Budgets, Policies};

/// Replay a route trace through cache policies, offline
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Policies: belady belady-bypass lru lfu lfu-aged lfru fifo sieve s3fifo arc random layer-lru
layer-lfu layer-static pinned-lru unbounded. docs/simulation.md says what each of them does.

Examples:
  bmoe simulate run.trace
  bmoe simulate run.trace --policies belady,lru,lfu --budgets-mib 1000,2000,4000 --csv
  bmoe simulate routes.jsonl --slots-per-layer 8,16,32 --decode-only
  bmoe simulate run.trace --curve --target-hit 80
  bmoe simulate run.trace --plot policies.svg
  bmoe simulate run.trace --compute-ms 180 --read-mib-s 1900 --overlap 0.8")]
pub(super) struct Args {
    /// A trace of any format that `bmoe import` reads, or a folder: an imported one or a result folder (DIR:NAME = that
    /// run or cell of it)
    trace: PathBuf,
    /// Policies, or all of them
    #[arg(long, value_name = "NAME,…|all", default_value = "all")]
    policies: Policies,
    /// Budgets for the experts of all layers, or some from one token's experts to all that are used
    /// [default: auto, unless --curve or --target-hit is there]
    #[arg(long, value_name = "MIB,…|auto", conflicts_with = "slots_per_layer")]
    budgets_mib: Option<Budgets<f64>>,
    /// Fixed slots in every layer instead: so many experts of each, whatever their size
    #[arg(long, value_name = "N,…|auto")]
    slots_per_layer: Option<Budgets<u32>>,
    /// Size of one expert, for traces that don't say it
    #[arg(long, value_name = "MIB", value_parser = request::positive)]
    expert_mib: Option<f64>,
    /// Replay as the published tables do: an event larger than the budget stays until the next one; with
    /// --slots-per-layer also decode only, and the experts of an event ascending
    #[arg(long)]
    published: bool,
    /// Leave the prompt out: decode begins with an empty cache
    #[arg(long)]
    decode_only: bool,
    /// Seed of `random`; the engine's is 0
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// LRU at every budget, in place of policies unless budgets are given
    #[arg(long, conflicts_with = "slots_per_layer")]
    curve: bool,
    /// The smallest budget at which LRU has this decode hit rate; may be given several times
    #[arg(long, value_name = "PERCENT", value_parser = request::percent,
          conflicts_with = "slots_per_layer")]
    target_hit: Vec<f64>,
    /// Draw the policies' hit rates against the budget, too, or with --curve LRU's miss ratio between its bounds; the
    /// format is the file's ending
    #[arg(long, value_name = "FILE.svg|png", value_parser = picture_path)]
    plot: Option<PathBuf>,
    /// Its background; auto = light, but an SVG follows its viewer
    #[arg(long, value_name = "auto|light|dark", default_value = "auto", requires = "plot")]
    theme: Theme,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV: of the policies, or with --curve of LRU at every budget
    #[arg(long)]
    csv: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let device = args.device.device(1.0)?;
    let only_experts = LoadOptions { weights: false, residency: false, scores: false };
    let trace = ask::open(&args.trace, only_experts, args.expert_mib)?;
    let accesses = Accesses::new(&trace, rules(args));
    let top_k = trace.events().map(|event| event.top_k()).max().unwrap_or(0);
    let refused = |error| Error::Refused(format!("{}: {error}", args.trace.display()));

    let wants_curve = args.curve || !args.target_hit.is_empty();
    let budgets = match (&args.slots_per_layer, &args.budgets_mib) {
        (Some(slots), _) => slots.of(&accesses),
        (None, Some(mib)) => mib.of(&accesses),
        (None, None) if wants_curve => Vec::new(),
        (None, None) => Budgets::<f64>::Auto.of(&accesses),
    };
    let policies = args.policies.list();
    let jobs: Vec<Job> = budgets
        .iter()
        .flat_map(|budget| policies.iter().map(|policy| Job { policy: *policy, budget: *budget }))
        .collect();
    let curve = wants_curve.then(|| LruCurve::new(&accesses)).transpose().map_err(refused)?;

    let simulator = Simulator::new(&accesses).with_seed(args.seed);
    let mut bar = Work::new("replaying", accesses.len() as u64 * jobs.len() as u64);
    let results = run_all(&simulator, &jobs, |events| bar.at(events));
    bar.clear();
    let results = results.map_err(refused)?;
    if let Some(path) = &args.plot {
        let picture = match &curve {
            Some(curve) if args.curve || results.is_empty() => {
                let bounds = run_all(&simulator, &bounds(&accesses), |_| {}).map_err(refused)?;
                curve_picture(curve, &bounds, &trace, args.theme)
            }
            _ => policies_picture(&results, &trace, args.theme),
        };
        draw(path, picture)?;
    }
    let report = Report {
        trace: &trace,
        accesses: &accesses,
        top_k,
        seed: args.seed,
        device,
        results,
        curve,
        targets: &args.target_hit,
        all_steps: args.curve,
    };
    ask::print(&if args.json {
        report.json().to_string() + "\n"
    } else if args.csv {
        report.csv()
    } else {
        report.text()
    })
}

/// What LRU's curve is drawn between, at budgets close enough for a line.
fn bounds(accesses: &Accesses) -> Vec<Job> {
    const BUDGETS: u32 = 32;
    // The picture begins at a quarter of one token's experts.
    let (least, touched) = (accesses.token_bytes() as f64 / 4.0, accesses.touched_bytes() as f64);
    let ratio = (touched / least).max(1.0);
    let between = (0..=BUDGETS).map(|i| {
        Budget::Bytes((least * ratio.powf(f64::from(i) / f64::from(BUDGETS))).ceil() as u64)
    });
    let policies = [SimPolicy::Belady, SimPolicy::Unbounded];
    between.flat_map(|budget| policies.map(|policy| Job { policy, budget })).collect()
}

fn rules(args: &Args) -> Rules {
    let rules = match (args.published, args.slots_per_layer.is_some()) {
        (false, _) => Rules::ENGINE,
        (true, false) => Rules::PUBLISHED_BYTES,
        (true, true) => Rules::PUBLISHED_SLOTS,
    };
    Rules { decode_only: rules.decode_only || args.decode_only, ..rules }
}

/// The trace with the size of its experts, from itself or from the command line.
pub(super) fn sized(trace: RouteTrace, expert_mib: Option<f64>) -> Result<RouteTrace, Error> {
    match expert_mib {
        None => Ok(trace),
        Some(_) if trace.has_sizes() => Err(Error::Refused(
            "--expert-mib: the trace says itself how large its experts are; leave the option away"
                .to_owned(),
        )),
        Some(mib) => Ok(trace.with_expert_bytes((mib * f64::from(1 << 20)).round() as u64)),
    }
}
