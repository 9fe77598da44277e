//! Bootstrap intervals of a cell's figures, and of the ratio of two cells' figures.
//!
//! A resample draws as many runs as there are, with replacement, and then the tokens of each drawn run in
//! blocks that may start at any token and go on at the first one behind the last (the circular block
//! bootstrap: Politis & Romano, "A circular block-resampling procedure for stationary data", 1992). Blocks
//! keep what neighbouring tokens share; their length is [`block_length`]'s, the longest of the runs'. An
//! interval lies between the percentiles 2.5 and 97.5 of the statistic over all resamples (the percentile
//! interval: Efron & Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13). It goes through
//! 1 / x and logarithms unchanged, so that rates and times have the same one. BCa's acceleration would have
//! to be estimated from the runs, which are a handful.
//!
//! The generator begins with [`SEED`] for every interval: the same runs have the same interval, anywhere.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::{block_length, percentile};

/// Where every generator begins.
pub const SEED: u64 = 1979;

/// Resamples behind an interval.
pub const RESAMPLES: usize = 4000;

/// Ends of an interval, as percentiles of the resamples: 95 % lie between them.
const ENDS: (f64, f64) = (0.025, 0.975);

/// A 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// What is computed of the values of all runs together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Statistic {
    /// Values are seconds: their number over their sum.
    MeanRate,
    /// Values are seconds: this percentile (0 to 1) of 1 / value.
    RatePercentile(f64),
    /// Sum over number.
    Mean,
}

/// A cell's values, run by run; for resampling.
#[derive(Debug, Clone, PartialEq)]
pub struct Runs {
    runs: Vec<Run>,
    /// 1 / value of all runs, ascending.
    rates: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq)]
struct Run {
    /// Sums of the first 0, 1, 2 ... values.
    sums: Vec<f64>,
    /// Place of each value's reciprocal among [`Runs::rates`].
    places: Vec<usize>,
    block: usize,
}

/// Intervals of the figures of a benchmark table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Intervals {
    /// Of the mean rate.
    pub mean: Interval,
    /// Of the median rate of single tokens.
    pub median: Interval,
    /// Of the 5th percentile.
    pub p5: Interval,
    /// Of the 95th percentile.
    pub p95: Interval,
    /// Runs resampled. With one, what differs from run to run is not in the intervals.
    pub runs: usize,
    /// Tokens per block.
    pub block_tokens: usize,
}

/// Parts of a run, as (run, first value, number of values).
type Draw<'a> = &'a mut dyn FnMut(usize, usize, usize);

impl Runs {
    /// From the values of each run; runs without any are passed over. `None` when nothing is left, or a
    /// value is not above zero where rates are wanted of it.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = Vec<f64>>) -> Option<Self> {
        let values: Vec<Vec<f64>> = values.into_iter().filter(|run| !run.is_empty()).collect();
        let mut order: Vec<(f64, usize, usize)> = Vec::new();
        for (run, values) in values.iter().enumerate() {
            order.extend(values.iter().enumerate().map(|(token, v)| (1.0 / v, run, token)));
        }
        if order.is_empty() || values.iter().flatten().any(|v| !v.is_finite()) {
            return None;
        }
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut runs: Vec<Run> = values
            .iter()
            .map(|values| {
                let mut sum = 0.0;
                let sums = std::iter::once(0.0).chain(values.iter().map(|v| {
                    sum += v;
                    sum
                }));
                Run {
                    sums: sums.collect(),
                    places: vec![0; values.len()],
                    block: block_length(values),
                }
            })
            .collect();
        for (place, (_, run, token)) in order.iter().enumerate() {
            runs[*run].places[*token] = place;
        }
        Some(Self { runs, rates: order.into_iter().map(|(rate, ..)| rate).collect() })
    }

    /// Number of runs.
    #[must_use]
    pub const fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Tokens per block.
    #[must_use]
    pub fn block_tokens(&self) -> usize {
        self.runs.iter().map(|run| run.block).max().unwrap_or(1)
    }

    /// The statistic of each run by itself.
    #[must_use]
    pub fn each(&self, statistic: Statistic) -> Vec<f64> {
        let mut tally = Tally::new(self, statistic);
        let of_run = |(index, run): (usize, &Run)| {
            tally.clear();
            tally.add(self, index, 0, run.len());
            tally.value(self, statistic)
        };
        self.runs.iter().enumerate().map(of_run).collect()
    }

    /// The statistic of all runs together.
    #[must_use]
    pub fn pooled(&self, statistic: Statistic) -> f64 {
        let mut tally = Tally::new(self, statistic);
        for (index, run) in self.runs.iter().enumerate() {
            tally.add(self, index, 0, run.len());
        }
        tally.value(self, statistic)
    }

    /// Intervals of the benchmark table's figures; the values are seconds per token.
    #[must_use]
    pub fn intervals(&self) -> Intervals {
        let statistics = [
            Statistic::MeanRate,
            Statistic::RatePercentile(0.5),
            Statistic::RatePercentile(0.05),
            Statistic::RatePercentile(0.95),
        ];
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let mut tally = Tally::new(self, statistics[1]);
        let mut found = [const { Vec::new() }; 4];
        for _ in 0..RESAMPLES {
            tally.clear();
            self.draw(&mut rng, &mut |run, first, count| tally.add(self, run, first, count));
            for (values, statistic) in found.iter_mut().zip(statistics) {
                values.push(tally.value(self, statistic));
            }
        }
        let [mean, median, p5, p95] = found.map(ends);
        let (runs, block_tokens) = (self.runs(), self.block_tokens());
        Intervals { mean, median, p5, p95, runs, block_tokens }
    }

    /// The interval of this statistic of `other` over that of `self`.
    ///
    /// With `paired`, the blocks of every resample lie at the same tokens in all runs of both, which takes out
    /// of the ratio what the tokens themselves cost. It means something when all of them decoded the same
    /// tokens; runs of different lengths are never paired.
    #[must_use]
    pub fn ratio(&self, other: &Self, statistic: Statistic, paired: bool) -> Interval {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let (mut below, mut above) = (Tally::new(self, statistic), Tally::new(other, statistic));
        let length = Some(self.runs[0].len())
            .filter(|n| paired && self.runs.iter().chain(&other.runs).all(|run| run.len() == *n));
        let block = self.block_tokens().max(other.block_tokens());
        let mut starts = Vec::new();
        let ratios = (0..RESAMPLES).map(|_| {
            below.clear();
            above.clear();
            match length {
                Some(length) => {
                    starts.clear();
                    starts.extend((0..length.div_ceil(block)).map(|_| index(&mut rng, length)));
                    self.draw_at(&mut rng, &starts, block, &mut |run, first, count| {
                        below.add(self, run, first, count);
                    });
                    other.draw_at(&mut rng, &starts, block, &mut |run, first, count| {
                        above.add(other, run, first, count);
                    });
                }
                None => {
                    self.draw(&mut rng, &mut |run, first, count| {
                        below.add(self, run, first, count);
                    });
                    other.draw(&mut rng, &mut |run, first, count| {
                        above.add(other, run, first, count);
                    });
                }
            }
            above.value(other, statistic) / below.value(self, statistic)
        });
        ends(ratios.collect())
    }

    /// One resample: runs, and blocks of each by itself.
    fn draw(&self, rng: &mut Xoshiro256PlusPlus, visit: Draw<'_>) {
        let block = self.block_tokens();
        for _ in 0..self.runs.len() {
            let run = index(rng, self.runs.len());
            let length = self.runs[run].len();
            let mut left = length;
            while left > 0 {
                let count = block.min(left);
                circular(run, index(rng, length), count, length, visit);
                left -= count;
            }
        }
    }

    /// One resample: runs, and the same blocks of each.
    fn draw_at(
        &self,
        rng: &mut Xoshiro256PlusPlus,
        starts: &[usize],
        block: usize,
        visit: Draw<'_>,
    ) {
        for _ in 0..self.runs.len() {
            let run = index(rng, self.runs.len());
            let length = self.runs[run].len();
            let mut left = length;
            for start in starts {
                let count = block.min(left);
                circular(run, *start, count, length, visit);
                left -= count;
            }
        }
    }
}

