//! Every architecture that the writer knows streams to the last bit of every logit.
//!
//! A tiny model of each, in its own mix of types, in Q8_0 and in F16: cache off, one token's working set, and
//! whole; a prompt of 20 tokens and 32 greedy tokens. The mix also with prompts of 1 token and of 200 in
//! several micro-batches, and for one architecture with 2 threads. What the registry says of an
//! architecture is compared with its files and with llama.cpp. `lossless.rs` has the weight types, the
//! threads and the kinds of reads.

mod common;

use std::path::{Path, PathBuf};

use bmoe_engine::arch::{self, Feature, Verified};
use bmoe_engine::llama::gguf::ModelInfo;
use bmoe_engine::llama::log;
use bmoe_engine::llama::model::Model;
use bmoe_synth::{Arch, Shape, WeightType};
use bmoe_trace::config::DenseWeights;
use bmoe_trace::{CacheBudget, Mode, RunConfig};

/// Budgets to stream with, in MiB: none, one token's experts of all layers, everything.
fn budgets_mib(info: &ModelInfo) -> [u64; 3] {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let token: u64 = info.experts.layers.iter().map(|l| l.expert_bytes()).sum();
    let (token, whole) =
        (mib(token * u64::from(info.n_expert_used)), mib(info.experts.total_bytes()));
    assert!(token < whole, "the small cache must not hold everything");
    [0, token, whole]
}

/// Streams a model with each budget and compares with the resident run.
fn gate(name: &str, model: &Path, base: &RunConfig) {
    let info = ModelInfo::read(model).unwrap();
    let _place = common::place(base.threads);
    let (resident, records) = common::run(base).unwrap_or_else(|e| panic!("{name}: resident: {e}"));
    assert_eq!(resident.tokens, 32, "{name}: the text ends early");
    let vocab = resident.text.split_whitespace().collect::<std::collections::HashSet<_>>();
    assert!(vocab.len() > 16, "{name}: the text says {vocab:?} only");
    let routed: std::collections::HashSet<(u32, u16)> = records
        .routes()
        .iter()
        .flat_map(|r| r.experts.iter().map(|&expert| (r.layer, expert)))
        .collect();
    let least = info.experts.layers.len() * info.n_expert_used as usize * 2;
    assert!(routed.len() >= least, "{name}: routes to {} experts only", routed.len());
    for cache_mib in budgets_mib(&info) {
        let config = RunConfig {
            mode: Mode::Stream,
            cache_mib: CacheBudget::Mib(cache_mib),
            io_threads: 2,
            ..base.clone()
        };
        let gate = format!(
            "{name}, {} threads, prompt {} tokens, cache {cache_mib} MiB",
            base.threads,
            records.prefill().prompt_tokens
        );
        let (streamed, streamed_records) =
            common::run(&config).unwrap_or_else(|e| panic!("{gate}: {e}"));
        assert_eq!(streamed.logits_sha256, resident.logits_sha256, "{gate}");
        assert_eq!(streamed.text, resident.text, "{gate}");
        // Experts of every token and layer, as the resident run saw them.
        let (a, b) = (records.routes(), streamed_records.routes());
        assert_eq!(a.len(), b.len(), "{gate}");
        for (a, b) in a.iter().zip(b) {
            assert_eq!((&a.experts, &a.positions), (&b.experts, &b.positions), "{gate}");
            assert!(b.weights.iter().all(|w| w.is_finite()), "{gate}: {:?}", b.weights);
        }
    }
}

/// The registry's row against the shape, the file and llama.cpp.
fn check_row(arch: Arch, shape: &Shape, model: &Path) {
    let name = arch.name();
    let row = arch::find(name).unwrap_or_else(|| panic!("{name} has no row in the registry"));
    assert_eq!(row.verified, Verified::Gates, "{name}");
    let d = &shape.dims;
    let shown = [
        (Feature::LeadingDense, d.leading_dense > 0),
        (Feature::InterleavedDense, d.moe_step > 1),
        (Feature::GroupedRouting, d.expert_groups > 0),
        (Feature::PredictionLayers, d.prediction_layers > 0),
    ];
    for (feature, there) in shown {
        assert!(!there || row.has(feature), "{name}: {feature:?} is missing in the registry");
    }
    let info = ModelInfo::read(model).unwrap();
    assert_eq!(info.arch, name);
    assert_eq!(info.n_layer, d.layers, "{name}");
    let moe_layers = (0..d.layers).filter(|&l| l >= d.leading_dense);
    let moe_layers = moe_layers.filter(|&l| (l + 1).is_multiple_of(d.moe_step.max(1)));
    assert!(info.experts.layers.iter().map(|l| l.layer).eq(moe_layers), "{name}");
    log::start(false);
    let model = Model::load(&info, Mode::Mmap, DenseWeights::Anon, 0, &|| false).unwrap();
    assert_eq!(model.has_recurrent_state(), row.has(Feature::RecurrentState), "{name}");
}

fn gates(arch: Arch) {
    let folder = common::folder();
    let name = arch.name();
    let mix = common::tiny(name);
    let file = common::model(folder.path(), &mix, "mix", None);
    check_row(arch, &mix, &file);
    let run = |model: &Path, tokens: usize| RunConfig {
        prompt: common::prompt(tokens),
        ..common::config(model, Mode::Resident)
    };
    for tokens in [1, 20] {
        gate(&format!("{name}-mix"), &file, &run(&file, tokens));
    }
    let micro_batches = RunConfig { ubatch_tokens: 96, ..run(&file, 200) };
    gate(&format!("{name}-mix, micro-batches"), &file, &micro_batches);
    if TWO_THREADS.contains(&arch) {
        gate(&format!("{name}-mix"), &file, &RunConfig { threads: 2, ..run(&file, 20) });
    }
    for ty in [WeightType::Q8_0, WeightType::F16] {
        let shape = mix.clone().with_type(ty).unwrap();
        let file = common::model(folder.path(), &shape, ty.name(), None);
        gate(&format!("{name}-{ty}"), &file, &run(&file, 20));
    }
}

