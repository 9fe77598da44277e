//! Streaming computes what the resident model computes, to the last bit of every logit.
//!
//! For every architecture and weight type: cache off, small enough to evict all the time, and whole; 1
//! and 2 threads; prompts of 1, 7, 20 and 200 tokens and 32 greedy tokens; single and split files;
//! O_DIRECT and buffered reads; with and without overlap. 200 tokens give experts more than 8 rows (ggml's tiled kernels) and
//! layers more distinct experts than the small cache and the event room hold (computed in pieces).
//! Freed memory is poisoned.

mod common;

use bmoe_engine::llama::gguf::ModelInfo;
use bmoe_synth::{Shape, WeightType};
use bmoe_trace::config::IoEngine;
use bmoe_trace::record::{DirectIo, IoEngineUsed};
use bmoe_trace::{CacheBudget, Mode, RunConfig};

/// Bytes to whole MiB, upwards.
fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

fn gates(name: &str, shape: &Shape) {
    let folder = common::folder();
    let single = common::model(folder.path(), shape, name, None);
    let split = common::model(folder.path(), shape, &format!("{name}-split"), Some(2));
    let info = ModelInfo::read(&single).unwrap();
    let small = mib(info.experts.top_k_bytes(info.n_expert_used));
    let whole = mib(info.experts.total_bytes());
    assert!(small < whole, "the small cache must not hold everything");

    let mut gates = 0;
    for threads in [1, 2] {
        let _place = common::place(threads);
        for prompt_tokens in [1, 7, 20, 200] {
            let base = RunConfig {
                threads,
                prompt: common::prompt(prompt_tokens),
                ..common::config(&single, Mode::Resident)
            };
            let (resident, records) = common::run(&base).unwrap();
            assert_eq!(records.prefill().prompt_tokens as usize, prompt_tokens);
            assert_eq!(resident.tokens, 32, "{name}: the text ends early");
            for (model, odirect, overlap) in [
                (&single, true, true),
                (&single, true, false),
                (&single, false, true),
                (&split, true, true),
                (&split, false, false),
            ] {
                for cache_mib in [0, small, whole] {
                    let config = RunConfig {
                        model: model.clone(),
                        mode: Mode::Stream,
                        cache_mib: CacheBudget::Mib(cache_mib),
                        odirect,
                        overlap,
                        io_threads: 2,
                        ..base.clone()
                    };
                    let (streamed, records) = common::run(&config).unwrap();
                    let gate = format!(
                        "{name}, {threads} threads, prompt {prompt_tokens}, cache {cache_mib} MiB, \
                         O_DIRECT {odirect}, overlap {overlap}, {}",
                        model.display()
                    );
                    assert_eq!(streamed.logits_sha256, resident.logits_sha256, "{gate}");
                    assert_eq!(streamed.text, resident.text, "{gate}");
                    let load = records.load();
                    assert!(streamed.peak_cache_bytes <= load.cache_budget_bytes, "{gate}");
                    assert!(streamed.peak_event_bytes <= load.event_room_bytes, "{gate}");
                    if !odirect {
                        assert_eq!(load.direct_io, DirectIo::Off, "{gate}");
                    }
                    gates += 1;
                }
            }
        }
    }
    assert_eq!(gates, 2 * 4 * 5 * 3);
}

fn all_types(arch: &str) {
    for weight_type in WeightType::ALL {
        let shape = common::tiny(arch).with_type(weight_type).unwrap();
        gates(&format!("{arch}-{weight_type}"), &shape);
    }
    gates(&format!("{arch}-mix"), &common::tiny(arch));
}

#[test]
fn qwen3moe_split_projections() {
    all_types("qwen3moe");
}

#[test]
fn qwen2moe_with_a_shared_expert() {
    all_types("qwen2moe");
}

#[test]
fn gemma4_fused_projections_beside_a_dense_part() {
    all_types("gemma4");
}

#[test]
fn gpt_oss_with_biases() {
    all_types("gpt-oss");
}

