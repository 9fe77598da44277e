//! Runs whose tokens use the experts of a recorded trace.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bmoe_cache::{Cache, EntrySizes, PolicyKind};
use bmoe_engine::run::{RecordSink, RouteFile, RunOptions, TraceFile};
use bmoe_engine::{EngineError, generate};
use bmoe_synth::Shape;
use bmoe_trace::record::{Outcome, Phase, Record, RunEnd};
use bmoe_trace::{CacheBudget, Mode, RunConfig};

use common::Records;

/// Runs a configuration and leaves its trace in both of our formats.
fn recorded(config: &RunConfig, folder: &Path) -> (RunEnd, [PathBuf; 2]) {
    let paths = [folder.join("free.trace"), folder.join("free.csv")];
    let (mut binary, mut csv) = (TraceFile::new(&paths[0]), RouteFile::new(&paths[1]));
    let sinks: &mut [&mut dyn RecordSink] = &mut [&mut binary, &mut csv];
    (generate(config, &RunOptions::default(), sinks).unwrap(), paths)
}

/// Changes a configuration.
type Change<'a> = &'a dyn Fn(&mut RunConfig);

/// A trace of made-up routes: `prompt` tokens, of which the last layer has the last one alone, then `steps`.
struct MadeUp {
    layers: u32,
    experts: u32,
    top_k: u32,
    prompt: u32,
    steps: u32,
}

impl MadeUp {
    const TINY: Self = Self { layers: 3, experts: 16, top_k: 4, prompt: 9, steps: 20 };

    fn csv(&self) -> String {
        let Self { layers, experts, top_k, prompt, steps } = *self;
        let mut text = format!(
            "# route_trace v1\n# arch=qwen3moe n_layer={layers} n_expert={experts} n_expert_used={top_k}\n\
             turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n"
        );
        let mut state = 1_u64;
        let mut token = |text: &mut String, phase: u32, step: u32, layer: u32| {
            let mut chosen: Vec<u64> = Vec::new();
            while chosen.len() < top_k as usize {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // The smaller of two: some are used more often than others.
                let expert = (state >> 33).min(state.rotate_left(9) >> 33) % u64::from(experts);
                if !chosen.contains(&expert) {
                    chosen.push(expert);
                }
            }
            for (slot, expert) in chosen.iter().enumerate() {
                writeln!(text, "0,{phase},{step},{layer},{slot},{expert},nan,0,0").unwrap();
            }
        };
        for layer in 0..layers {
            let first = if layer + 1 == layers { prompt - 1 } else { 0 };
            (first..prompt).for_each(|step| token(&mut text, 0, step, layer));
        }
        for step in prompt..prompt + steps {
            (0..layers).for_each(|layer| token(&mut text, 1, step, layer));
        }
        text
    }
}

/// Events of a `route_trace v1` file in its order: layer, whether it is of decode, experts.
fn events(csv: &str) -> Vec<(u32, bool, Vec<u16>)> {
    let mut events: Vec<(u32, bool, Vec<u16>)> = Vec::new();
    let mut last = None;
    for line in csv.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())) {
        let column: Vec<u32> = line.split(',').take(6).map(|c| c.parse().unwrap()).collect();
        let [_, phase, step, layer, _, expert] = column[..] else { panic!("{line}") };
        let event = (phase, layer, if phase == 1 { step } else { 0 });
        if last.replace(event) != Some(event) {
            events.push((layer, phase == 1, Vec::new()));
        }
        events.last_mut().unwrap().2.push(expert as u16);
    }
    events
}

/// What replaying the file's own events through a cache counts: hits, misses and bytes of prefill and decode, and
/// the share of hits in all look-ups.
fn simulated(csv: &str, bytes: &[u64], n_expert: u32, budget: u64, policy: PolicyKind) -> Counted {
    let sizes = EntrySizes::new(bytes, n_expert);
    let mut cache = Cache::new(sizes.clone(), budget, policy.build(&sizes, 0));
    let mut counted = Counted::default();
    for (layer, decode, experts) in events(csv) {
        let event = cache.event(layer as usize, &experts);
        let part = if decode { &mut counted.decode } else { &mut counted.prefill };
        part[0] += event.hits.len() as u64;
        part[1] += event.misses.len() as u64;
        part[2] += event.misses.len() as u64 * bytes[layer as usize];
    }
    counted.hit_rate = cache.counts().hit_rate().unwrap();
    counted
}

#[derive(Debug, Default, PartialEq)]
struct Counted {
    /// Hits, misses, bytes.
    prefill: [u64; 3],
    decode: [u64; 3],
    hit_rate: f64,
}

