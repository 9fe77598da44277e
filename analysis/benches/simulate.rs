//! Accesses per second of every simulated policy and of LRU's whole curve, on one core, in CPU time, so that other
//! programs on the machine take nothing away but caches: `cargo bench -p bmoe-analysis --profile dev` (the profile that
//! everything here is built with). One policy: `... -- 'simulate/belady$'`.
//!
//! Trace and budget are those of the cache's own benchmark, and so are the hits that every online policy must count.
//! `belady` and the like include looking up when each expert is used next.

#[path = "../../engine/cache/benches/trace/mod.rs"]
mod trace;

use std::hint::black_box;
use std::time::Duration;

use bmoe_analysis::curve::LruCurve;
use bmoe_analysis::routes::{RouteEvent, RouteLayer, RouteTrace};
use bmoe_analysis::simulate::{Accesses, Budget, Rules, SimPolicy, Simulator};
use bmoe_trace::record::Phase;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};

/// CPU time of the benchmark's thread.
struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    fn end(&self, start: Duration) -> Duration {
        self.start() - start
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, time: &Duration) -> f64 {
        WallTime.to_f64(time)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

/// The benchmark's trace: decode only.
fn routes() -> RouteTrace {
    let layers = (0..).zip(trace::layer_bytes());
    let layers = layers.map(|(index, expert_bytes)| RouteLayer { index, expert_bytes });
    let mut routes =
        RouteTrace::new("benchmark".into(), String::new(), layers.collect(), trace::EXPERTS);
    for (number, experts) in trace::trace().iter().enumerate() {
        let event = RouteEvent {
            phase: Phase::Decode,
            layer: number % trace::LAYERS,
            positions: &[(number / trace::LAYERS) as u32],
            experts,
            weights: &[],
            residency: &[],
            read_bytes: &[],
            scored: &[],
            scores: &[],
        };
        routes.push(&event).expect("the benchmark's events fit its layers");
    }
    routes
}

fn all(criterion: &mut Criterion<CpuTime>) {
    let routes = routes();
    let budget_bytes = routes.bank_bytes() / 4;
    let accesses = Accesses::new(&routes, Rules::ENGINE);
    drop(routes);
    let lru_hits = hits_of(SimPolicy::ALL[2]).expect("lru is online");
    let mut group = criterion.benchmark_group("simulate");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(1))
        .measurement_time(Duration::from_secs(8));
    group.throughput(Throughput::Elements(accesses.rows() as u64));
    for policy in SimPolicy::ALL {
        group.bench_function(BenchmarkId::from_parameter(policy), |bencher| {
            bencher.iter(|| {
                // Seed 1, as in the cache's benchmark.
                let simulator = Simulator::new(&accesses).with_seed(1);
                let simulated = simulator.run(policy, Budget::Bytes(budget_bytes)).expect("sized");
                if let Some(hits) = hits_of(policy) {
                    assert_eq!(simulated.decode.hits, hits, "{policy}: a wrong answer");
                }
                black_box(simulated);
            });
        });
    }
    group.bench_function("curve", |bencher| {
        bencher.iter(|| {
            let curve = LruCurve::new(&accesses).expect("sized");
            assert_eq!(curve.at(budget_bytes).decode.hits, lru_hits, "the curve isn't LRU's");
            black_box(curve);
        });
    });
    group.finish();
}

/// Hits that an online policy counts.
fn hits_of(policy: SimPolicy) -> Option<u64> {
    let mut known = trace::HITS.into_iter();
    known.find(|(kind, _)| policy == SimPolicy::Online(*kind)).map(|(_, hits)| hits)
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime);
    targets = all
}
criterion_main!(benches);
