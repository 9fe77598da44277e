//! Cache policies against the budget, and LRU's miss-ratio curve between its bounds.

use plotters::prelude::RGBColor;

use super::canvas::Picture;
use super::chart::{Axis, AxisKind, Chart, Series, Shape};
use super::theme::{INK, REFERENCE, SERIES, Theme};
use crate::curve::LruCurve;
use crate::markdown::one_line;
use crate::routes::RouteTrace;
use crate::simulate::{Budget, SimPolicy, Simulation};

const MIB: f64 = 1024.0 * 1024.0;

/// Draws decode's hit rate against the budget, a line for each policy; Belady and the unbounded cache are drawn as
/// bounds (Belady is one where all experts are of one size).
///
/// # Errors
/// The plotting library failed.
pub fn policies_picture(
    results: &[Simulation],
    trace: &RouteTrace,
    theme: Theme,
) -> Result<Picture, String> {
    Picture::render(&policies(results, trace), theme)
}

/// Draws LRU's miss ratio at every budget, with the bounds that were simulated at some.
///
/// # Errors
/// The plotting library failed.
pub fn curve_picture(
    curve: &LruCurve,
    bounds: &[Simulation],
    trace: &RouteTrace,
    theme: Theme,
) -> Result<Picture, String> {
    Picture::render(&miss_ratios(curve, bounds, trace), theme)
}

fn policies(results: &[Simulation], trace: &RouteTrace) -> Chart {
    let mut names: Vec<SimPolicy> = Vec::new();
    for result in results {
        if !names.contains(&result.policy) {
            names.push(result.policy);
        }
    }
    let mut colours = SERIES.iter().map(|c| (*c, false)).chain(SERIES.iter().map(|c| (*c, true)));
    let mut series = Vec::new();
    for policy in names {
        let of_policy = results.iter().filter(|r| r.policy == policy);
        let points =
            of_policy.filter_map(|r| Some((amount(r.budget), r.decode.hit_pct()?))).collect();
        let (colour, dashed) = match bound(policy) {
            Some(style) => style,
            None => colours.next().unwrap_or((REFERENCE, true)),
        };
        series.push(line(policy.name(), colour, dashed, points));
    }
    let slots = results.iter().any(|r| matches!(r.budget, Budget::SlotsPerLayer(_)));
    let budget = if slots { "slots per layer" } else { "budget, MiB" };
    let (from, to) = range(results.iter().map(|r| amount(r.budget)));
    Chart {
        title: format!("{}: cache policies against the budget", one_line(&trace.name)),
        subtitle: subtitle(results.first().map_or(0, |r| r.decode_tokens), trace),
        x: Axis { name: format!("{budget} (logarithmic)"), kind: AxisKind::Logarithmic(from, to) },
        y_name: "hit rate of decode, %".to_owned(),
        y_least: 100.0,
        series,
        levels: Vec::new(),
    }
}

fn miss_ratios(curve: &LruCurve, bounds: &[Simulation], trace: &RouteTrace) -> Chart {
    let token_mib = curve.cliff().token_bytes as f64 / MIB;
    let steps = curve.steps();
    // LRU does nothing there that could be seen.
    let from = (token_mib / 4.0).max(0.01);
    let to = steps.last().map_or(from, |step| step.budget_bytes as f64 / MIB).max(from * 2.0) * 1.1;
    let miss_pct = |hit_pct: Option<f64>| hit_pct.map(|hit| 100.0 - hit);
    // A stair: what a step says is true up to the next one.
    let mut stair: Vec<(f64, f64)> = Vec::new();
    // Steps that are less than a pixel from the last one, both ways, are left out.
    let pixel = (to / from).ln() / 1144.0;
    for step in steps {
        let Some(miss) = miss_pct(step.decode.hit_pct()) else { continue };
        let at = (step.budget_bytes as f64 / MIB).max(from);
        if let Some((last_at, last_miss)) = stair.last().copied() {
            if (at / last_at).ln() < pixel && (miss - last_miss).abs() < 0.25 {
                continue;
            }
            stair.push((at, last_miss));
        }
        stair.push((at, miss));
    }
    if let Some((_, last)) = stair.last().copied() {
        stair.push((to, last));
    }
    let mut series = vec![line("lru, exact", SERIES[0], false, stair)];
    for policy in [SimPolicy::Belady, SimPolicy::BeladyBypass, SimPolicy::Unbounded] {
        let of_policy = bounds.iter().filter(|r| r.policy == policy);
        let mut points: Vec<(f64, f64)> = of_policy
            .filter_map(|r| Some((amount(r.budget), miss_pct(r.decode.hit_pct())?)))
            .collect();
        points.retain(|(at, _)| (from..=to).contains(at));
        if let (SimPolicy::Unbounded, Some((_, miss))) = (policy, points.first().copied()) {
            points = vec![(from, miss), (to, miss)];
        }
        if let (Some((colour, dashed)), false) = (bound(policy), points.is_empty()) {
            series.push(line(policy.name(), colour, dashed, points));
        }
    }
    // Of one token's experts: where LRU begins to be of use.
    let cliff = vec![(token_mib, 0.0), (token_mib, 100.0)];
    let name = format!("one token's experts, {token_mib:.0} MiB");
    series.push(line(&name, REFERENCE, true, cliff));
    Chart {
        title: format!("{}: miss ratio against the budget", one_line(&trace.name)),
        subtitle: subtitle(curve.decode_tokens(), trace),
        x: Axis {
            name: "budget, MiB (logarithmic)".to_owned(),
            kind: AxisKind::Logarithmic(from, to),
        },
        y_name: "miss ratio of decode, %".to_owned(),
        y_least: 100.0,
        series,
        levels: Vec::new(),
    }
}