fn measured(records: &Records) -> Counted {
    let cost = |c: &bmoe_trace::record::Cost| [c.hits, c.misses, c.expert_read_bytes];
    let mut decode = [0; 3];
    for token in records.tokens() {
        let of_token = cost(&token.cost);
        (0..3).for_each(|i| decode[i] += of_token[i]);
    }
    let hit_rate = records.tokens().last().unwrap().cumulative_hit_rate;
    Counted { prefill: cost(&records.prefill().cost), decode, hit_rate }
}

fn start(records: &Records) -> &bmoe_trace::record::RunStart {
    let Record::Start(start) = &records.0[0] else { panic!("the first record is the start") };
    start
}

/// Compares a replayed run with the file, event by event and in its counts.
fn check_against(csv: &str, config: &RunConfig) -> Counted {
    let (end, records) = common::run(config).unwrap();
    assert_eq!(end.outcome, Outcome::Complete);
    let model = &start(&records).model;
    assert_eq!(start(&records).config.replay_routes, config.replay_routes);
    let ran: Vec<_> = records
        .routes()
        .into_iter()
        .map(|r| (r.layer, r.phase == Phase::Decode, r.experts.clone()))
        .collect();
    assert_eq!(ran, events(csv));
    let bytes: Vec<u64> = model.layers.iter().map(|l| l.expert_bytes).collect();
    let budget = records.load().cache_budget_bytes;
    let policy = config.cache_policy.parse().unwrap();
    let measured = measured(&records);
    assert_eq!(measured, simulated(csv, &bytes, model.n_expert, budget, policy), "{config:?}");
    measured
}

/// The strongest test there is: what a model chose itself, forced upon it, changes no bit.
#[test]
fn a_models_own_trace_computes_the_same_bits() {
    for threads in [1, 2] {
        let _place = common::place(threads);
        for arch in ["qwen3moe", "gemma4", "gpt-oss", "qwen2moe", "deepseek2", "grovemoe"] {
            let folder = common::folder();
            let model = common::model(folder.path(), &common::tiny(arch), "m", None);
            let free = RunConfig { threads, n_predict: 12, ..common::config(&model, Mode::Stream) };
            let (expected, traces) = recorded(&free, folder.path());
            let off = free.clone();
            let cached = RunConfig { cache_mib: CacheBudget::Mib(1), ..free.clone() };
            let ways = [
                cached.clone(),
                RunConfig { overlap: false, ..cached.clone() },
                RunConfig { overlap: false, ..off.clone() },
                RunConfig { cache_policy: "lfu".into(), prefetch_layers: 2, ..cached },
                RunConfig { mode: Mode::Mmap, ..free.clone() },
                RunConfig { mode: Mode::Resident, ..free },
                off,
            ];
            for (way, trace) in ways.into_iter().zip(traces.iter().cycle()) {
                let replayed = RunConfig { replay_routes: Some(trace.clone()), ..way };
                let (end, _) = common::run(&replayed).unwrap();
                assert_eq!(end.text, expected.text, "{arch}, {replayed:?}");
                assert_eq!(end.logits_sha256, expected.logits_sha256, "{arch}, {replayed:?}");
            }
        }
    }
}

/// Another prompt, so another choice of the router's, and all the same the trace's experts; and what is measured
/// is what the simulation of the trace says.
#[test]
fn measured_equals_simulated_for_every_policy() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let csv = MadeUp::TINY.csv();
    let trace = folder.path().join("made-up.csv");
    std::fs::write(&trace, &csv).unwrap();
    let plain = RunConfig {
        replay_routes: Some(trace),
        hash_logits: false,
        prompt: String::new(),
        ..common::config(&model, Mode::Stream)
    };
    let mut seen = BTreeMap::new();
    for policy in PolicyKind::ALL {
        for cache_mib in [1, 2, 4, 64] {
            for overlap in [true, false] {
                let config = RunConfig {
                    cache_policy: policy.to_string(),
                    cache_mib: CacheBudget::Mib(cache_mib),
                    overlap,
                    ..plain.clone()
                };
                let counted = check_against(&csv, &config);
                seen.insert((policy.to_string(), cache_mib), counted.decode[0]);
            }
        }
    }
    // The budgets matter, and so do policies: nothing was compared with itself.
    assert!(seen.values().collect::<std::collections::BTreeSet<_>>().len() > 8, "{seen:?}");
    // A cold cache of all experts misses each once.
    let once = check_against(&csv, &RunConfig { cache_mib: CacheBudget::Mib(64), ..plain.clone() });
    assert!(once.prefill[1] + once.decode[1] <= 48);
    // Without a cache every use is a read.
    let (_, records) = common::run(&plain).unwrap();
    let without = measured(&records);
    assert_eq!((without.decode[0], without.decode[1]), (0, 20 * 3 * 4));
}

