//! Synthetic traces: skewed, persistent routing through an LRU cache, and times
//! that follow from the misses. The same arguments give the same bytes.

use std::collections::HashMap;

use bmoe_trace::codec::TraceWriter;
use bmoe_trace::config::ComputeTrace;
use bmoe_trace::record::{
    BudgetRecord, ComputeRecord, Cost, DirectIo, IoEngineUsed, LayerShape, LoadRecord, MemoryState,
    ModelShape, Outcome, Phase, PrefillRecord, ReadPurpose, ReadRecord, Residency, RouteRecord,
    RunEnd, RunStart, TokenRecord,
};
use bmoe_trace::{CacheBudget, Mode, Record, RunConfig};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const PROMPT_TOKENS: u32 = 12;
pub(crate) const AUTO_MIB: u64 = 240;

/// A shape to make traces of.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) layers: u32,
    pub(crate) experts: u16,
    pub(crate) top_k: u32,
}

pub(crate) const SHAPE: Shape = Shape { layers: 12, experts: 64, top_k: 6 };

impl Shape {
    /// Experts of even layers are larger, as in a Q4_K_M mix.
    pub(crate) fn expert_bytes(self, layer: u32) -> u64 {
        if layer.is_multiple_of(2) { 700 << 10 } else { 600 << 10 }
    }

    pub(crate) fn model(self) -> ModelShape {
        let layers: Vec<_> = (0..self.layers)
            .map(|layer| LayerShape { layer, expert_bytes: self.expert_bytes(layer) })
            .collect();
        let experts: u64 = layers.iter().map(|l| l.expert_bytes * u64::from(self.experts)).sum();
        ModelShape {
            arch: "qwen3moe".into(),
            n_layer: self.layers,
            n_expert: u32::from(self.experts),
            n_expert_used: self.top_k,
            file_bytes: experts + 80 * MIB,
            dense_bytes: 80 * MIB,
            layers,
        }
    }
}

/// A small generator of even numbers in 0..1 (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Least recently used, event by event, over bytes.
#[derive(Default)]
struct Lru {
    budget: u64,
    clock: u64,
    entries: HashMap<(u32, u16), (u64, u64)>,
}

impl Lru {
    fn event(&mut self, layer: u32, experts: &[u16], bytes: u64) -> Vec<Residency> {
        let mut residency = Vec::new();
        for expert in experts {
            self.clock += 1;
            let hit = self.entries.insert((layer, *expert), (self.clock, bytes)).is_some();
            residency.push(if hit { Residency::Hit } else { Residency::Miss });
        }
        while self.held() > self.budget {
            let Some(oldest) = self.entries.iter().min_by_key(|(_, (tick, _))| *tick) else {
                break;
            };
            let key = *oldest.0;
            self.entries.remove(&key);
        }
        residency
    }

    fn held(&self) -> u64 {
        self.entries.values().map(|(_, bytes)| bytes).sum()
    }
}

