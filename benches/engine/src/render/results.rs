//! The data, by contender.

use crate::data::{Ceiling, Entry, Environment, Run, Settings};

use super::stats::median;

/// All that was measured.
pub struct Results<'a> {
    /// What was measured, on what.
    pub environment: &'a Environment,
    /// The measurements.
    pub entries: &'a [Entry],
}

impl<'a> Results<'a> {
    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &'a Settings {
        &self.environment.settings
    }

    /// The entries of a contender, failed ones too.
    pub fn of(&self, name: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |e| e.name == name)
    }

    /// The runs of a contender that came to their end.
    pub fn runs(&self, name: &'a str) -> impl Iterator<Item = &'a Run> {
        self.of(name).filter_map(|e| e.run.as_ref())
    }

    /// The median over a contender's runs.
    #[must_use]
    pub fn median(&self, name: &'a str, figure: impl Fn(&Run) -> f64) -> Option<f64> {
        median(&self.runs(name).map(figure).collect::<Vec<_>>())
    }

    /// A contender's rate in every run, tokens per second.
    #[must_use]
    pub fn rates(&self, name: &'a str) -> Vec<f64> {
        self.runs(name).map(rate).collect()
    }

    /// The median of them.
    #[must_use]
    pub fn rate(&self, name: &'a str) -> Option<f64> {
        median(&self.rates(name))
    }

    /// The disk's ceiling for the slices of one token, MiB/s: all its bytes over the time that the slices of
    /// each size take at the median rate of that size.
    #[must_use]
    pub fn ceiling_mib_s(&self) -> Option<f64> {
        let found: Vec<&Ceiling> =
            self.entries.iter().filter_map(|e| e.ceiling.as_ref()).flatten().collect();
        let (mut mib, mut seconds) = (0.0, 0.0);
        for slice in &self.environment.model.slices {
            let rates: Vec<f64> = found
                .iter()
                .filter(|c| c.bytes == slice.bytes && c.lanes == self.settings().lanes)
                .map(|c| c.mib_s)
                .collect();
            let size = (slice.bytes * slice.per_token) as f64 / f64::from(1 << 20);
            mib += size;
            seconds += size / median(&rates)?;
        }
        Some(mib / seconds)
    }
}

/// Tokens over seconds.
#[must_use]
pub fn rate(run: &Run) -> f64 {
    let wall = &run.steps.wall_ns;
    wall.len() as f64 / (sum(wall) / 1e9)
}

/// A column's sum.
#[must_use]
pub fn sum(column: &[u64]) -> f64 {
    column.iter().sum::<u64>() as f64
}

/// The wall time of steps in which the cache was as full as it got (99 %), in nanoseconds: all, where there is no
/// cache.
pub fn steady_ns(run: &Run) -> impl Iterator<Item = u64> {
    let steps = &run.steps;
    let full = steps.cache_resident_bytes.iter().copied().max().unwrap_or(0) / 100 * 99;
    let from = steps.cache_resident_bytes.iter().position(|b| *b >= full).unwrap_or(0);
    steps.wall_ns.iter().skip(from).copied()
}
