//! `bmoe compare`

use std::path::{Path, PathBuf};

use bmoe_analysis::compare::{
    Arm, Comparison, Judged, Metric, Pairs, RUNS_NEEDED, compare, pair, pair_by, table,
};
use bmoe_analysis::measured::Measured;
use bmoe_analysis::stats::{Latencies, bootstrap};
use serde::Serialize;

use crate::error::Error;
use crate::matrix::Selection;
use crate::say::say;

/// Compare measured cells: the difference, its interval, a test, and a plain sentence
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A side is a result folder, or FOLDER:CELLS with the id, a part of the name, or a regular expression
over `model: name`. One cell on each side makes a pair; several are paired by id, or by model and
name. With --by and one side, cells that differ in that setting only are paired.

The interval is a bootstrap over runs and blocks of tokens; p is Mann and Whitney's, on the means of
the runs, corrected by Holm for the number of pairs. With fewer than 4 valid runs of a cell the
answer is \"can't decide\". docs/method.md has the definitions.

--fail-above 5% ends with exit code 6 when a pair with 4 runs or more on each side has a B that is
worse than A by more than 5 % of A, at every point of its 95 % interval; otherwise with 7 when a
pair has fewer runs than that, and else with 0.

Examples:
  bmoe compare runs/before runs/after --fail-above 5%
  bmoe compare 'runs/first:overlap off' 'runs/first:4 lanes$'
  bmoe compare runs/first --by cache_mib
  bmoe compare runs/first --by overlap --metric p5_tok_s --json")]
pub(super) struct Args {
    /// What B is compared with: a result folder, or FOLDER:CELLS
    #[arg(value_name = "A")]
    a: String,
    /// The other side; not with --by
    #[arg(value_name = "B", required_unless_present = "by", conflicts_with = "by")]
    b: Option<String>,
    /// Pair the cells of A that differ in this setting only, as `overlap` or `cache_mib`
    #[arg(long, value_name = "SETTING")]
    by: Option<String>,
    /// What to compare: tok_s, median_tok_s, p5_tok_s, p95_tok_s, first_token_s or mib_token
    #[arg(long, default_value = "tok_s")]
    metric: Metric,
    /// Fail when B is worse than A by more than this, as `5%`
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_above: Option<f64>,
    /// Leave out the first so many tokens of each run
    #[arg(long, value_name = "N", default_value_t = 0)]
    warmup_tokens: usize,
    /// Print one JSON object (docs/formats.md)
    #[arg(long)]
    json: bool,
}

/// The object that `--json` prints.
#[derive(Serialize)]
struct Output<'a> {
    seed: u64,
    resamples: usize,
    warmup_tokens: usize,
    comparisons: &'a [Comparison],
    /// Cells without a partner, as `model: name`.
    alone: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let a = Side::open(&args.a)?;
    let b = args.b.as_deref().map(Side::open).transpose()?;
    let Pairs { pairs, alone } = match (&args.by, &b) {
        (Some(axis), _) => pair_by(a.arms(args.warmup_tokens)?, axis)
            .map_err(|problem| Error::Refused(format!("{}: {problem}", args.a)))?,
        (None, Some(b)) => pair(a.arms(args.warmup_tokens)?, b.arms(args.warmup_tokens)?),
        // The command line has one of both.
        (None, None) => Pairs::default(),
    };
    if pairs.is_empty() {
        let b = args.b.as_deref().unwrap_or_default();
        return Err(Error::Refused(format!(
            "{} and {b} have no cell in common; name one cell of each, as {}:CELL",
            args.a,
            a.folder.display()
        )));
    }
    let mut comparisons = compare(&pairs, args.metric);
    if let Some(b) = &b {
        for comparison in &mut comparisons {
            comparison.a.folder = Some(a.folder.display().to_string());
            comparison.b.folder = Some(b.folder.display().to_string());
        }
    }
    let label = |arm: &Arm<'_>| format!("{}: {}", arm.cell.model, arm.cell.name);
    let alone: Vec<String> = alone.iter().map(label).collect();
    if args.json {
        let output = Output {
            seed: bootstrap::SEED,
            resamples: bootstrap::RESAMPLES,
            warmup_tokens: args.warmup_tokens,
            comparisons: &comparisons,
            alone,
        };
        let text = serde_json::to_string_pretty(&output)
            .map_err(|e| Error::Engine(format!("cannot write JSON: {e}")))?;
        say!("{text}");
    } else {
        print(args, &pairs, &comparisons, &alone);
    }
    args.fail_above.map_or(Ok(()), |bound| judge(&comparisons, bound))
}

