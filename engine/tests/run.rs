//! What a run records: loading, memory, agreement with the cache.

mod common;

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use bmoe_cache::{Cache, EntrySizes, PolicyKind};
use bmoe_engine::generate;
use bmoe_engine::run::RunOptions;
use bmoe_trace::config::DenseWeights;
use bmoe_trace::record::{Outcome, Phase, Record, Residency};
use bmoe_trace::{CacheBudget, Mode, RunConfig};

#[test]
fn loading_for_streaming_reads_no_expert_byte() {
    // The kernel counts the bytes of the whole process: no other test may read at the same time.
    let _place = common::place(2);
    let folder = common::folder();
    for split in [None, Some(2)] {
        let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", split);
        let (_, streamed) = common::run(&common::config(&model, Mode::Stream)).unwrap();
        for dense_weights in [DenseWeights::Mmap, DenseWeights::Warm] {
            let config = RunConfig { dense_weights, ..common::config(&model, Mode::Stream) };
            let (_, mapped) = common::run(&config).unwrap();
            let load = mapped.load();
            assert_eq!(load.expert_read_bytes, 0, "{dense_weights}");
            let dense_bytes = streamed.load().dense_read_bytes;
            match dense_weights {
                DenseWeights::Mmap => assert_eq!(load.dense_read_bytes, 0),
                _ => assert!(load.dense_read_bytes.abs_diff(dense_bytes) < dense_bytes / 4),
            }
        }
        let (_, resident) = common::run(&common::config(&model, Mode::Resident)).unwrap();
        let Record::Start(start) = &streamed.0[0] else { panic!("the first record is the start") };
        assert_eq!(streamed.load().expert_read_bytes, 0);
        assert!(streamed.load().dense_read_bytes >= start.model.dense_bytes);
        // The same measurement does see experts when they are read.
        let experts = start.model.expert_set_bytes();
        let seen = resident.load().expert_read_bytes;
        assert!(seen.abs_diff(experts) < experts / 10, "{seen} of {experts}");
    }
}

/// Replaying the recorded events through the cache gives the engine's hits, misses and bytes.
#[test]
fn measured_equals_replayed() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("gemma4"), "m", None);
    let lru = [(0, 512), (1, 512), (1, 16), (2, 32), (64, 512)].map(|run| (PolicyKind::Lru, run));
    let all = PolicyKind::ALL.into_iter().flat_map(|kind| [(kind, (1, 512)), (kind, (2, 32))]);
    for (policy, (cache_mib, ubatch_tokens)) in lru.into_iter().chain(all) {
        let config = RunConfig {
            cache_policy: policy.to_string(),
            cache_mib: CacheBudget::Mib(cache_mib),
            ubatch_tokens,
            prompt: common::prompt(70),
            ..common::config(&model, Mode::Stream)
        };
        let (end, records) = common::run(&config).unwrap();
        let Record::Start(start) = &records.0[0] else { panic!("the first record is the start") };
        let bytes: Vec<u64> = start.model.layers.iter().map(|l| l.expert_bytes).collect();
        let sizes = EntrySizes::new(&bytes, start.model.n_expert);
        let budget = records.load().cache_budget_bytes;
        let mut cache = Cache::new(sizes.clone(), budget, policy.build(&sizes, 0));
        let mut decode = (0, 0, 0);
        for route in records.routes() {
            let layer = start.model.layers.iter().position(|l| l.layer == route.layer).unwrap();
            let event = cache.event(layer, &route.experts);
            let found: Vec<u16> = event.hits.iter().chain(&event.misses).copied().collect();
            assert_eq!(route.distinct, found);
            let hits = route.residency.iter().filter(|r| **r == Residency::Hit).count();
            assert_eq!(hits, event.hits.len());
            let read = event.misses.len() as u64 * bytes[layer];
            assert_eq!(route.read_bytes.iter().sum::<u64>(), read);
            if route.phase == Phase::Decode {
                decode.0 += hits as u64;
                decode.1 += event.misses.len() as u64;
                decode.2 += read;
            }
            assert_eq!(route.experts.len(), route.positions.len() * route.top_k as usize);
            let weights = route.weights.chunks(route.top_k as usize);
            assert!(weights.flatten().all(|w| (0.0..=4.0).contains(w)), "{:?}", route.weights);
        }
        let measured = records.tokens().iter().fold((0, 0, 0), |sum, t| {
            (sum.0 + t.cost.hits, sum.1 + t.cost.misses, sum.2 + t.cost.expert_read_bytes)
        });
        assert_eq!(measured, decode, "{policy}, {cache_mib} MiB");
        let last = records.tokens()[31].cumulative_hit_rate;
        assert!((last - cache.counts().hit_rate().unwrap()).abs() < 1e-12);
        assert!(end.peak_cache_bytes <= budget);
    }
}

