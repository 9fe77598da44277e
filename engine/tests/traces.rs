//! What is recorded on demand: reads, computation, router scores. None of it changes what is computed, and
//! every record fits the totals.

mod common;

use bmoe_engine::run::{RunOptions, generate};
use bmoe_trace::config::ComputeTrace;
use bmoe_trace::record::{ComputeRecord, Phase, ReadPurpose, ReadRecord, Record};
use bmoe_trace::{CacheBudget, Mode, RunConfig};

fn base(folder: &std::path::Path) -> RunConfig {
    let model = common::model(folder, &common::tiny("qwen3moe"), "m", None);
    RunConfig {
        cache_mib: CacheBudget::Mib(2),
        prompt: common::prompt(20),
        n_predict: 8,
        ..common::config(&model, Mode::Stream)
    }
}

fn reads(records: &common::Records) -> Vec<&ReadRecord> {
    records.0.iter().filter_map(|r| if let Record::Read(r) = r { Some(r) } else { None }).collect()
}

fn computed(records: &common::Records) -> Vec<&ComputeRecord> {
    records
        .0
        .iter()
        .filter_map(|r| if let Record::Compute(r) = r { Some(r) } else { None })
        .collect()
}

#[test]
fn reads_add_up_to_the_totals() {
    let _place = common::place(1);
    let folder = common::folder();
    let plain = base(folder.path());
    let (expected, records) = common::run(&plain).unwrap();
    assert!(reads(&records).is_empty());
    for (overlap, io_threads) in [(true, 1), (true, 3), (false, 3)] {
        let config = RunConfig { io_trace: true, overlap, io_threads, ..plain.clone() };
        let (end, records) = common::run(&config).unwrap();
        assert_eq!(end.logits_sha256, expected.logits_sha256);
        let reads = reads(&records);
        let costs = || {
            let tokens = records.tokens().into_iter().map(|t| &t.cost);
            std::iter::once(&records.prefill().cost).chain(tokens)
        };
        let sum = |f: fn(&ReadRecord) -> u64| reads.iter().map(|r| f(r)).sum::<u64>();
        assert_eq!(sum(|r| r.wanted_bytes), costs().map(|c| c.expert_read_bytes).sum::<u64>());
        assert_eq!(sum(|r| r.read_bytes), costs().map(|c| c.device_read_bytes).sum::<u64>());
        assert_eq!(sum(|r| r.service_ns), costs().map(|c| c.lane_busy_ns).sum::<u64>());
        assert_eq!(reads.len() as u64, costs().map(|c| c.reads).sum::<u64>());
        for read in reads {
            assert!(u32::from(read.lane) < io_threads, "{read:?}");
            assert_eq!(read.purpose, ReadPurpose::Demand);
            assert!(read.read_bytes >= read.wanted_bytes && read.service_ns > 0, "{read:?}");
        }
    }
}

#[test]
fn parts_of_layers_add_up_to_the_computing_time() {
    let _place = common::place(1);
    let folder = common::folder();
    let plain = base(folder.path());
    let (expected, _) = common::run(&plain).unwrap();
    let config = RunConfig { compute_trace: ComputeTrace::Layers, ..plain };
    let (end, records) = common::run(&config).unwrap();
    assert_eq!(end.logits_sha256, expected.logits_sha256);
    let tokens = records.tokens();
    // The prompt is micro-batch 0, each token one more.
    for (ubatch, token) in (1..).zip(&tokens) {
        let parts: Vec<_> = computed(&records).into_iter().filter(|c| c.ubatch == ubatch).collect();
        let sum =
            |part: &str| -> u64 { parts.iter().filter(|c| c.part == part).map(|c| c.ns).sum() };
        assert_eq!(sum("dense") + sum("experts"), token.cost.compute_ns, "micro-batch {ubatch}");
        assert!(sum("stall") <= token.cost.io_wait_ns);
        assert!(sum("fetch") > 0 && sum("experts") > 0);
    }
}

#[test]
fn every_node_is_named_and_timed() {
    let _place = common::place(1);
    let folder = common::folder();
    let plain = base(folder.path());
    let (expected, _) = common::run(&plain).unwrap();
    let config = RunConfig { compute_trace: ComputeTrace::Nodes, ..plain };
    let (end, records) = common::run(&config).unwrap();
    assert_eq!(end.logits_sha256, expected.logits_sha256);
    let layers = records.routes().iter().map(|r| r.layer).max().unwrap() + 1;
    for ubatch in 0..=8 {
        let of = |part: &str| {
            computed(&records).iter().filter(|c| c.ubatch == ubatch && c.part == part).count()
        };
        assert_eq!(of("fetch"), layers as usize);
        assert_eq!(of("experts"), 3 * layers as usize);
        assert!(of("MUL_MAT") >= 4 * layers as usize);
    }
}

#[test]
fn scores_name_the_chosen_experts_first() {
    let _place = common::place(1);
    let folder = common::folder();
    let config = RunConfig { trace_scores: 12, ..base(folder.path()) };
    let mut records = common::Records::default();
    generate(&config, &RunOptions::default(), &mut [&mut records]).unwrap();
    let routes = records.routes();
    assert!(routes.iter().any(|r| r.phase == Phase::Prefill && r.positions.len() == 20));
    for route in routes {
        let (k, tokens) = (route.top_k as usize, route.positions.len());
        assert_eq!((route.scored.len(), route.scores.len()), (12 * tokens, 12 * tokens));
        for token in 0..tokens {
            let scored = &route.scored[12 * token..12 * (token + 1)];
            assert_eq!(scored[..k], route.experts[k * token..k * (token + 1)]);
            let scores = &route.scores[12 * token..12 * (token + 1)];
            assert!(scores.is_sorted_by(|a, b| a >= b) && scores[0] <= 1.0, "{scores:?}");
            // The model's weights are the scores of the chosen ones, normalised.
            let sum: f32 = scores[..k].iter().sum();
            let weights = &route.weights[k * token..k * (token + 1)];
            for (weight, score) in weights.iter().zip(scores) {
                assert!((weight - score / sum).abs() < 1e-5, "{weight}");
            }
        }
    }
}