/// Which also run with 2 threads: the graph that is least like those in `lossless.rs`. One is enough, as ggml's
/// barriers spin and take minutes on a busy machine.
const TWO_THREADS: [Arch; 1] = [Arch::Llama4];

macro_rules! architectures {
    ($($test:ident: $arch:ident,)*) => {
        $(#[test]
        fn $test() {
            gates(Arch::$arch);
        })*

        #[test]
        fn every_architecture_of_the_writer_has_a_test() {
            assert_eq!(Arch::ALL, [$(Arch::$arch),*]);
        }
    };
}

architectures! {
    qwen3moe: Qwen3Moe,
    qwen2moe: Qwen2Moe,
    gemma4: Gemma4,
    gpt_oss: GptOss,
    olmoe: Olmoe,
    granitemoe: GraniteMoe,
    ernie4_5_moe: Ernie45Moe,
    glm4moe: Glm4Moe,
    bailingmoe2: BailingMoe2,
    llama4: Llama4,
    deepseek2: DeepSeek2,
    qwen3next: Qwen3Next,
    qwen35moe: Qwen35Moe,
    lfm2moe: Lfm2Moe,
    bailingmoe3: BailingMoe3,
    deepseek4: DeepSeek4,
    llama: Llama,
    qwen3vlmoe: Qwen3VlMoe,
    minimax_m2: MiniMaxM2,
    dots1: Dots1,
    hunyuan_moe: HunyuanMoe,
    bailingmoe: BailingMoe,
    deepseek: DeepSeek,
    smallthinker: SmallThinker,
    exaone_moe: ExaoneMoe,
    cohere2moe: Cohere2Moe,
    mimo2: Mimo2,
    dbrx: Dbrx,
    mistral4: Mistral4,
    phimoe: PhiMoe,
    granitehybrid: GraniteHybrid,
    nemotron_h_moe: NemotronHMoe,
    kimi_linear: KimiLinear,
    deepseek32: DeepSeek32,
    glm_dsa: GlmDsa,
    step35: Step35,
    hy_v3: HyV3,
    afmoe: Afmoe,
    laguna: Laguna,
    mellum: Mellum,
    maple: Maple,
    jamba: Jamba,
    mistral3: Mistral3,
    deepseek2_ocr: DeepSeek2Ocr,
    arctic: Arctic,
    grovemoe: GroveMoe,
    grok: Grok,
    granite_swa: GraniteSwa,
    dots3note: Dots3Note,
    hy_v4: HyV4,
    minimax_m3: MiniMaxM3,
    minimax_01: MiniMax01,
    kimi_k3: KimiK3,
    glm5_next: Glm5Next,
    qwen4exp: Qwen4Exp,
    minicpm: MiniCpm,
}

#[test]
fn the_list_of_architectures_is_what_people_read() {
    insta::assert_snapshot!(arch::table());
}

/// The same model under another architecture's name, which llama.cpp knows and the registry does not.
fn renamed(model: &Path, from: &str, to: &str) -> PathBuf {
    let bytes = std::fs::read(model).unwrap();
    let data_start = ModelInfo::read(model).unwrap().header_bytes as usize;
    // The header ends with the last tensor's dimensions, type and offset; padding follows.
    let last = b"output.weight";
    let at = bytes[..data_start].windows(last.len()).rposition(|w| w == last).unwrap();
    let head = &bytes[..at + last.len() + 4 + 2 * 8 + 4 + 8];
    let (mut out, mut i) = (Vec::new(), 0);
    while i < head.len() {
        // Strings have their length in front.
        let text = head.get(i + 8..i + 8 + from.len());
        let length = head.get(i..i + 8).map(|l| u64::from_le_bytes(l.try_into().unwrap()));
        match (text, length) {
            (Some(text), Some(length))
                if text == from.as_bytes() && (from.len() as u64..200).contains(&length) =>
            {
                out.extend((length - from.len() as u64 + to.len() as u64).to_le_bytes());
                out.extend(to.as_bytes());
                i += 8 + from.len();
            }
            _ => {
                out.push(head[i]);
                i += 1;
            }
        }
    }
    out.resize(out.len().next_multiple_of(32), 0);
    out.extend(&bytes[data_start..]);
    let path = model.with_file_name(format!("{to}.gguf"));
    std::fs::write(&path, out).unwrap();
    path
}

#[test]
fn an_architecture_without_a_row_streams_after_a_warning() {
    let folder = common::folder();
    let known = common::model(folder.path(), &common::tiny("granitemoe"), "known", None);
    let unknown = renamed(&known, "granitemoe", "granite");
    assert_eq!(ModelInfo::read(&unknown).unwrap().arch, "granite");
    assert!(arch::find("granite").is_none());
    gate("granite", &unknown, &common::config(&unknown, Mode::Resident));
    for (model, warned) in [(&known, false), (&unknown, true)] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_bmoe-engine"))
            .args(["generate", "-p", "abc", "-n", "2", "-t", "1", "--ctx", "64", "-m"])
            .arg(model)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        let expected = "warning: architecture \"granite\" has no row in the registry";
        assert_eq!(stderr.contains(expected), warned, "{stderr}");
    }
}

/// What is tested is what has a tiny model.
#[test]
fn the_registry_claims_no_test_that_does_not_exist() {
    for row in arch::ALL.iter().filter(|a| a.verified == Verified::Gates) {
        assert!(Arch::ALL.iter().any(|a| a.name() == row.name), "{} has no test", row.name);
    }
}
