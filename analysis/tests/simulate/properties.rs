//! What holds of any trace.

use bmoe_analysis::curve::LruCurve;
use bmoe_analysis::routes::{RouteLayer, RouteTrace};
use bmoe_analysis::simulate::{Accesses, Budget, Job, Rules, SimPolicy, Simulator, run_all};
use bmoe_cache::PolicyKind;
use bmoe_trace::record::Phase;
use proptest::prelude::*;

use crate::traces::push;

/// A prompt in micro-batches and some tokens: layers of these sizes, `top_k` distinct experts a token.
fn trace(sizes: Vec<u64>, n_expert: u16, top_k: usize) -> impl Strategy<Value = RouteTrace> {
    let token = prop::collection::vec(
        // Low numbers more often than high ones, so that something comes back.
        prop::collection::vec((0..n_expert, 0..n_expert), top_k * 3),
        sizes.len(),
    );
    let prompt = prop::collection::vec(token.clone(), 0..6);
    let decode = prop::collection::vec(token, 1..24);
    (prompt, decode, 1_usize..4).prop_map(move |(prompt, decode, ubatch)| {
        let layers = sizes.iter().enumerate();
        let layers = layers
            .map(|(index, bytes)| RouteLayer { index: index as u32, expert_bytes: *bytes })
            .collect();
        let mut trace = RouteTrace::new("any".into(), String::new(), layers, n_expert.into());
        let chosen = |draws: &[(u16, u16)]| {
            let mut experts: Vec<u16> = Vec::new();
            let drawn = draws.iter().map(|(a, b)| *a.min(b));
            for expert in drawn.chain(0..n_expert) {
                if experts.len() < top_k && !experts.contains(&expert) {
                    experts.push(expert);
                }
            }
            experts
        };
        let mut position = 0;
        for tokens in prompt.chunks(ubatch) {
            let positions: Vec<u32> = (position..).take(tokens.len()).collect();
            position += tokens.len() as u32;
            for layer in 0..sizes.len() {
                let experts: Vec<u16> = tokens.iter().flat_map(|t| chosen(&t[layer])).collect();
                push(&mut trace, Phase::Prefill, layer, &positions, &experts);
            }
        }
        for token in &decode {
            for (layer, draws) in token.iter().enumerate() {
                push(&mut trace, Phase::Decode, layer, &[position], &chosen(draws));
            }
            position += 1;
        }
        trace
    })
}

/// Three layers of twelve experts of 10 bytes, top-3.
fn equal() -> impl Strategy<Value = RouteTrace> {
    trace(vec![10, 10, 10], 12, 3)
}

