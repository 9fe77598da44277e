//! What a comparison says, in a sentence.

use super::{Comparison, Outcome, RUNS_NEEDED, runs_needed, smallest_of};

pub(super) fn of(comparison: &Comparison) -> String {
    let (a, b) = (comparison.a.runs.len(), comparison.b.runs.len());
    let Some((difference, (low, high))) =
        comparison.difference_pct.zip(comparison.low_pct.zip(comparison.high_pct))
    else {
        let heading = comparison.metric.heading();
        let who = match (comparison.a.value, comparison.b.value) {
            (None, None) => "neither A nor B has",
            (None, Some(_)) => "A hasn't",
            (Some(_), None) => "B hasn't",
            (Some(_), Some(_)) => return format!("can't decide: the {heading} of A is zero."),
        };
        return format!("can't decide: {who} a valid run that measured {heading}.");
    };
    let seen = seen(comparison, difference, low, high);
    match comparison.outcome {
        Outcome::Better | Outcome::Worse => format!("B is {seen}, {}.", p(comparison)),
        Outcome::NoneVisible => {
            let largest = low.abs().max(high.abs());
            format!(
                "no difference larger than {} % is visible; B measured {seen}, {}.",
                digits(largest),
                p(comparison)
            )
        }
        Outcome::Undecided if a.min(b) < RUNS_NEEDED => {
            let runs = if a == b {
                format!("{a} run{} an arm", if a == 1 { "" } else { "s" })
            } else {
                format!("{a} and {b} runs")
            };
            let each = if a == b { "" } else { " of each" };
            let within = if a.min(b) == 1 {
                "; with one run, what differs from run to run is not in the interval"
            } else {
                ""
            };
            format!("can't decide: {runs}, {RUNS_NEEDED} needed{each}; B measured {seen}{within}.")
        }
        Outcome::Undecided => format!(
            "can't decide: B measured {seen}, but among {} comparisons the p of {a} and {b} runs can't fall \
             below {:.2}; {} runs an arm needed.",
            comparison.comparisons,
            smallest_of(comparison),
            runs_needed(comparison.comparisons)
        ),
    }
}

/// `12 % faster (8 to 15 %)`; the other direction stands in the interval with a minus.
fn seen(comparison: &Comparison, difference: f64, low: f64, high: f64) -> String {
    let (more, less) = comparison.metric.words();
    let (word, difference, low, high) = if difference >= 0.0 {
        (more, difference, low, high)
    } else {
        (less, -difference, -high, -low)
    };
    let minus = |pct: f64| {
        let text = digits(pct.abs());
        if pct < 0.0 && text.chars().any(|c| ('1'..='9').contains(&c)) {
            format!("−{text}")
        } else {
            text
        }
    };
    format!("{} % {word} ({} to {} %)", digits(difference), minus(low), minus(high))
}

fn digits(pct: f64) -> String {
    if pct < 9.95 { format!("{pct:.1}") } else { format!("{pct:.0}") }
}

/// `p = 0.029`, `p < 0.001`.
fn p(comparison: &Comparison) -> String {
    let p = super::text::p(comparison.p_corrected);
    if p.starts_with('<') { format!("p {p}") } else { format!("p = {p}") }
}