impl Run {
    fn len(&self) -> usize {
        self.places.len()
    }
}

/// `count` values from `first` on, the first one again behind the last.
fn circular(run: usize, first: usize, count: usize, length: usize, visit: Draw<'_>) {
    let count = count.min(length);
    let before_the_end = count.min(length - first);
    visit(run, first, before_the_end);
    if before_the_end < count {
        visit(run, 0, count - before_the_end);
    }
}

/// A uniform index below `n`. The generator's word is scaled: for so few values the bias is below 2^-32.
fn index(rng: &mut Xoshiro256PlusPlus, n: usize) -> usize {
    ((u128::from(rng.next_u64()) * n as u128) >> 64) as usize
}

fn ends(mut values: Vec<f64>) -> Interval {
    values.sort_by(f64::total_cmp);
    let at = |p| percentile(&values, p).unwrap_or(f64::NAN);
    Interval { low: at(ENDS.0), high: at(ENDS.1) }
}

/// What a resample holds.
struct Tally {
    count: usize,
    sum: f64,
    /// How often each of [`Runs::rates`]; empty when no percentile is wanted.
    times: Vec<u32>,
}

impl Tally {
    fn new(runs: &Runs, statistic: Statistic) -> Self {
        let counted = matches!(statistic, Statistic::RatePercentile(_));
        Self { count: 0, sum: 0.0, times: vec![0; if counted { runs.rates.len() } else { 0 }] }
    }

    fn clear(&mut self) {
        self.count = 0;
        self.sum = 0.0;
        self.times.fill(0);
    }

    fn add(&mut self, runs: &Runs, run: usize, first: usize, count: usize) {
        let run = &runs.runs[run];
        self.count += count;
        self.sum += run.sums[first + count] - run.sums[first];
        if !self.times.is_empty() {
            for place in &run.places[first..first + count] {
                self.times[*place] += 1;
            }
        }
    }

    fn value(&self, runs: &Runs, statistic: Statistic) -> f64 {
        match statistic {
            Statistic::MeanRate => self.count as f64 / self.sum,
            Statistic::Mean => self.sum / self.count as f64,
            Statistic::RatePercentile(p) => self.percentile(&runs.rates, p),
        }
    }

    /// [`percentile`] of the resample without sorting it.
    fn percentile(&self, rates: &[f64], p: f64) -> f64 {
        let rank = (self.count - 1) as f64 * p;
        let below = rank.floor() as usize;
        let mut passed = 0;
        let mut held = rates.iter().zip(&self.times).filter(|(_, times)| **times > 0);
        let mut at_below = None;
        for (rate, times) in &mut held {
            passed += *times as usize;
            if passed > below {
                at_below = Some(*rate);
                break;
            }
        }
        let Some(at_below) = at_below else { return f64::NAN };
        // The next order statistic is the same value unless this was its last copy.
        let at_above = if passed > below + 1 { None } else { held.next().map(|(rate, _)| *rate) };
        let at_above = at_above.unwrap_or(at_below);
        at_below + (at_above - at_below) * (rank - below as f64)
    }
}

#[cfg(test)]
mod tests;
