//! Comparisons of cells: the difference of a figure, its interval, a test, and a sentence.
//!
//! The interval is [`Runs::ratio`](crate::stats::Runs::ratio)'s, paired where all runs of both cells decoded
//! the same tokens. The test is Mann & Whitney's on the means of the runs, never on tokens, which depend on
//! each other; its p is corrected for the number of comparisons made together ([`holm`]).

mod metric;
mod pairs;
mod sentence;
pub(crate) mod text;

use serde::Serialize;

use crate::cells::{Cell, Figures};
use crate::data::{RunRow, TokenRow};
use crate::measured::Measured;
use crate::result_set::{CellRecord, Verdict};
use crate::stats::{Method, holm, mann_whitney, smallest_p};

pub use metric::Metric;
pub use pairs::{Pairs, pair, pair_by, pair_named};
pub use text::table;

/// Runs that each cell needs for a decision. Fewer can't have a p below 0.05.
pub const RUNS_NEEDED: usize = 4;

/// A corrected p below this counts.
pub const SIGNIFICANT: f64 = 0.05;

/// A cell as one side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Arm<'a> {
    /// The cell.
    pub cell: Cell<'a>,
    /// The runs of its valid attempts, without the tokens that count as warm-up.
    pub runs: Vec<(&'a RunRow, &'a [TokenRow])>,
    /// Attempts that are not used: those that aren't valid, and those whose run the data lack.
    pub unused: Vec<&'a CellRecord>,
}

impl<'a> Arm<'a> {
    /// A cell of a folder. The first `warmup_tokens` of each run are left out.
    #[must_use]
    pub fn new(measured: &'a Measured, cell: Cell<'a>, warmup_tokens: usize) -> Self {
        let mut runs = measured.valid_runs(&cell);
        for (_, tokens) in &mut runs {
            *tokens = &tokens[warmup_tokens.min(tokens.len())..];
        }
        let used = |a: &CellRecord| a.verdict == Verdict::Valid && measured.row_of(a).is_some();
        let attempts = cell.earlier.iter().chain(&cell.attempts).copied();
        let unused = attempts.filter(|a| !used(a)).collect();
        Self { cell, runs, unused }
    }

    /// Whether another arm's runs decoded the same tokens at the same positions.
    fn same_tokens(&self, other: &Self) -> bool {
        let Some((_, first)) = self.runs.first() else { return false };
        let tokens = |rows: &'a [TokenRow]| rows.iter().map(|t| (t.position, t.token));
        self.runs.iter().chain(&other.runs).all(|(_, rows)| tokens(rows).eq(tokens(first)))
    }
}

/// What a comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// B is better than A.
    Better,
    /// B is worse than A.
    Worse,
    /// Both are alike as far as the runs can tell.
    NoneVisible,
    /// There are too few runs to say.
    Undecided,
}

/// One side's figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Side {
    /// Where it is from, when sides of several folders are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The cell's id.
    pub id: String,
    /// The model's name.
    pub model: String,
    /// The cell's name.
    pub name: String,
    /// The metric over all runs; `None` when it was not measured.
    pub value: Option<f64>,
    /// The metric of each run.
    pub runs: Vec<f64>,
    /// Decode steps of all runs.
    pub tokens: usize,
    /// MiB of experts per token; `None` when it was not measured.
    pub mib_token: Option<f64>,
    /// Hit rate from the start of the run, in per cent; `None` without a cache.
    pub hit_pct: Option<f64>,
    /// Attempts that were not used, as `repetition 2: throttled: reason`.
    pub unused: Vec<String>,
}

/// B against A.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// What is compared.
    pub metric: Metric,
    /// The one that stands for 100 %.
    pub a: Side,
    /// The other.
    pub b: Side,
    /// B over A, less one, in per cent; `None` when the metric was not measured of both.
    pub difference_pct: Option<f64>,
    /// Lower end of its 95 % interval.
    pub low_pct: Option<f64>,
    /// Upper end of its 95 % interval.
    pub high_pct: Option<f64>,
    /// The blocks of the resamples lay at the same tokens in all runs of both.
    pub paired: bool,
    /// Tokens per block.
    pub block_tokens: usize,
    /// The test's U: pairs of runs in which A has more.
    pub u: Option<f64>,
    /// The test's p.
    pub p: Option<f64>,
    /// The test's p, corrected for the number of comparisons.
    pub p_corrected: Option<f64>,
    /// `exact` or `normal`.
    pub p_method: Option<&'static str>,
    /// Comparisons corrected for.
    pub comparisons: usize,
    /// What it says.
    pub outcome: Outcome,
    /// The same for people.
    pub sentence: String,
}

/// How a comparison stands to a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// The whole interval is beyond the bound.
    Worse,
    /// It is not.
    Within,
    /// There are fewer than [`RUNS_NEEDED`] runs on a side, or nothing was measured.
    Undecided,
}

impl Comparison {
    /// Whether B is worse than A by more than so many per cent of A: the interval of the difference holds
    /// nothing milder.
    #[must_use]
    pub fn judge(&self, bound_pct: f64) -> Judged {
        let mildest = if self.metric.more_is_better() { self.high_pct } else { self.low_pct };
        let enough = self.a.runs.len().min(self.b.runs.len()) >= RUNS_NEEDED;
        match mildest.filter(|_| enough) {
            None => Judged::Undecided,
            Some(high) if self.metric.more_is_better() && high < -bound_pct => Judged::Worse,
            Some(low) if !self.metric.more_is_better() && low > bound_pct => Judged::Worse,
            Some(_) => Judged::Within,
        }
    }
}