/// All records of one run. `noise` makes repetitions differ in their times and in nothing else.
pub(crate) fn records(
    run_id: &str,
    shape: Shape,
    config: &RunConfig,
    tokens: u32,
    noise: u64,
) -> Vec<Record> {
    let stream = config.mode == Mode::Stream;
    // `auto` finds so much, and gives some of it back after the first token.
    let budget = if stream { config.cache_mib.mib().unwrap_or(AUTO_MIB) * MIB } else { 0 };
    let model = shape.model();
    let dense_read_bytes = if config.mode == Mode::Mmap { 0 } else { model.dense_bytes };
    let mut records = vec![
        Record::Start(Box::new(RunStart {
            run_id: run_id.into(),
            started_unix_ms: 1_796_050_800_000 + noise,
            engine_version: "0.1.0".into(),
            llama_version: "0.1.161".into(),
            config: config.clone(),
            model: model.clone(),
        })),
        Record::Load(LoadRecord {
            load_ns: 420_000_000 + noise * 1_000_000,
            dense_read_ns: if dense_read_bytes > 0 { 150_000_000 } else { 0 },
            dense_read_bytes,
            expert_read_bytes: if config.mode == Mode::Resident {
                model.expert_set_bytes()
            } else {
                0
            },
            cache_budget_bytes: budget,
            event_room_bytes: if stream { 24 * MIB } else { 0 },
            direct_io: if stream { DirectIo::Used } else { DirectIo::NotApplicable },
            io_engine: if stream { IoEngineUsed::Pread } else { IoEngineUsed::NotApplicable },
            rss_bytes: 120 * MIB + budget,
            preloaded_bytes: 0,
            preload_ns: 0,
        }),
    ];
    let mut routing = Random::new(7);
    let mut timing = Random::new(1000 + noise);
    let mut lru = Lru { budget, ..Lru::default() };
    let mut recent: Vec<Vec<u16>> = vec![Vec::new(); shape.layers as usize];
    let mut ubatch = 0;
    let (mut hits, mut lookups, mut peak_cache) = (0, 0, 0);
    let mut batch = |phase, positions: Vec<u32>, records: &mut Vec<Record>| {
        let mut cost = Cost::default();
        for layer in 0..shape.layers {
            let mut experts = Vec::new();
            for _ in &positions {
                let chosen = choose(&mut routing, shape, layer, &recent[layer as usize]);
                recent[layer as usize].clone_from(&chosen);
                experts.extend(chosen);
            }
            let mut distinct: Vec<u16> = Vec::new();
            for expert in &experts {
                if !distinct.contains(expert) {
                    distinct.push(*expert);
                }
            }
            let bytes = shape.expert_bytes(layer);
            let mut residency =
                if stream { lru.event(layer, &distinct, bytes) } else { Vec::new() };
            let mut read_bytes: Vec<u64> =
                residency.iter().map(|r| if *r == Residency::Miss { bytes } else { 0 }).collect();
            cost.misses += read_bytes.iter().filter(|b| **b > 0).count() as u64;
            cost.hits += residency.iter().filter(|r| **r == Residency::Hit).count() as u64;
            cost.expert_read_bytes += read_bytes.iter().sum::<u64>();
            if layer % 2 == 1 {
                // The order of the distinct experts is the engine's affair.
                distinct.reverse();
                residency.reverse();
                read_bytes.reverse();
            }
            push_traced(records, config, ubatch, layer, &distinct, &read_bytes);
            let ranks = u16::try_from(config.trace_scores).unwrap();
            let ranked = positions.iter().flat_map(|_| 0..ranks);
            records.push(Record::Route(RouteRecord {
                scored: ranked.clone().map(|rank| (rank * 5 + 1) % shape.experts).collect(),
                scores: ranked.map(|rank| 0.5 / f32::from(rank + 1)).collect(),
                turn: 0,
                ubatch,
                phase,
                layer,
                top_k: shape.top_k,
                weights: vec![1.0 / shape.top_k as f32; experts.len()],
                positions: positions.clone(),
                experts,
                distinct,
                residency,
                read_bytes,
            }));
        }
        ubatch += 1;
        peak_cache = lru.held().max(peak_cache);
        let n = positions.len() as u64;
        let lanes = u64::from(config.io_threads.max(1));
        let jitter = |base: u64, r: &mut Random| (base as f64 * (0.95 + 0.1 * r.next())) as u64;
        cost.compute_ns = jitter(if stream { 14_000_000 } else { 21_000_000 } * n, &mut timing);
        if !stream && timing.next() < 0.12 {
            cost.compute_ns *= 3;
            cost.major_faults = 40;
        }
        cost.lane_busy_ns = jitter(cost.misses * 520_000, &mut timing);
        cost.io_wait_ns = cost.lane_busy_ns * (lanes + 3) / (4 * lanes);
        cost.io_active_ns = cost.io_wait_ns;
        if config.overlaps() {
            cost.io_wait_ns /= 3;
        }
        if stream && config.prefetch_layers > 0 {
            cost.speculated = 5;
            cost.speculated_bytes = 5 * shape.expert_bytes(0);
            cost.speculated_hits = cost.hits.min(3);
            cost.speculated_wasted = 1;
        }
        cost.mgmt_ns = if stream { jitter(300_000 * n, &mut timing) } else { 0 };
        cost.other_ns = jitter(450_000, &mut timing);
        cost.wall_ns = cost.compute_ns + cost.io_wait_ns + cost.mgmt_ns + cost.other_ns;
        cost.cpu_ns = cost.compute_ns * 2;
        cost.reads = cost.misses * 3;
        cost.device_read_bytes = cost.expert_read_bytes + cost.reads * 4096;
        hits += cost.hits;
        lookups += cost.hits + cost.misses;
        let rate = if lookups == 0 { f64::NAN } else { hits as f64 / lookups as f64 };
        (cost, rate, lru.held(), peak_cache)
    };
    let (cost, ..) = batch(Phase::Prefill, (0..PROMPT_TOKENS).collect(), &mut records);
    records.push(Record::Prefill(PrefillRecord {
        prompt_tokens: PROMPT_TOKENS,
        ubatches: 1,
        time_to_first_token_ns: 421_000_000 + cost.wall_ns,
        cost,
    }));
    let (mut decode_ns, mut peak_cache_bytes) = (0, 0);
    let shrinks = stream && config.cache_mib == CacheBudget::Auto;
    for step in 1..=tokens {
        let position = PROMPT_TOKENS + step - 1;
        let (cost, rate, held, peak) = batch(Phase::Decode, vec![position], &mut records);
        decode_ns += cost.wall_ns;
        peak_cache_bytes = peak;
        records.push(Record::Token(TokenRecord {
            step,
            position,
            token: 100 + step as i32,
            cost,
            cumulative_hit_rate: rate,
            cache_resident_bytes: held,
            cache_budget_bytes: budget - if shrinks { 40 * MIB } else { 0 },
            rss_bytes: 150 * MIB + budget,
            memory: MemoryState {
                anon_bytes: Some(140 * MIB + budget),
                file_bytes: Some(10 * MIB),
                swap_bytes: Some(0),
                available_bytes: Some(800 * MIB),
                free_bytes: Some(300 * MIB),
                swap_free_bytes: None,
                dense_resident_permille: None,
            },
        }));
        if shrinks && step == 1 {
            records.push(Record::Budget(BudgetRecord {
                step,
                from_bytes: budget,
                to_bytes: budget - 40 * MIB,
                available_bytes: 90 * MIB,
                evicted: 60,
            }));
        }
    }
    records.push(Record::End(Box::new(RunEnd {
        outcome: Outcome::Complete,
        tokens,
        decode_ns,
        peak_rss_bytes: 160 * MIB + budget + noise * MIB,
        peak_cache_bytes,
        peak_event_bytes: if stream { 18 * MIB } else { 0 },
        text: "the same words".into(),
        logits_sha256: None,
    })));
    records
}