/// How a bound is drawn; `None` = a policy among others.
fn bound(policy: SimPolicy) -> Option<(RGBColor, bool)> {
    match policy {
        SimPolicy::Belady => Some((INK, false)),
        SimPolicy::BeladyBypass => Some((INK, true)),
        SimPolicy::Unbounded => Some((REFERENCE, false)),
        _ => None,
    }
}

fn line(name: &str, colour: RGBColor, dashed: bool, points: Vec<(f64, f64)>) -> Series {
    let shape = if dashed { Shape::Dashed(points) } else { Shape::Line(points) };
    Series { name: name.to_owned(), colour, shape }
}

/// MiB or slots.
fn amount(budget: Budget) -> f64 {
    match budget {
        Budget::Bytes(bytes) => bytes as f64 / MIB,
        Budget::SlotsPerLayer(slots) => f64::from(slots),
    }
}

/// What a logarithmic axis can show of some budgets.
fn range(budgets: impl Iterator<Item = f64>) -> (f64, f64) {
    let (from, to) = budgets
        .filter(|budget| *budget > 0.0)
        .fold((f64::INFINITY, 0.0_f64), |(low, high), budget| (low.min(budget), high.max(budget)));
    if from > to { (1.0, 2.0) } else { (from, to.max(from * 2.0)) }
}

fn subtitle(decode_tokens: usize, trace: &RouteTrace) -> String {
    format!(
        "{decode_tokens} generated tokens, {} MoE layers × {} experts; replayed offline",
        trace.layers.len(),
        trace.n_expert
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::{Counted, auto_budgets};

    fn result(policy: SimPolicy, budget_mib: u64, hits: u64) -> Simulation {
        Simulation {
            policy,
            budget: Budget::mib(budget_mib),
            prefill: Counted::default(),
            decode: Counted { hits, misses: 100 - hits, ..Counted::default() },
            decode_tokens: 7,
            step_bytes: None,
        }
    }

    #[test]
    fn a_line_for_each_policy_and_bounds_apart() {
        let results: Vec<Simulation> = SimPolicy::ALL
            .into_iter()
            .flat_map(|policy| [100, 400].map(|mib| result(policy, mib, mib / 8)))
            .collect();
        let chart = policies(&results, &RouteTrace::default());
        assert_eq!(chart.series.len(), SimPolicy::ALL.len());
        let belady = &chart.series[0];
        assert!(
            belady.colour == INK
                && matches!(&belady.shape, Shape::Line(points) if points[1] == (400.0, 50.0))
        );
        // No two look the same.
        let mut looks: Vec<_> = chart
            .series
            .iter()
            .map(|s| (s.colour.0, s.colour.1, s.colour.2, matches!(s.shape, Shape::Dashed(_))))
            .collect();
        looks.sort_unstable();
        looks.dedup();
        assert_eq!(looks.len(), SimPolicy::ALL.len());
        let svg = Picture::render(&chart, Theme::Light).unwrap().svg;
        for policy in SimPolicy::ALL {
            assert!(svg.contains(&format!("\n{}\n", policy.name())), "{policy}");
        }
        assert_eq!(range([0.0].into_iter()), (1.0, 2.0));
    }

    #[test]
    fn the_curve_lies_above_its_bounds() {
        use crate::routes::{RouteEvent, RouteLayer};
        use crate::simulate::{Accesses, Job, Rules, Simulator, run_all};
        let layers = vec![RouteLayer { index: 0, expert_bytes: 1 << 20 }];
        let mut trace = RouteTrace::new("t".into(), String::new(), layers, 9);
        for (position, experts) in (0..40_u16).map(|i| (u32::from(i), [i % 7, 7 + i % 2])) {
            let event =
                RouteEvent { positions: &[position], experts: &experts, ..RouteEvent::default() };
            trace.push(&event).unwrap();
        }
        let accesses = Accesses::new(&trace, Rules::ENGINE);
        let jobs: Vec<Job> = auto_budgets(&accesses)
            .into_iter()
            .flat_map(|budget| {
                [SimPolicy::Belady, SimPolicy::Unbounded].map(|policy| Job { policy, budget })
            })
            .collect();
        let bounds = run_all(&Simulator::new(&accesses), &jobs, |_| {}).unwrap();
        let curve = LruCurve::new(&accesses).unwrap();
        let chart = miss_ratios(&curve, &bounds, &trace);
        let points = |name: &str| {
            let series = chart.series.iter().find(|s| s.name == name).unwrap();
            let (Shape::Line(points) | Shape::Dashed(points)) = &series.shape else { panic!() };
            points.clone()
        };
        let at = |stair: &[(f64, f64)], x: f64| {
            stair.iter().rev().find(|(from, _)| *from <= x).map(|(_, miss)| *miss).unwrap()
        };
        let (lru, belady, unbounded) =
            (points("lru, exact"), points("belady"), points("unbounded"));
        assert!(!belady.is_empty() && unbounded.len() == 2);
        for (budget, miss) in belady {
            assert!(at(&lru, budget) >= miss - 1e-9 && miss >= unbounded[0].1 - 1e-9, "{budget}");
        }
    }
}
