//! Policies and reading ahead warm the cache in other ways; what is computed stays the same.

mod common;

use bmoe_cache::PolicyKind;
use bmoe_trace::record::{Cost, ReadPurpose, Record, Residency};
use bmoe_trace::{CacheBudget, Mode, RunConfig};

/// A run that has to evict all the time.
fn small_cache(folder: &std::path::Path, arch: &str) -> RunConfig {
    let model = common::model(folder, &common::tiny(arch), arch, None);
    RunConfig {
        cache_mib: CacheBudget::Mib(1),
        prompt: common::prompt(20),
        ..common::config(&model, Mode::Stream)
    }
}

fn resident(config: &RunConfig) -> RunConfig {
    RunConfig { mode: Mode::Resident, ..config.clone() }
}

#[test]
fn every_policy_computes_the_same() {
    let _place = common::place(1);
    let folder = common::folder();
    let plain = small_cache(folder.path(), "qwen2moe");
    let (expected, _) = common::run(&resident(&plain)).unwrap();
    for policy in PolicyKind::ALL {
        for prefetch_layers in [0, 1] {
            let cache_policy = policy.to_string();
            let config = RunConfig { cache_policy, prefetch_layers, ..plain.clone() };
            let (end, records) = common::run(&config).unwrap();
            assert_eq!(end.logits_sha256, expected.logits_sha256, "{policy}");
            assert!(end.peak_cache_bytes <= records.load().cache_budget_bytes, "{policy}");
            assert!(end.peak_event_bytes <= records.load().event_room_bytes, "{policy}");
        }
    }
    let config = RunConfig { cache_policy: "mru".into(), ..plain };
    let error = common::run(&config).unwrap_err().to_string();
    assert!(error.contains("--cache-policy") && error.contains("'mru'") && error.contains("sieve"));
}

/// Prefetched and predicted experts are counted to the last one, whatever the lanes do.
#[test]
fn reading_ahead_warms_the_cache_only() {
    for threads in [1, 2] {
        let _place = common::place(threads);
        let folder = common::folder();
        for arch in ["qwen3moe", "gemma4", "gpt-oss"] {
            let plain = RunConfig { threads, ..small_cache(folder.path(), arch) };
            let (expected, _) = common::run(&resident(&plain)).unwrap();
            for (prefetch_layers, predict_experts, overlap, io_threads) in [
                (1, 0, true, 4),
                (3, 0, true, 1),
                (1, 0, false, 2),
                (0, 2, true, 4),
                (0, 8, false, 1),
                (2, 4, true, 2),
                (99, 99, true, 1),
            ] {
                let config = RunConfig {
                    prefetch_layers,
                    predict_experts,
                    overlap,
                    io_threads,
                    io_trace: true,
                    ..plain.clone()
                };
                let run = format!(
                    "{arch}, {threads} threads, prefetch {prefetch_layers}, predict \
                     {predict_experts}, overlap {overlap}, {io_threads} lanes"
                );
                let (end, records) = common::run(&config).unwrap();
                assert_eq!(end.logits_sha256, expected.logits_sha256, "{run}");
                assert!(end.peak_cache_bytes <= records.load().cache_budget_bytes, "{run}");
                assert!(end.peak_event_bytes <= records.load().event_room_bytes, "{run}");
                check_counts(&run, &config, &records);
            }
        }
    }
}

fn check_counts(run: &str, config: &RunConfig, records: &common::Records) {
    let mut sum = Cost::default();
    for token in records.tokens() {
        sum += &token.cost;
    }
    assert_eq!(records.prefill().cost.speculated, 0, "{run}: the prompt is not guessed");
    assert!(sum.speculated > 0, "{run}");
    assert!(sum.speculated_hits + sum.speculated_wasted <= sum.speculated, "{run}: {sum:?}");
    let found = |wanted| {
        let residency = records.routes().into_iter().flat_map(|r| &r.residency);
        residency.filter(|r| **r == wanted).count() as u64
    };
    assert_eq!(found(Residency::PrefetchHit), sum.speculated_hits, "{run}");
    // The purposes in the read trace: a read that was withdrawn or is still queued is not in it.
    let purpose = |wanted| {
        let read = |r: &&Record| matches!(r, Record::Read(read) if read.purpose == wanted);
        records.0.iter().filter(read).count() as u64
    };
    let early = purpose(ReadPurpose::Prefetch) + purpose(ReadPurpose::Predict);
    assert!(early <= 3 * sum.speculated, "{run}");
    // With both, one may leave nothing to the other.
    let (prefetched, predicted) = (purpose(ReadPurpose::Prefetch), purpose(ReadPurpose::Predict));
    match (config.prefetch_layers, config.predict_experts) {
        (_, 0) => assert!(prefetched > 0 && predicted == 0, "{run}"),
        (0, _) => assert!(prefetched == 0 && predicted > 0, "{run}"),
        _ => assert!(prefetched + predicted > 0, "{run}"),
    }
}

/// What the next layer's router says about this layer's input is far better than chance.
#[test]
fn predictions_are_useful() {
    let _place = common::place(1);
    let folder = common::folder();
    let plain = small_cache(folder.path(), "qwen3moe");
    let config = RunConfig { predict_experts: 2, ..plain };
    let (_, records) = common::run(&config).unwrap();
    let mut sum = Cost::default();
    for token in records.tokens() {
        sum += &token.cost;
    }
    let Record::Start(start) = &records.0[0] else { panic!("the first record is the start") };
    let chance = f64::from(start.model.n_expert_used) / f64::from(start.model.n_expert);
    let useful = sum.speculated_hits as f64 / sum.speculated as f64;
    eprintln!("useful {useful:.2} of {}, chance {chance:.2}", sum.speculated);
    assert!(useful > 1.5 * chance, "{useful:.2} of {}, chance {chance:.2}", sum.speculated);
}