/// Compares pairs of cells, B against A; all of them together are what p is corrected for.
#[must_use]
pub fn compare(pairs: &[(Arm<'_>, Arm<'_>)], metric: Metric) -> Vec<Comparison> {
    let mut comparisons: Vec<Comparison> =
        pairs.iter().map(|(a, b)| uncorrected(a, b, metric)).collect();
    let tested: Vec<usize> =
        (0..comparisons.len()).filter(|i| comparisons[*i].p.is_some()).collect();
    let corrected = holm(&tested.iter().filter_map(|i| comparisons[*i].p).collect::<Vec<_>>());
    for (index, p) in tested.iter().zip(corrected) {
        comparisons[*index].p_corrected = Some(p);
    }
    for comparison in &mut comparisons {
        comparison.comparisons = tested.len();
        comparison.outcome = outcome(comparison);
        comparison.sentence = sentence::of(comparison);
    }
    comparisons
}

fn uncorrected(a: &Arm<'_>, b: &Arm<'_>, metric: Metric) -> Comparison {
    let values = (metric.values(&a.runs), metric.values(&b.runs));
    let statistic = metric.statistic();
    let mut comparison = Comparison {
        metric,
        a: side(a, metric),
        b: side(b, metric),
        difference_pct: None,
        low_pct: None,
        high_pct: None,
        paired: false,
        block_tokens: 1,
        u: None,
        p: None,
        p_corrected: None,
        p_method: None,
        comparisons: 0,
        outcome: Outcome::Undecided,
        sentence: String::new(),
    };
    let (Some(of_a), Some(of_b)) = values else { return comparison };
    let pct = |ratio: f64| Some(100.0 * (ratio - 1.0)).filter(|pct| pct.is_finite());
    comparison.paired = metric.of_tokens() && a.same_tokens(b);
    comparison.block_tokens = of_a.block_tokens().max(of_b.block_tokens());
    comparison.difference_pct = pct(of_b.pooled(statistic) / of_a.pooled(statistic));
    let interval = of_a.ratio(&of_b, statistic, comparison.paired);
    (comparison.low_pct, comparison.high_pct) = (pct(interval.low), pct(interval.high));
    let enough = of_a.runs().min(of_b.runs()) >= RUNS_NEEDED;
    let test = mann_whitney(&comparison.a.runs, &comparison.b.runs).filter(|_| enough);
    comparison.u = test.map(|t| t.u);
    comparison.p = test.map(|t| t.p);
    comparison.p_method = test.map(|t| match t.method {
        Method::Exact => "exact",
        Method::Normal => "normal",
    });
    comparison
}

fn side(arm: &Arm<'_>, metric: Metric) -> Side {
    let values = metric.values(&arm.runs);
    let figures = Figures::pooled(&arm.runs);
    let unused = |attempt: &&CellRecord| {
        let reason = attempt.reason.as_deref().map_or(String::new(), |r| format!(": {r}"));
        let verdict = match attempt.verdict {
            Verdict::Valid => "valid, but its run is not in the data",
            verdict => verdict.words(),
        };
        format!(
            "repetition {}, attempt {}: {verdict}{reason}",
            attempt.repetition + 1,
            attempt.attempt
        )
    };
    Side {
        folder: None,
        id: arm.cell.id.to_owned(),
        model: arm.cell.model.to_owned(),
        name: arm.cell.name.to_owned(),
        value: values.as_ref().map(|v| v.pooled(metric.statistic())),
        runs: values.map_or_else(Vec::new, |v| v.each(metric.statistic())),
        tokens: arm.runs.iter().map(|(_, tokens)| tokens.len()).sum(),
        mib_token: figures.as_ref().and_then(|f| f.per_token?.read_mib),
        hit_pct: figures.and_then(|f| f.hit_rate).map(|share| share * 100.0),
        unused: arm.unused.iter().map(unused).collect(),
    }
}

fn outcome(comparison: &Comparison) -> Outcome {
    let interval = comparison.low_pct.zip(comparison.high_pct);
    let (Some(p), Some((low, high))) = (comparison.p_corrected, interval) else {
        return Outcome::Undecided;
    };
    let better = if comparison.metric.more_is_better() { low > 0.0 } else { high < 0.0 };
    match (p < SIGNIFICANT, low > 0.0 || high < 0.0) {
        (true, true) if better => Outcome::Better,
        (true, true) => Outcome::Worse,
        // An interval apart from zero, and runs too few for any p to agree.
        (false, true) if smallest_of(comparison) >= SIGNIFICANT => Outcome::Undecided,
        _ => Outcome::NoneVisible,
    }
}

/// The smallest corrected p that a comparison's runs could have had.
fn smallest_of(comparison: &Comparison) -> f64 {
    let alone = smallest_p(comparison.a.runs.len(), comparison.b.runs.len());
    (alone * comparison.comparisons as f64).min(1.0)
}

/// Runs an arm at which a difference could be told among so many comparisons.
fn runs_needed(comparisons: usize) -> usize {
    let enough = |runs: &usize| smallest_p(*runs, *runs) * (comparisons as f64) < SIGNIFICANT;
    (RUNS_NEEDED..64).find(enough).unwrap_or(64)
}
