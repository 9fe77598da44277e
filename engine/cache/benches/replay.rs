//! Accesses per second of every policy: `cargo bench -p bmoe-cache --profile dev` (the profile that
//! everything here is built with). One policy: `... -- 'replay/lru$'`.
//!
//! The budget is a quarter of the expert set. Each policy must count exactly the hits that stand beside the trace, or its
//! timing is refused.

mod trace;

use std::hint::black_box;
use std::time::Duration;

use bmoe_cache::{Cache, EntrySizes, PolicyKind};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use trace::{EXPERTS, HITS, LAYERS, TOP_K, layer_bytes, trace};

fn replay(kind: PolicyKind, sizes: &EntrySizes, trace: &[[u16; TOP_K]]) -> u64 {
    let policy = kind.build(sizes, 1);
    let mut cache = Cache::new(sizes.clone(), sizes.total_bytes() / 4, policy);
    for (event, experts) in trace.iter().enumerate() {
        black_box(cache.event(event % LAYERS, experts));
    }
    cache.counts().hits
}

fn all(criterion: &mut Criterion) {
    let sizes = EntrySizes::new(&layer_bytes(), EXPERTS);
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