/// Reading ahead changes what is found, never what is used or computed; and maps and memory see the same routes.
#[test]
fn all_modes_and_reading_ahead_follow_one_trace() {
    for threads in [1, 2] {
        let _place = common::place(threads);
        let folder = common::folder();
        let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
        // Every token's logits are hashed, so the last layer computes the whole prompt: the trace must have it.
        let mut made_up = MadeUp::TINY.csv();
        let extra = MadeUp { prompt: 9, layers: 4, steps: 0, ..MadeUp::TINY }.csv();
        let rows = |layer: u32, csv: &str| -> String {
            let is = |l: &&str| l.split(',').nth(3) == Some(&layer.to_string());
            let of_prompt = |l: &&str| l.starts_with("0,0,");
            csv.lines().filter(is).filter(of_prompt).map(|l| format!("{l}\n")).collect()
        };
        made_up = made_up.replace(&rows(2, &made_up), &rows(2, &extra));
        let trace = folder.path().join("made-up.csv");
        std::fs::write(&trace, &made_up).unwrap();
        let plain = RunConfig {
            replay_routes: Some(trace),
            threads,
            ..common::config(&model, Mode::Resident)
        };
        let (expected, free) = common::run(&plain).unwrap();
        let used = |records: &Records| -> Vec<Vec<u16>> {
            records.routes().iter().map(|r| r.experts.clone()).collect()
        };
        let streamed = RunConfig {
            mode: Mode::Stream,
            cache_mib: CacheBudget::Mib(1),
            cache_policy: "lfu".into(),
            ..plain.clone()
        };
        let ways = [
            RunConfig { mode: Mode::Mmap, ..plain },
            streamed.clone(),
            RunConfig { prefetch_layers: 2, ..streamed.clone() },
            RunConfig { predict_experts: 3, ..streamed },
        ];
        for way in ways {
            let (end, records) = common::run(&way).unwrap();
            assert_eq!(end.logits_sha256, expected.logits_sha256, "{way:?}");
            assert_eq!(used(&records), used(&free), "{way:?}");
        }
    }
}

/// The prompt becomes as long as the trace's, whatever it says; the trace's end ends the run, or `n_predict` does.
#[test]
fn the_trace_decides_how_much_is_computed() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let trace = folder.path().join("made-up.csv");
    std::fs::write(&trace, MadeUp::TINY.csv()).unwrap();
    let base = RunConfig {
        replay_routes: Some(trace.clone()),
        hash_logits: false,
        ..common::config(&model, Mode::Stream)
    };
    for prompt in [String::new(), common::prompt(2), common::prompt(40)] {
        for (n_predict, steps) in [(5, 5), (20, 20), (100, 20)] {
            let config = RunConfig { prompt: prompt.clone(), n_predict, ..base.clone() };
            let (end, records) = common::run(&config).unwrap();
            assert_eq!((records.prefill().prompt_tokens, end.tokens), (9, steps));
        }
    }
    // A trace of generated tokens alone: the first of them is the prompt.
    let lines = folder.path().join("tokens.jsonl");
    let layer = |first: u32| (first..first + 4).map(|e| e % 16).collect::<Vec<_>>();
    let text: String = (0..6)
        .map(|t| format!("{{\"tok\":{t},\"layers\":{:?}}}\n", [layer(t), layer(2 * t), layer(7)]))
        .collect();
    std::fs::write(&lines, text).unwrap();
    let config = RunConfig { replay_routes: Some(lines), ..base };
    let (end, records) = common::run(&config).unwrap();
    assert_eq!((records.prefill().prompt_tokens, end.tokens), (1, 5));
    assert_eq!(records.routes()[4].experts, [2, 3, 4, 5]);
}

