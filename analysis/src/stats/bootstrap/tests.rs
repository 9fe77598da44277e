use super::*;
use crate::stats::Rates;

/// Seconds of `n` tokens around `mean`, which depend on their neighbours; the run's own level is in `mean`.
fn tokens(rng: &mut Xoshiro256PlusPlus, mean: f64, n: usize) -> Vec<f64> {
    let mut x = 0.0;
    (0..n)
        .map(|_| {
            x = 0.6 * x + 0.1 * normal(rng);
            mean * (1.0 + x)
        })
        .collect()
}

/// Close to normal: the sum of twelve uniform numbers less six.
fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
    (0..12).map(|_| (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64).sum::<f64>() - 6.0
}

fn near(interval: Interval, low: f64, high: f64, within: f64) {
    let Interval { low: l, high: h } = interval;
    assert!(
        (l - low).abs() < within && (h - high).abs() < within,
        "{l} to {h}, not {low} to {high}"
    );
}

#[test]
fn figures_are_those_of_the_table() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let seconds: Vec<Vec<f64>> = (0..3).map(|_| tokens(&mut rng, 0.1, 50)).collect();
    let runs = Runs::new(seconds.clone()).unwrap();
    let ns = seconds.iter().flatten().map(|s| (s * 1e9).round() as u64);
    let rates = Rates::from_wall_ns(ns).unwrap();
    for (statistic, wanted) in [
        (Statistic::MeanRate, rates.mean),
        (Statistic::RatePercentile(0.5), rates.median),
        (Statistic::RatePercentile(0.05), rates.p5),
        (Statistic::RatePercentile(0.95), rates.p95),
        (Statistic::Mean, 1.0 / rates.mean),
    ] {
        let got = runs.pooled(statistic);
        assert!((got / wanted - 1.0).abs() < 1e-6, "{statistic:?}: {got}, not {wanted}");
    }
    let first = Runs::new([seconds[0].clone()]).unwrap();
    assert_eq!(runs.each(Statistic::MeanRate)[0], first.pooled(Statistic::MeanRate));
}

/// scipy 1.17.1, with `s = numpy.random.default_rng(1)` and blocks of one token, that is without the
/// dependence of neighbours, gives for these 40 values
/// ```python
/// x = numpy.array([0.08 + 0.001 * (i * i % 37) for i in range(40)])
/// rate = lambda x, axis: x.shape[axis] / x.sum(axis=axis)
/// scipy.stats.bootstrap((x,), rate, method="percentile", n_resamples=200000, rng=s).confidence_interval
/// scipy.stats.bootstrap((x,), lambda x, axis: numpy.median(1 / x, axis=axis), method="percentile",
///     n_resamples=200000, rng=s).confidence_interval
/// ```
/// 9.953 to 10.741 and 9.479 to 11.174.
#[test]
fn intervals_are_those_of_the_reference() {
    let x: Vec<f64> = (0..40).map(|i| 0.08 + 0.001 * f64::from(i * i % 37)).collect();
    let mut runs = Runs::new([x]).unwrap();
    runs.runs[0].block = 1;
    let intervals = runs.intervals();
    near(intervals.mean, 9.953, 10.741, 0.03);
    near(intervals.median, 9.479, 11.174, 0.08);
    assert_eq!((intervals.runs, intervals.block_tokens), (1, 1));
}

#[test]
fn the_same_runs_have_the_same_interval_and_runs_that_differ_a_wide_one() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
    let mut cell = |levels: [f64; 4]| {
        Runs::new(levels.map(|level| tokens(&mut rng, 0.1 * level, 64))).unwrap().intervals()
    };
    let alike = cell([1.0; 4]);
    let unlike = cell([0.7, 0.9, 1.1, 1.3]);
    let width = |i: Interval| i.high - i.low;
    assert!(width(unlike.mean) > 2.0 * width(alike.mean), "{unlike:?} {alike:?}");
    let one = Runs::new([vec![0.1, 0.2, 0.3, 0.2, 0.1, 0.2]]).unwrap();
    assert_eq!(one.intervals(), one.intervals());
    assert_eq!(
        Runs::new([vec![0.25; 30], vec![0.25; 30]]).unwrap().intervals().p5,
        Interval { low: 4.0, high: 4.0 }
    );
}

#[test]
fn pairing_takes_the_tokens_out_of_a_ratio() {
    // The same tokens twice, each 10 % faster the second time; some tokens take thrice as long.
    let slow: Vec<f64> = (0..120).map(|i| if i % 7 == 0 { 0.3 } else { 0.1 }).collect();
    let fast: Vec<f64> = slow.iter().map(|s| s / 1.1).collect();
    let (slow, fast) = (Runs::new([slow]).unwrap(), Runs::new([fast]).unwrap());
    near(slow.ratio(&fast, Statistic::MeanRate, true), 1.1, 1.1, 1e-9);
    let Interval { low, high } = slow.ratio(&fast, Statistic::MeanRate, false);
    assert!(low < 1.05 && high > 1.15, "{low} to {high}");
}

#[test]
fn runs_without_values_are_passed_over() {
    assert_eq!(Runs::new([vec![], vec![]]), None);
    assert_eq!(Runs::new([vec![], vec![0.5]]).unwrap().runs(), 1);
    assert_eq!(Runs::new([vec![f64::NAN]]), None);
}

/// How often an interval holds the truth: `cargo test -p bmoe -p bmoe-analysis --lib -- --ignored
/// --nocapture coverage`. `docs/method.md` quotes it.
#[test]
#[ignore = "a simulation, for the documentation"]
fn coverage() {
    for runs in [1, 2, 3, 4, 5, 8] {
        for between in [0.0, 0.03] {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
            let cells = 400;
            let held = (0..cells).filter(|_| {
                let cell = (0..runs).map(|_| {
                    let level = 0.1 * (1.0 + between * normal(&mut rng));
                    tokens(&mut rng, level, 128)
                });
                let cell: Vec<Vec<f64>> = cell.collect();
                let Interval { low, high } = Runs::new(cell).unwrap().intervals().mean;
                low <= 10.0 && 10.0 <= high
            });
            let share = 100.0 * held.count() as f64 / f64::from(cells);
            println!("{runs} runs, {between} between them: {share:.0} % of the intervals");
        }
    }
}