/// Entry sizes differ from layer to layer.
fn unequal() -> impl Strategy<Value = RouteTrace> {
    prop_oneof![trace(vec![10, 7, 13], 12, 3), trace(vec![3_059_712, 2_654_208], 10, 4)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// An event of the prompt has all of a layer's twelve experts at most.
    #[test]
    fn no_policy_that_must_insert_beats_belady(trace in equal(), budget in 0_u64..500, seed: u64) {
        let accesses = Accesses::new(&trace, Rules::ENGINE);
        let simulator = Simulator::new(&accesses).with_seed(seed);
        let misses = |policy| simulator.run(policy, Budget::Bytes(budget)).unwrap().total().misses;
        let least = misses(SimPolicy::Belady);
        let shares_hold_every_event = budget / 3 >= accesses.largest_event_bytes();
        for kind in PolicyKind::ALL {
            // A share below an event refuses to keep what the whole budget would have room for.
            let per_layer = matches!(kind, PolicyKind::LayerLru | PolicyKind::LayerLfu);
            if !per_layer || shares_hold_every_event {
                prop_assert!(misses(SimPolicy::Online(kind)) >= least, "{kind}");
            }
        }
        prop_assert!(misses(SimPolicy::PinnedLru) >= least);
    }

    #[test]
    fn none_but_unbounded_beats_belady_bypass(
        trace in equal(), budget in 0_u64..500, slots in 0_u32..14, seed: u64,
    ) {
        let accesses = Accesses::new(&trace, Rules::ENGINE);
        let simulator = Simulator::new(&accesses).with_seed(seed);
        for budget in [Budget::Bytes(budget), Budget::SlotsPerLayer(slots)] {
            let misses = |policy| simulator.run(policy, budget).unwrap().total().misses;
            let least = misses(SimPolicy::BeladyBypass);
            for policy in SimPolicy::ALL {
                if policy != SimPolicy::Unbounded {
                    prop_assert!(misses(policy) >= least, "{policy}, {budget:?}");
                }
            }
            prop_assert!(misses(SimPolicy::Unbounded) <= least);
        }
    }

    #[test]
    fn the_curve_is_lru_at_every_budget(trace in unequal(), share in 0.0..1.1_f64) {
        let accesses = Accesses::new(&trace, Rules::ENGINE);
        let curve = LruCurve::new(&accesses).unwrap();
        let simulator = Simulator::new(&accesses);
        let any = (trace.bank_bytes() as f64 * share) as u64;
        let steps = curve.steps().iter().step_by(7).map(|step| step.budget_bytes);
        for budget in steps.flat_map(|at| [at.saturating_sub(1), at]).chain([any]) {
            let lru = simulator.run(SimPolicy::Online(PolicyKind::Lru), Budget::Bytes(budget)).unwrap();
            let step = curve.at(budget);
            for (got, want) in [(step.prefill, lru.prefill), (step.decode, lru.decode)] {
                prop_assert_eq!(
                    (got.hits, got.misses, got.read_bytes),
                    (want.hits, want.misses, want.read_bytes),
                    "{} bytes", budget
                );
            }
        }
    }

    /// The published rule for large events is the engine's where no event is larger than the budget.
    #[test]
    fn both_rules_agree_from_one_event_on(trace in unequal(), more in 0_u64..40) {
        let engine = Accesses::new(&trace, Rules::ENGINE);
        let published = Accesses::new(&trace, Rules::PUBLISHED_BYTES);
        let budget = engine.largest_event_bytes() + more;
        let all = Budget::Bytes(budget * 3);
        let (ours, theirs) = (Simulator::new(&engine), Simulator::new(&published));
        for policy in SimPolicy::ALL {
            prop_assert_eq!(ours.run(policy, all), theirs.run(policy, all));
        }
        let one = Budget::Bytes(budget);
        for policy in [SimPolicy::Belady, SimPolicy::Online(PolicyKind::Lru)] {
            prop_assert_eq!(ours.run(policy, one), theirs.run(policy, one));
        }
    }

    #[test]
    fn a_budget_of_the_whole_bank_leaves_only_first_uses(trace in unequal()) {
        let accesses = Accesses::new(&trace, Rules::ENGINE);
        let simulator = Simulator::new(&accesses);
        // Shares are equal, layers are not.
        let largest = trace.layers.iter().map(|l| l.expert_bytes).max().unwrap();
        let whole = largest * u64::from(trace.n_expert) * trace.layers.len() as u64;
        let first_uses = simulator.run(SimPolicy::Unbounded, Budget::Bytes(0)).unwrap();
        for policy in SimPolicy::ALL {
            for budget in [Budget::Bytes(whole), Budget::SlotsPerLayer(trace.n_expert)] {
                let simulated = simulator.run(policy, budget).unwrap();
                prop_assert_eq!(simulated.total(), first_uses.total(), "{}", policy);
            }
        }
    }

    /// At k slots a layer holds the last token's experts and nothing else.
    #[test]
    fn at_k_slots_lru_is_reuse_by_the_next_token(trace in unequal()) {
        let rules = Rules { decode_only: true, ..Rules::ENGINE };
        let accesses = Accesses::new(&trace, rules);
        let k = accesses.decode_event_experts() as u32;
        let simulator = Simulator::new(&accesses);
        let slots = Budget::SlotsPerLayer(k);
        let lru = simulator.run(SimPolicy::Online(PolicyKind::Lru), slots).unwrap();
        let mut reused = 0;
        let mut last: Vec<Vec<u16>> = vec![Vec::new(); trace.layers.len()];
        for event in accesses.events() {
            let before = std::mem::replace(&mut last[event.layer], event.experts.to_vec());
            reused += event.experts.iter().filter(|e| before.contains(e)).count() as u64;
        }
        prop_assert_eq!(lru.decode.hits, reused);
    }

    /// All cores give what one gives, in the order of the jobs.
    #[test]
    fn jobs_come_back_in_their_order(trace in unequal()) {
        let accesses = Accesses::new(&trace, Rules::ENGINE);
        let simulator = Simulator::new(&accesses);
        let jobs: Vec<Job> = SimPolicy::ALL
            .into_iter()
            .flat_map(|policy| [20, 90].map(|bytes| Job { policy, budget: Budget::Bytes(bytes) }))
            .collect();
        let mut done = 0;
        let results = run_all(&simulator, &jobs, |events| done = events).unwrap();
        prop_assert_eq!(done, (accesses.len() * jobs.len()) as u64);
        for (job, result) in jobs.iter().zip(results) {
            prop_assert_eq!(&simulator.run(job.policy, job.budget).unwrap(), &result);
        }
    }
}

#[test]
fn what_cannot_be_replayed_is_named() {
    let layers = vec![RouteLayer { index: 0, expert_bytes: 0 }];
    let mut trace = RouteTrace::new("t".into(), String::new(), layers, 4);
    let check = |trace: &RouteTrace, rules, budget| {
        let accesses = Accesses::new(trace, rules);
        Simulator::new(&accesses).check(budget).map_err(|e| e.to_string())
    };
    push(&mut trace, Phase::Prefill, 0, &[0], &[1, 2]);
    let decode_only = Rules { decode_only: true, ..Rules::ENGINE };
    assert_eq!(
        check(&trace, decode_only, Budget::SlotsPerLayer(2)).unwrap_err(),
        "the trace holds no routes to replay (only decode was asked for)"
    );
    let error = check(&trace, Rules::ENGINE, Budget::Bytes(2)).unwrap_err();
    assert!(error.contains("--expert-mib") && error.contains("--slots-per-layer"), "{error}");
    assert_eq!(check(&trace, Rules::ENGINE, Budget::SlotsPerLayer(2)), Ok(()));
    assert!(LruCurve::new(&Accesses::new(&trace, Rules::ENGINE)).is_err());
}