#[test]
fn what_does_not_fit_is_refused_with_what_to_do() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let trace = folder.path().join("t.csv");
    let refused = |csv: &str, change: &dyn Fn(&mut RunConfig)| -> String {
        std::fs::write(&trace, csv).unwrap();
        let mut config = RunConfig {
            replay_routes: Some(trace.clone()),
            hash_logits: false,
            ..common::config(&model, Mode::Stream)
        };
        change(&mut config);
        match common::run(&config) {
            Err(error @ EngineError::Config(_)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let nothing = |_: &mut RunConfig| {};
    let made = |change: &dyn Fn(&mut MadeUp)| {
        let mut shape = MadeUp::TINY;
        change(&mut shape);
        shape.csv()
    };
    let fits = made(&|_| {});
    let without = |start: &str| -> String {
        fits.lines().filter(|l| !l.starts_with(start)).map(|l| format!("{l}\n")).collect()
    };
    let first = fits.lines().find_map(|l| l.strip_prefix("0,1,12,1,0,")).unwrap();
    let twice: Vec<&str> = fits.lines().collect();
    let second = format!("0,1,12,1,1,{first}");
    let twice = twice.iter().map(|l| if l.starts_with("0,1,12,1,1,") { &second } else { *l });
    let twice: String = twice.map(|l| format!("{l}\n")).collect();
    let table: [(String, Change<'_>, &str); 10] = [
        (twice, &nothing, "no other slot of the token"),
        (made(&|s| s.top_k = 2), &nothing, "give --n-expert-used 2"),
        (made(&|s| s.experts = 32), &nothing, "its layers have 32 experts, the model's 16"),
        (made(&|s| s.layers = 4), &nothing, "it has 4 MoE layers (0 to 3), the model 3 (0 to 2)"),
        (without("0,1,12,"), &nothing, "expected 12, since positions follow each other"),
        (without("0,1,12,1,"), &nothing, "expected layer 1 of position 12"),
        (without("0,0,3,1,"), &nothing, "lost or misplaced"),
        (fits.clone(), &|c| c.hash_logits = true, "--hash-logits computes the whole prompt there"),
        (fits.clone(), &|c| c.chat = true, "leave --chat out"),
        ("step,steps,wall_ms\n".into(), &nothing, "--replay-routes"),
    ];
    for (csv, change, expected) in table {
        let message = refused(&csv, change);
        assert!(message.contains(expected), "{message}");
        assert!(message.contains("t.csv") && !message.contains('\n'), "{message}");
    }
    let missing = refused(&fits, &|c| c.replay_routes = Some("nowhere.csv".into()));
    assert!(missing.contains("nowhere.csv: cannot open it"), "{missing}");
}

/// Layers 0, 1, 2 and the last one of a published trace (its prompt has one token there), as a trace of a model
/// of four layers.
fn short_published() -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/data/published/2026-07-15-route/qwen.route.csv");
    if !path.exists() {
        eprintln!("skipped: {} is not there", path.display());
        return None;
    }
    let mut short = String::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let column: Vec<&str> = line.split(',').collect();
        match column[..] {
            [turn, phase, step, layer @ ("0" | "1" | "2" | "47"), slot, expert, weight, ..]
                if turn != "turn" =>
            {
                let layer = if layer == "47" { "3" } else { layer };
                let row = [turn, phase, step, layer, slot, expert, weight, "0", "0"];
                writeln!(short, "{}", row.join(",")).unwrap();
            }
            [_, _, _, ..] if !line.starts_with("turn") => {}
            _ if line.starts_with("# layer=") => {}
            _ => writeln!(short, "{}", line.replace("n_layer=48", "n_layer=4")).unwrap(),
        }
    }
    Some(short)
}

#[test]
fn a_published_trace_counts_as_its_simulation() {
    let Some(csv) = short_published() else { return };
    let _place = common::place(1);
    let folder = common::folder();
    let trace = folder.path().join("qwen.route.csv");
    std::fs::write(&trace, &csv).unwrap();
    let mut shape: Shape = common::tiny("qwen3moe");
    (shape.dims.layers, shape.dims.experts, shape.dims.experts_used) = (4, 128, 8);
    let model = common::model(folder.path(), &shape, "m", None);
    let plain = RunConfig {
        replay_routes: Some(trace),
        hash_logits: false,
        n_predict: 200,
        ..common::config(&model, Mode::Stream)
    };
    let error = common::run(&plain).unwrap_err().to_string();
    assert!(error.contains("this run's 8; give --n-expert-used 6"), "{error}");
    let plain = RunConfig { n_expert_used: 6, ..plain };
    for policy in PolicyKind::ALL {
        for cache_mib in [3, 10, 30] {
            let config = RunConfig {
                cache_policy: policy.to_string(),
                cache_mib: CacheBudget::Mib(cache_mib),
                ..plain.clone()
            };
            check_against(&csv, &config);
        }
    }
    let (end, records) = common::run(&plain).unwrap();
    assert_eq!((records.prefill().prompt_tokens, end.tokens), (28, 128));
    let last = |r: &&bmoe_trace::record::RouteRecord| r.layer == 3 && r.phase == Phase::Prefill;
    let last: Vec<_> = records.routes().into_iter().filter(last).collect();
    assert_eq!((last.len(), last[0].positions.as_slice()), (1, &[27][..]));
}
