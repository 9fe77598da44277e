//! The published replays of real traces, to the last digit.

use bmoe_analysis::curve::LruCurve;
use bmoe_analysis::routes::RouteTrace;
use bmoe_analysis::simulate::{Accesses, Budget, Rules, SimPolicy, Simulation, Simulator};

use crate::traces;

fn run(simulator: &Simulator<'_>, policy: &str, budget: Budget) -> Simulation {
    simulator.run(policy.parse().unwrap(), budget).unwrap()
}

/// Rows as `qwen-curve.csv` has them: `hit_pct_cum,hit_pct_decode,read_mib`.
fn row(simulation: &Simulation) -> String {
    let total = simulation.total().hit_pct().unwrap();
    let decode = simulation.decode.hit_pct().unwrap();
    format!("{total:.3},{decode:.3},{:.1}", simulation.read_mib().unwrap())
}

/// Rows of the published curve: (MiB, published name, the rest).
fn published_curve() -> Option<Vec<(u64, String, String)>> {
    let path = traces::shared("published/2026-07-20-replay/qwen-curve.csv")?;
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().skip(1).map(|line| {
        let mut columns = line.splitn(3, ',');
        let mib = columns.next().unwrap().parse().unwrap();
        (mib, columns.next().unwrap().to_owned(), columns.next().unwrap().to_owned())
    });
    Some(rows.collect())
}

#[test]
fn the_published_curve_of_qwen3_comes_out() {
    let (Some(trace), Some(published)) = (traces::qwen3(), published_curve()) else { return };
    let accesses = Accesses::new(&trace, Rules::PUBLISHED_BYTES);
    let simulator = Simulator::new(&accesses);
    let (mut compared, mut differences) = (0, Vec::new());
    for (mib, name, want) in published {
        let policy = match name.as_str() {
            "layer" => "layer-lru",
            "layerlfu" => "layer-lfu",
            // Another generator than ours.
            "random" => continue,
            same => same,
        };
        let got = row(&run(&simulator, policy, Budget::mib(mib)));
        if got != want {
            differences.push(format!("{mib} MiB, {name}: published {want}, ours {got}"));
        }
        compared += 1;
    }
    assert_eq!(differences, Vec::<String>::new());
    assert_eq!(compared, 55);
}

/// The engine keeps nothing beyond its budget: where that differs from the published replays.
#[test]
fn the_rule_for_large_events_decides_below_one_event() {
    let Some(trace) = traces::qwen3() else { return };
    let accesses = Accesses::new(&trace, Rules::ENGINE);
    let simulator = Simulator::new(&accesses);
    let decode = |policy: &str, mib| {
        format!("{:.3}", run(&simulator, policy, Budget::mib(mib)).decode.hit_pct().unwrap())
    };
    // Published: 38.344, 38.344, 42.337, 79.715.
    let layer = [250, 750, 1000, 4000].map(|mib| decode("layer-lru", mib));
    assert_eq!(layer, ["7.699", "34.494", "41.867", "79.438"]);
    // Without shares only 250 MiB is less than the largest event of the prompt.
    let belady = [250, 500, 1000, 4000].map(|mib| decode("belady", mib));
    assert_eq!(belady, ["27.496", "45.266", "62.671", "92.716"]);
}

#[test]
fn the_whole_curve_of_qwen3_is_that_of_single_replays() {
    let Some(trace) = traces::qwen3() else { return };
    let accesses = Accesses::new(&trace, Rules::ENGINE);
    let simulator = Simulator::new(&accesses);
    let curve = LruCurve::new(&accesses).unwrap();
    for mib in [0, 100, 250, 750, 785, 786, 1000, 1234, 2000, 4000, 8000, 9000] {
        let simulated = run(&simulator, "lru", Budget::mib(mib));
        let step = curve.at(mib << 20);
        for (got, want) in [(step.prefill, simulated.prefill), (step.decode, simulated.decode)] {
            assert_eq!(
                (got.hits, got.misses, got.read_bytes),
                (want.hits, want.misses, want.read_bytes),
                "{mib} MiB"
            );
        }
    }
    // One token's experts: 785 MiB, rounded.
    let cliff = curve.cliff();
    assert_eq!((cliff.token_bytes + (1 << 19)) >> 20, 785);
    let first = cliff.first_hit_bytes.unwrap();
    assert!(curve.at(first - 1).decode.hits == 0 && first <= cliff.token_bytes);
    // The smallest budget for 80 % has it, and a byte less has not.
    let step = curve.smallest_for(80.0).unwrap();
    let pct = |budget| run(&simulator, "lru", Budget::Bytes(budget)).decode.hit_pct().unwrap();
    assert!(pct(step.budget_bytes) >= 80.0 && pct(step.budget_bytes - 1) < 80.0);
    assert_eq!(curve.smallest_for(99.9), None);
}