#[test]
fn positions_micro_batches_and_times_add_up() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen2moe"), "m", None);
    let config = RunConfig {
        ubatch_tokens: 16,
        prompt: common::prompt(40),
        hash_logits: false,
        n_predict: 5,
        ..common::config(&model, Mode::Stream)
    };
    let (end, records) = common::run(&config).unwrap();
    assert_eq!((end.tokens, end.outcome), (5, Outcome::Complete));
    let first: Vec<_> = records.routes().into_iter().filter(|r| r.layer == 0).collect();
    let positions: Vec<u32> = first.iter().flat_map(|r| r.positions.clone()).collect();
    assert_eq!(positions, (0..45).collect::<Vec<u32>>());
    let ubatches: Vec<u32> = first.iter().map(|r| r.ubatch).collect();
    assert_eq!(ubatches, (0..8).collect::<Vec<u32>>());
    // The last layer computes only the prompt's last token.
    let last_layer = records.routes().iter().map(|r| r.layer).max().unwrap();
    let last: Vec<_> = records.routes().into_iter().filter(|r| r.layer == last_layer).collect();
    assert_eq!(last[0].positions, [39]);
    assert_eq!(last[0].ubatch, 2);
    for token in records.tokens() {
        let cost = &token.cost;
        let parts = cost.io_wait_ns + cost.compute_ns + cost.mgmt_ns + cost.other_ns;
        assert_eq!(parts, cost.wall_ns);
        assert!(cost.expert_read_bytes > 0 && cost.device_read_bytes >= cost.expert_read_bytes);
    }
    assert!(records.prefill().time_to_first_token_ns >= records.load().load_ns);
}

#[test]
fn weights_that_are_not_numbers_are_an_error() {
    let _place = common::place(1);
    let folder = common::folder();
    let shape = common::tiny("qwen3moe").with_type(bmoe_synth::WeightType::F16).unwrap();
    let model = common::model(folder.path(), &shape, "m", None);
    // 0xFFFF is a NaN; the experts are by far the largest part of the file.
    let file = std::fs::File::options().write(true).open(&model).unwrap();
    let bytes = file.metadata().unwrap().len();
    file.write_all_at(&vec![0xFF; (bytes / 2) as usize], bytes / 4).unwrap();
    let error = generate(&common::config(&model, Mode::Stream), &RunOptions::default(), &mut [])
        .unwrap_err();
    assert!(error.to_string().contains("not numbers"), "{error}");
}

#[test]
fn a_signal_while_loading_is_an_interruption() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let options = RunOptions { stop: Arc::new(AtomicUsize::new(15)), ..RunOptions::default() };
    let mut records = common::Records::default();
    let config = common::config(&model, Mode::Resident);
    let error = generate(&config, &options, &mut [&mut records]).unwrap_err();
    assert_eq!(error.exit_code(), 143);
    let Some(Record::End(end)) = records.0.last() else { panic!("no last record") };
    assert_eq!(end.outcome, Outcome::Interrupted { signal: "SIGTERM".into() });
}