fn print(args: &Args, pairs: &[(Arm<'_>, Arm<'_>)], comparisons: &[Comparison], alone: &[String]) {
    say!("{}: B against A\n", args.metric.about());
    say!("{}", table(comparisons));
    say!("latency of single tokens, ms (a display; the table has the exact samples)");
    for (number, (a, b)) in (1..).zip(pairs) {
        latencies(number, a, b);
    }
    say!();
    for (number, comparison) in (1..).zip(comparisons) {
        for (side, arm) in [("A", &comparison.a), ("B", &comparison.b)] {
            for unused in &arm.unused {
                say!("not used: {number} {side}, {unused}");
            }
        }
    }
    for cell in alone {
        say!("not compared: {cell} (no partner)");
    }
    let pairing = match comparisons.iter().filter(|c| c.paired).count() {
        0 => "blocks drawn for each run by itself",
        n if n == comparisons.len() => "blocks at the same tokens on both sides",
        _ => "blocks at the same tokens where both sides decoded the same",
    };
    say!(
        "intervals: bootstrap of runs and blocks of tokens, {} resamples, seed {},\n  {pairing}; p: \
         Mann-Whitney on runs, Holm",
        bootstrap::RESAMPLES,
        bootstrap::SEED
    );
    if args.warmup_tokens > 0 {
        say!("the first {} tokens of each run are left out", args.warmup_tokens);
    }
}

/// Both histograms of a pair, on one scale.
fn latencies(number: usize, a: &Arm<'_>, b: &Arm<'_>) {
    const WIDTH: usize = 40;
    let of = |arm: &Arm<'_>| {
        Latencies::from_ns(arm.runs.iter().flat_map(|(_, tokens)| *tokens).map(|t| t.wall_ns))
    };
    let sides = [("A", of(a)), ("B", of(b))];
    let ranges: Vec<(u64, u64)> = sides.iter().filter_map(|(_, l)| l.range()).collect();
    let low = ranges.iter().map(|r| r.0).min().unwrap_or(1);
    let high = ranges.iter().map(|r| r.1).max().unwrap_or(2);
    for (side, latencies) in &sides {
        let number = if *side == "A" { number.to_string() } else { String::new() };
        let at = |share| {
            latencies.at(share).map_or("–".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e6))
        };
        say!(
            "{number:>3}  {side}  ▕{:<WIDTH$}▏ p50 {}, p99 {}, longest {}",
            latencies.bars(low, high, WIDTH),
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
}

/// The exit that a bound asks for.
fn judge(comparisons: &[Comparison], bound_pct: f64) -> Result<(), Error> {
    let count = |judged| comparisons.iter().filter(|c| c.judge(bound_pct) == judged).count();
    let (worse, undecided) = (count(Judged::Worse), count(Judged::Undecided));
    let total = comparisons.len();
    match (worse, undecided) {
        (0, 0) => Ok(()),
        (0, undecided) => Err(Error::NotJudged { undecided, total, needed: RUNS_NEEDED }),
        (worse, _) => Err(Error::Slower { worse, total, bound_pct }),
    }
}

/// A result folder and which of its cells.
struct Side {
    given: String,
    folder: PathBuf,
    selection: Option<Selection>,
    measured: Measured,
}

impl Side {
    /// `FOLDER` or `FOLDER:CELLS`. A folder may have colons in its name.
    fn open(given: &str) -> Result<Self, Error> {
        let parts =
            given.char_indices().filter(|(_, c)| *c == ':').map(|(at, _)| given.split_at(at));
        let split = parts.into_iter().find(|(folder, _)| Path::new(folder).is_dir());
        let (folder, filter) = match split {
            Some((folder, filter)) if !Path::new(given).is_dir() => (folder, Some(&filter[1..])),
            _ => (given, None),
        };
        let selection = filter.map(Selection::new).transpose().map_err(|e| {
            Error::Refused(format!(
                "{given}: the part behind the colon is no regular expression: {e}"
            ))
        })?;
        let folder = PathBuf::from(folder);
        let measured = Measured::read(&folder)?;
        Ok(Self { given: given.to_owned(), folder, selection, measured })
    }

    fn arms(&self, warmup_tokens: usize) -> Result<Vec<Arm<'_>>, Error> {
        let cells = self.measured.cells();
        let selected = |cell: &bmoe_analysis::cells::Cell<'_>| {
            let all = self.selection.as_ref();
            all.is_none_or(|s| s.selects_named(cell.model, cell.name, cell.id))
        };
        let names = cells.iter().map(|c| format!("{}: {} ({})", c.model, c.name, c.id));
        let names = names.collect::<Vec<_>>().join("\n  ");
        let arms: Vec<Arm<'_>> = cells
            .into_iter()
            .filter(selected)
            .map(|cell| Arm::new(&self.measured, cell, warmup_tokens))
            .collect();
        if arms.is_empty() {
            return Err(Error::Refused(match &self.selection {
                Some(_) => format!("{} selects no cell; the folder has\n  {names}", self.given),
                None => format!("{} has no cell that ended", self.given),
            }));
        }
        Ok(arms)
    }
}

/// `5%` or `5`.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    number
        .parse()
        .ok()
        .filter(|pct: &f64| (0.0..100.0).contains(pct))
        .ok_or_else(|| format!("{text:?} is no percentage; expected 0 to 100, as `5%`"))
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn bounds_are_percentages() {
        assert_eq!(percent("5%"), Ok(5.0));
        assert_eq!(percent("2.5"), Ok(2.5));
        for wrong in ["-1%", "100%", "five", "NaN", ""] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