/// Prompts longer than a micro-batch, with an odd rest.
#[test]
fn several_micro_batches() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let base = RunConfig {
        ubatch_tokens: 48,
        prompt: common::prompt(200),
        ..common::config(&model, Mode::Resident)
    };
    let (resident, _) = common::run(&base).unwrap();
    for cache_mib in [0, 2, 64] {
        let config = RunConfig {
            mode: Mode::Stream,
            cache_mib: CacheBudget::Mib(cache_mib),
            ..base.clone()
        };
        let (streamed, records) = common::run(&config).unwrap();
        assert_eq!(streamed.logits_sha256, resident.logits_sha256, "{cache_mib} MiB");
        assert_eq!(records.prefill().ubatches, 5);
    }
}

/// Few experts with narrow feed-forward parts: the down projection's input is no larger than the gate's,
/// so ggml's allocator gives both the same address.
#[test]
fn narrow_activations() {
    let _place = common::place(2);
    let folder = common::folder();
    for arch in ["qwen3moe", "qwen2moe", "gemma4", "gpt-oss"] {
        let mut shape = common::tiny(arch).with_type(WeightType::Q8_0).unwrap();
        for (expert_ffn, n_expert_used) in [(256, 1), (128, 2), (64, 3), (64, 4), (32, 4)] {
            shape.dims.expert_ffn = expert_ffn;
            let name = format!("{arch}-{expert_ffn}");
            let model = common::model(folder.path(), &shape, &name, None);
            for (threads, ubatch_tokens, tokens) in [(1, 512, 1), (2, 512, 20), (1, 1, 7)] {
                let base = RunConfig {
                    n_expert_used,
                    threads,
                    ubatch_tokens,
                    prompt: common::prompt(tokens),
                    ..common::config(&model, Mode::Resident)
                };
                let (resident, _) = common::run(&base).unwrap();
                for cache_mib in [0, 64] {
                    let config = RunConfig {
                        mode: Mode::Stream,
                        cache_mib: CacheBudget::Mib(cache_mib),
                        ..base.clone()
                    };
                    let (streamed, _) = common::run(&config).unwrap();
                    assert_eq!(
                        streamed.logits_sha256, resident.logits_sha256,
                        "{name}, top-{n_expert_used}, {threads} threads, {tokens} tokens, {cache_mib} MiB"
                    );
                }
            }
        }
    }
}

/// Reads through io_uring; where there is none, through what stands in for it.
#[test]
fn uring() {
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let experts = ModelInfo::read(&model).unwrap().experts;
    let _place = common::place(1);
    for prompt_tokens in [7, 200] {
        let prompt = common::prompt(prompt_tokens);
        let base = RunConfig { prompt, ..common::config(&model, Mode::Resident) };
        let (resident, _) = common::run(&base).unwrap();
        for (odirect, overlap) in [(true, true), (true, false), (false, true)] {
            for cache_mib in [0, 2, mib(experts.total_bytes())] {
                let config = RunConfig {
                    mode: Mode::Stream,
                    cache_mib: CacheBudget::Mib(cache_mib),
                    odirect,
                    overlap,
                    io_engine: IoEngine::Uring,
                    io_threads: 3,
                    ..base.clone()
                };
                let (streamed, records) = common::run(&config).unwrap();
                let gate = format!(
                    "prompt {prompt_tokens}, {cache_mib} MiB, O_DIRECT {odirect}, \
                     overlap {overlap}"
                );
                assert_eq!(streamed.logits_sha256, resident.logits_sha256, "{gate}");
                match &records.load().io_engine {
                    IoEngineUsed::Uring => {}
                    IoEngineUsed::UringUnavailable { reason } => eprintln!("pread used: {reason}"),
                    other => panic!("{other:?}: {gate}"),
                }
            }
        }
    }
}

/// The stock memory-mapped baseline computes the same, too.
#[test]
fn mmap_equals_resident() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let (resident, _) = common::run(&common::config(&model, Mode::Resident)).unwrap();
    let (mmap, _) = common::run(&common::config(&model, Mode::Mmap)).unwrap();
    assert_eq!(mmap.logits_sha256, resident.logits_sha256);
}
