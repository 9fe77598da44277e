//! Dense weights compute the same wherever they are.

mod common;

use bmoe_engine::llama::gguf::ModelInfo;
use bmoe_engine::llama::model::Model;
use bmoe_synth::Shape;
use bmoe_trace::config::DenseWeights;
use bmoe_trace::{CacheBudget, Mode, RunConfig};

/// Every architecture, since each keeps other weights beside its experts; single and split files.
#[test]
fn mapped_dense_weights_are_lossless() {
    let _place = common::place(1);
    let folder = common::folder();
    let mut gates = 0;
    for shape in bmoe_synth::builtin_names().filter(|name| name.starts_with("tiny-")) {
        for split in [None, Some(2)] {
            let shape = Shape::builtin(shape).unwrap();
            let model = common::model(folder.path(), &shape, "m", split);
            let base = RunConfig {
                prompt: common::prompt(20),
                n_predict: 16,
                ..common::config(&model, Mode::Resident)
            };
            let (resident, _) = common::run(&base).unwrap();
            for dense_weights in DenseWeights::ALL.iter().copied() {
                let config = RunConfig {
                    mode: Mode::Stream,
                    dense_weights,
                    cache_mib: CacheBudget::Mib(64),
                    ..base.clone()
                };
                let (streamed, _) = common::run(&config).unwrap();
                assert_eq!(
                    streamed.logits_sha256,
                    resident.logits_sha256,
                    "{dense_weights}, {}",
                    model.display()
                );
                gates += 1;
            }
        }
    }
    assert!(gates >= 4 * 2 * 3, "{gates}");
}

#[test]
fn how_much_of_a_map_is_in_memory_is_told() {
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let info = ModelInfo::read(&model).unwrap();
    let load = |dense| Model::load(&info, Mode::Stream, dense, 0, &|| false).unwrap();
    assert_eq!(load(DenseWeights::Warm).dense_resident(), Some(1.0));
    assert!(load(DenseWeights::Mmap).dense_resident().is_some());
    assert_eq!(load(DenseWeights::Anon).dense_resident(), None);
}
