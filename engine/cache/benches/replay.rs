//! Accesses per second of every policy: `cargo bench -p bmoe-cache --profile dev` (the profile that
//! everything here is built with). One policy: `... -- 'replay/lru$'`.
//!
//! The trace has 10 million accesses: 48 layers of 128 experts, top-8, where a token keeps a part of the token
//! before it and draws the rest from a skewed order of the layer's own, like routes of real models. The budget is a
//! quarter of the expert set. Each policy must count exactly the hits written here, or its timing is refused.

use std::hint::black_box;
use std::time::Duration;

use bmoe_cache::{Cache, EntrySizes, PolicyKind};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const LAYERS: usize = 48;
const EXPERTS: u32 = 128;
const TOP_K: usize = 8;
const ACCESSES: usize = 10_000_000;

/// Hits that each policy counts on the trace.
const HITS: [(PolicyKind, u64); 11] = [
    (PolicyKind::Lru, 5_739_707),
    (PolicyKind::Lfu, 5_825_186),
    (PolicyKind::LfuAged, 6_697_615),
    (PolicyKind::Lfru, 6_357_675),
    (PolicyKind::Fifo, 5_409_426),
    (PolicyKind::Sieve, 4_189_333),
    (PolicyKind::S3Fifo, 5_926_251),
    (PolicyKind::Arc, 5_398_273),
    (PolicyKind::LayerLru, 5_906_773),
    (PolicyKind::LayerLfu, 6_857_164),
    (PolicyKind::Random, 5_277_425),
];

/// `SplitMix64`.
struct Generator(u64);

impl Generator {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u32) -> u32 {
        (((self.next() >> 32) * u64::from(n)) >> 32) as u32
    }
}

/// The experts of all events, layer after layer, token after token. Integers only, so that it is the same
/// everywhere.
fn trace() -> Vec<[u16; TOP_K]> {
    let mut random = Generator(7);
    let order: Vec<Vec<u16>> = (0..LAYERS)
        .map(|_| {
            let mut order: Vec<u16> = (0..EXPERTS as u16).collect();
            for i in (1..order.len()).rev() {
                order.swap(i, random.below(i as u32 + 1) as usize);
            }
            order
        })
        .collect();
    let mut last = vec![[u16::MAX; TOP_K]; LAYERS];
    (0..ACCESSES / TOP_K)
        .map(|event| {
            let layer = event % LAYERS;
            let mut chosen = Vec::with_capacity(TOP_K);
            for expert in last[layer] {
                if expert != u16::MAX && random.below(100) < 30 {
                    chosen.push(expert);
                }
            }
            while chosen.len() < TOP_K {
                // The product of two draws prefers the low ranks.
                let rank = random.below(EXPERTS) * random.below(EXPERTS) / EXPERTS;
                let expert = order[layer][rank as usize];
                if !chosen.contains(&expert) {
                    chosen.push(expert);
                }
            }
            last[layer] = chosen.try_into().unwrap_or([0; TOP_K]);
            last[layer]
        })
        .collect()
}

fn replay(kind: PolicyKind, sizes: &EntrySizes, trace: &[[u16; TOP_K]]) -> u64 {
    let policy = kind.build(sizes, 1);
    let mut cache = Cache::new(sizes.clone(), sizes.total_bytes() / 4, policy);
    for (event, experts) in trace.iter().enumerate() {
        black_box(cache.event(event % LAYERS, experts));
    }
    cache.counts().hits
}

fn all(criterion: &mut Criterion) {
    // Two sizes, as in Q4_K_M files.
    let layer_bytes: Vec<u64> =
        (0..LAYERS).map(|layer| if layer % 3 == 0 { 3_059_712 } else { 2_654_208 }).collect();
    let sizes = EntrySizes::new(&layer_bytes, EXPERTS);
    let trace = trace();
    let mut group = criterion.benchmark_group("replay");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(1))
        .measurement_time(Duration::from_secs(8));
    group.throughput(Throughput::Elements((trace.len() * TOP_K) as u64));
    for (kind, hits) in HITS {
        group.bench_function(BenchmarkId::from_parameter(kind), |bencher| {
            bencher.iter(|| {
                let counted = replay(kind, &sizes, &trace);
                assert_eq!(
                    counted, hits,
                    "hits of {kind}: the timing of a wrong answer is worth nothing"
                );
            });
        });
    }
    group.finish();
}

criterion_group!(benches, all);
criterion_main!(benches);