/// What the configuration asks to be recorded of one event.
fn push_traced(
    records: &mut Vec<Record>,
    config: &RunConfig,
    ubatch: u32,
    layer: u32,
    distinct: &[u16],
    read_bytes: &[u64],
) {
    let read = distinct.iter().zip(read_bytes).filter(|(_, bytes)| **bytes > 0);
    for (expert, bytes) in read.filter(|_| config.io_trace) {
        for projection in 0..3 {
            records.push(Record::Read(ReadRecord {
                ubatch,
                layer,
                expert: *expert,
                projection,
                lane: (expert % 4) as u8,
                purpose: if layer == 0 { ReadPurpose::Demand } else { ReadPurpose::Prefetch },
                wanted_bytes: bytes / 3,
                read_bytes: bytes / 3 + 4096,
                queued_ns: u64::from(ubatch) * 1_000_000,
                wait_ns: 20_000,
                service_ns: 170_000,
            }));
        }
    }
    if config.compute_trace != ComputeTrace::Off {
        for (layer, part, ns) in [
            (Some(layer), "dense", 90_000),
            (Some(layer), "experts", 60_000),
            (None, "output", 9_000),
        ] {
            let part = part.to_owned();
            records.push(Record::Compute(ComputeRecord {
                ubatch,
                layer,
                part,
                node: String::new(),
                ns,
            }));
        }
    }
}

/// Distinct experts: some kept from the token before, the others drawn from a skewed distribution.
fn choose(random: &mut Random, shape: Shape, layer: u32, before: &[u16]) -> Vec<u16> {
    let mut chosen: Vec<u16> = Vec::new();
    for expert in before {
        if random.next() < 0.34 {
            chosen.push(*expert);
        }
    }
    let n = f64::from(shape.experts);
    while chosen.len() < shape.top_k as usize {
        let rank = (n * random.next().powf(2.2)) as u32;
        let expert = ((rank * 37 + layer * 11) % u32::from(shape.experts)) as u16;
        if !chosen.contains(&expert) {
            chosen.push(expert);
        }
    }
    chosen
}

/// A trace file's bytes.
pub(crate) fn trace_bytes(records: &[Record]) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new()).unwrap();
    for record in records {
        writer.write(record).unwrap();
    }
    writer.into_inner()
}