/// Decode hit rates with slots per layer.
fn slots(trace: &RouteTrace, policies: &[&str], slots: [u32; 3]) -> Vec<String> {
    let accesses = Accesses::new(trace, Rules::PUBLISHED_SLOTS);
    let simulator = Simulator::new(&accesses);
    policies
        .iter()
        .map(|policy| {
            let pct = slots.map(|slots| {
                let simulated = run(&simulator, policy, Budget::SlotsPerLayer(slots));
                format!("{:.2}", simulated.decode.hit_pct().unwrap())
            });
            format!("{policy} {}", pct.join(" "))
        })
        .collect()
}

#[test]
fn the_published_slots_per_layer_of_kimi_come_out() {
    let Some(trace) = traces::kimi() else { return };
    assert_eq!(
        slots(&trace, &["lru", "lfu", "lfru", "belady"], [8, 16, 32]),
        [
            "lru 33.45 45.74 58.40",
            "lfu 33.45 47.68 59.60",
            "lfru 33.45 48.76 61.39",
            "belady 33.45 59.37 73.40",
        ]
    );
    // Published with one decimal, at k slots: 50.5.
    assert_eq!(slots(&trace, &["belady-bypass"], [8, 16, 32]), ["belady-bypass 50.54 63.21 74.58"]);
}

#[test]
fn the_published_slots_per_layer_of_qwen3_come_out() {
    let Some(trace) = traces::qwen3() else { return };
    assert_eq!(
        slots(&trace, &["lru", "lfu", "lfru", "belady"], [6, 12, 24]),
        [
            "lru 37.65 52.22 72.26",
            "lfu 37.65 56.83 75.01",
            "lfru 37.65 56.21 75.14",
            "belady 37.65 66.66 83.62",
        ]
    );
    // Published with one decimal, at k slots: 54.2.
    assert_eq!(slots(&trace, &["belady-bypass"], [6, 12, 24]), ["belady-bypass 54.15 70.83 84.52"]);
}

/// In the router's order ties fall otherwise: what that changes in the last digits.
#[test]
fn the_order_within_an_event_decides_ties() {
    let Some(trace) = traces::qwen3() else { return };
    let rules = Rules { by_expert: false, ..Rules::PUBLISHED_SLOTS };
    let accesses = Accesses::new(&trace, rules);
    let simulator = Simulator::new(&accesses);
    let pct = |policy: &str, slots| {
        let simulated = run(&simulator, policy, Budget::SlotsPerLayer(slots));
        format!("{:.2}", simulated.decode.hit_pct().unwrap())
    };
    assert_eq!(
        ["lru", "lfu", "lfru", "belady"].map(|p| pct(p, 12)),
        ["51.83", "56.78", "56.21", "66.66"]
    );
}

#[test]
fn every_policy_replays_a_real_trace() {
    let Some(trace) = traces::qwen3() else { return };
    let accesses = Accesses::new(&trace, Rules::ENGINE);
    let simulator = Simulator::new(&accesses);
    let rows: Vec<String> = SimPolicy::ALL
        .into_iter()
        .map(|policy| {
            let simulated = simulator.run(policy, Budget::mib(2000)).unwrap();
            format!("{policy:<14} {} {}", row(&simulated), simulated.total().evictions)
        })
        .collect();
    insta::assert_snapshot!(rows.join("\n"));
}
