//! Generated models route like a real one, so that cache figures measured on them mean something.
//!
//! The figures to compare with are those of a published trace of Qwen3-30B-A3B: top-6, 28 prompt tokens as
//! one batch, 128 decoded tokens. Overlap with the previous token 38 %, with the 8th previous 27 %; decode
//! hit rate of an event-atomic LRU cache of 33, 22 and 11 % of the experts: 90, 77 and 54 %.

use std::collections::{BTreeMap, HashSet};

use bmoe_cache::{Cache, EntrySizes, Lru};
use bmoe_engine::run::RecordSink;
use bmoe_engine::{EngineError, RunOptions, generate};
use bmoe_synth::{Shape, WeightType, WriteOptions, write_model};
use bmoe_trace::record::{Phase, RouteRecord};
use bmoe_trace::{Mode, Record, RunConfig};

const TOP_K: u32 = 6;
const DECODED: usize = 128;
/// 28 tokens.
const PROMPT: &str = "Tell me how a cache of experts works";

/// Qwen3-30B-A3B with 12 layers and the same experts; what routing does not depend on is narrow.
fn shape() -> Shape {
    let mut shape = Shape::builtin("qwen3-30b-a3b").unwrap().with_layers(12).unwrap();
    shape.name = "qwen3-narrow".to_owned();
    shape.dims.expert_ffn = 32;
    shape.dims.hidden = 1024;
    shape.dims.heads = 8;
    shape.types.expert_down = WeightType::Q4_0.into();
    shape.tokenizer.vocab = 8192;
    shape
}

/// Keeps route records.
#[derive(Default)]
struct Routes(Vec<RouteRecord>);

impl RecordSink for Routes {
    fn record(&mut self, record: &Record) -> Result<(), EngineError> {
        if let Record::Route(route) = record {
            self.0.push(RouteRecord::clone(route));
        }
        Ok(())
    }

    fn wants_routes(&self) -> bool {
        true
    }
}

/// Decode records only, up to the 128th token: by layer, one set of experts a token.
fn decoded(routes: &[RouteRecord]) -> BTreeMap<u32, Vec<HashSet<u16>>> {
    let mut layers: BTreeMap<u32, Vec<HashSet<u16>>> = BTreeMap::new();
    for r in routes.iter().filter(|r| r.phase == Phase::Decode) {
        let tokens = layers.entry(r.layer).or_default();
        if tokens.len() < DECODED {
            tokens.push(r.experts.iter().copied().collect());
        }
    }
    layers
}

/// Mean share of a token's experts that the token `lag` earlier used in the same layer.
fn overlap(layers: &BTreeMap<u32, Vec<HashSet<u16>>>, lag: usize) -> f64 {
    let shares: Vec<f64> = layers
        .values()
        .flat_map(|tokens| tokens.windows(lag + 1))
        .map(|w| w[0].intersection(&w[lag]).count() as f64 / w[lag].len() as f64)
        .collect();
    shares.iter().sum::<f64>() / shares.len() as f64
}

/// Hit rate over the decoded tokens of an LRU cache of `share` of all expert bytes, prefill replayed first.
fn hit_rate(routes: &[RouteRecord], sizes: &EntrySizes, share: f64) -> f64 {
    let budget = (sizes.total_bytes() as f64 * share) as u64;
    let mut cache = Cache::new(sizes.clone(), budget, Lru::new(sizes.entries()));
    let (mut hits, mut lookups, mut tokens) = (0, 0, HashSet::new());
    for r in routes {
        let event = cache.event(r.layer as usize, &r.experts);
        if r.phase == Phase::Decode {
            tokens.insert(r.positions[0]);
            if tokens.len() > DECODED {
                break;
            }
            hits += event.hits.len();
            lookups += event.hits.len() + event.misses.len();
        }
    }
    hits as f64 / lookups as f64
}

#[test]
fn routing_is_of_the_order_of_a_real_model() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let model = dir.path().join("narrow.gguf");
    let written = write_model(&shape(), &WriteOptions::new(&model), &mut |_| {}).unwrap();

    let config = RunConfig {
        model,
        mode: Mode::Resident,
        prompt: PROMPT.to_owned(),
        n_predict: 256,
        threads: 1,
        ctx_tokens: 512,
        n_expert_used: TOP_K,
        ..RunConfig::default()
    };
    let mut routes = Routes::default();
    let end = generate(&config, &RunOptions::default(), &mut [&mut routes]).unwrap();
    let routes = routes.0;

    let prompt_tokens = routes[0].positions.len();
    assert_eq!((routes[0].phase, prompt_tokens), (Phase::Prefill, 28), "one batch of 28 tokens");
    let layers = decoded(&routes);
    assert_eq!(layers.len(), 12);
    assert!(layers.values().all(|tokens| tokens.len() == DECODED));

    let sizes = EntrySizes::new(&written.expert_bytes, 128);
    let percent = |x: f64| (1000.0 * x).round() / 10.0;
    let figures = [
        ("overlap with the previous token", percent(overlap(&layers, 1)), 30.0..=45.0, 38.0),
        ("overlap with the 8th previous", percent(overlap(&layers, 8)), 20.0..=30.0, 26.7),
        ("hit rate, 33 % cached", percent(hit_rate(&routes, &sizes, 0.33)), 88.0..=94.0, 90.2),
        ("hit rate, 22 % cached", percent(hit_rate(&routes, &sizes, 0.22)), 76.0..=84.0, 77.5),
        ("hit rate, 11 % cached", percent(hit_rate(&routes, &sizes, 0.11)), 50.0..=60.0, 54.0),
    ];
    for (what, value, band, real) in &figures {
        println!("{what}: {value} % (real trace {real} %, accepted {band:?})");
    }
    for (what, value, band, _) in figures {
        assert!(band.contains(&value), "{what}: {value} %, expected {band:?}");
    }

    let words: Vec<&str> = end.text.split_whitespace().collect();
    assert_eq!(words.len(), 256, "every generated token is one word: {}", end.text);
    let distinct = words.iter().collect::<HashSet<_>>().len();
    assert_eq!(distinct, 256, "greedy decoding repeats itself: {}", end.text);
}
