//! A toy trace worked out by hand: `tests/conformance/toy.txt`.

use bmoe_analysis::curve::LruCurve;
use bmoe_analysis::routes::{RouteLayer, RouteTrace};
use bmoe_analysis::simulate::{Accesses, Budget, Rules, Simulator};
use bmoe_trace::record::Phase;

use crate::traces::push;

const TOY: &str = include_str!("../conformance/toy.txt");

fn toy() -> RouteTrace {
    let layers = [(0, 1), (1, 2)].map(|(index, expert_bytes)| RouteLayer { index, expert_bytes });
    let mut trace = RouteTrace::new("toy".into(), String::new(), layers.to_vec(), 4);
    let mut position = 0;
    for line in TOY.lines().filter_map(|line| line.strip_prefix("event")) {
        let mut words = line.split('#').next().unwrap().split_whitespace();
        let phase = match words.next().unwrap() {
            "prefill" => Phase::Prefill,
            _ => Phase::Decode,
        };
        let layer = usize::from(words.next() == Some("B"));
        let experts: Vec<u16> = words.map(|word| word.parse().unwrap()).collect();
        let positions: Vec<u32> = (position..).take(experts.len() / 2).collect();
        push(&mut trace, phase, layer, &positions, &experts);
        position += if layer == 1 { positions.len() as u32 } else { 0 };
    }
    trace
}

#[test]
fn replays_count_what_was_worked_out_by_hand() {
    let trace = toy();
    assert_eq!((trace.events().len(), trace.decode_tokens()), (6, 2));
    let mut compared = 0;
    for line in TOY.lines().filter_map(|line| line.strip_prefix("expect")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [policy, rule, budget, unit, decode, bytes] = words[..] else { panic!("{line}") };
        let rules = match rule {
            "engine" => Rules::ENGINE,
            "published" => Rules::PUBLISHED_BYTES,
            other => panic!("{other}"),
        };
        let budget = match unit {
            "bytes" => Budget::Bytes(budget.parse().unwrap()),
            _ => Budget::SlotsPerLayer(budget.parse().unwrap()),
        };
        let accesses = Accesses::new(&trace, rules);
        let simulated = Simulator::new(&accesses).run(policy.parse().unwrap(), budget).unwrap();
        let counted = |c: bmoe_analysis::simulate::Counted| format!("{}/{}", c.hits, c.misses);
        assert_eq!(counted(simulated.prefill), "0/6", "{line}");
        assert_eq!(counted(simulated.decode), decode, "{line}");
        assert_eq!(simulated.total().read_bytes.to_string(), bytes, "{line}");
        assert_eq!(simulated.step_bytes.unwrap().len(), 2);
        if policy == "lru"
            && let Budget::Bytes(budget) = budget
        {
            let step = LruCurve::new(&accesses).unwrap().at(budget);
            assert_eq!(counted(step.decode), decode, "{line}");
        }
        compared += 1;
    }
    assert_eq!(compared, 13);
}

#[test]
fn the_toy_has_a_cliff_and_steps() {
    let accesses = Accesses::new(&toy(), Rules::ENGINE);
    // All six experts are used; a token uses two of each layer.
    assert_eq!((accesses.touched_bytes(), accesses.token_bytes()), (9, 6));
    assert_eq!((accesses.largest_event_bytes(), accesses.decode_event_experts()), (6, 2));
    let curve = LruCurve::new(&accesses).unwrap();
    let cliff = curve.cliff();
    // Bytes from the top of the stack down to the entry, in decode: a2 7, a0 9; b3 8, b0 6; a1 9, a2 6; b1 9, b3 6.
    assert_eq!((cliff.token_bytes, cliff.first_hit_bytes), (6, Some(6)));
    let steps: Vec<(u64, u64)> =
        curve.steps().iter().map(|step| (step.budget_bytes, step.decode.hits)).collect();
    assert_eq!(steps, [(0, 0), (6, 3), (7, 4), (8, 5), (9, 8)]);
    assert_eq!(curve.smallest_for(62.5).map(|step| step.budget_bytes), Some(8));
}
