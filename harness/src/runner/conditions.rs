//! From samples of a device to what is kept of them.

use bmoe_analysis::result_set::{Conditions, Gate, LoadAverage, State};
use bmoe_trace::supervised::Sample;

/// Names of what a device may lack, as records have them.
pub(super) mod sensor {
    pub(crate) const CPU_TEMPERATURE: &str = "cpu_temperature";
    pub(crate) const MEM_AVAILABLE: &str = "mem_available";
    pub(crate) const MAX_CLOCK: &str = "max_clock";
}

/// What a record holds of a sample.
pub(super) fn state(sample: &Sample) -> State {
    let lacks = [
        (sensor::CPU_TEMPERATURE, sample.cpu_temperature_millic.is_none()),
        (sensor::MEM_AVAILABLE, sample.mem_available_bytes.is_none()),
        (sensor::MAX_CLOCK, sample.max_clocks_khz.is_empty()),
        ("swap", sample.swap_used_bytes.is_none()),
        ("psi", sample.psi_memory_some_pct.is_none()),
        ("battery", sample.battery_pct.is_none()),
    ];
    State {
        cpu_temperature_millic: sample.cpu_temperature_millic,
        mem_available_bytes: sample.mem_available_bytes,
        swap_used_bytes: sample.swap_used_bytes,
        max_clock_khz: sample.max_clocks_khz.clone(),
        load_average: sample.load_average,
        unavailable: lacks
            .into_iter()
            .filter(|(_, lacks)| *lacks)
            .map(|(name, _)| name.to_owned())
            .collect(),
    }
}

/// The samples of one attempt, taken one by one.
#[derive(Debug, Default)]
pub(super) struct Watch {
    conditions: Conditions,
    first: Option<Sample>,
    last: Option<Sample>,
}

impl Watch {
    /// A watch over an attempt that began like this.
    pub(super) fn new(entry: State, gate: Option<Gate>) -> Self {
        Self { conditions: Conditions { entry, gate, ..Conditions::default() }, ..Self::default() }
    }

    pub(super) fn take(&mut self, sample: &Sample) {
        let c = &mut self.conditions;
        c.samples += 1;
        c.mem_available_floor_bytes =
            least(c.mem_available_floor_bytes, sample.mem_available_bytes);
        c.peak_rss_bytes = c.peak_rss_bytes.max(sample.rss_bytes);
        c.swap_peak_bytes = c.swap_peak_bytes.max(sample.swap_used_bytes);
        c.cpu_temperature_peak_millic =
            c.cpu_temperature_peak_millic.max(sample.cpu_temperature_millic);
        c.clock_floor_khz = least(c.clock_floor_khz, sample.max_clocks_khz.iter().max().copied());
        c.psi_memory_peak_pct = [c.psi_memory_peak_pct, sample.psi_memory_some_pct]
            .into_iter()
            .flatten()
            .reduce(f64::max);
        self.first.get_or_insert_with(|| sample.clone());
        self.last = Some(sample.clone());
    }

    /// How busy the machine was before the engine started and when it had ended.
    pub(super) fn load_average(&self) -> Option<LoadAverage> {
        let load = |sample: &Option<Sample>| sample.as_ref()?.load_average;
        Some(LoadAverage { start: load(&self.first)?, end: load(&self.last)? })
    }

    pub(super) fn conditions(&self) -> Conditions {
        let Some((first, last)) = self.first.as_ref().zip(self.last.as_ref()) else {
            return self.conditions.clone();
        };
        let came = |of: fn(&Sample) -> Option<u64>| Some(of(last)?.saturating_sub(of(first)?));
        Conditions {
            exit: Some(state(last)),
            swap_in_pages: came(|s| s.swap_in_pages),
            swap_out_pages: came(|s| s.swap_out_pages),
            battery_pct_start: first.battery_pct,
            battery_pct_end: last.battery_pct,
            ..self.conditions.clone()
        }
    }
}

fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    a.into_iter().chain(b).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_and_differences_are_kept_and_what_is_absent_stays_so() {
        let mut watch = Watch::new(State::default(), None);
        for (available, out, clocks) in [(9, 4, [1, 8]), (5, 4, [1, 6]), (7, 11, [1, 8])] {
            watch.take(&Sample {
                mem_available_bytes: Some(available),
                swap_out_pages: Some(out),
                max_clocks_khz: clocks.to_vec(),
                ..Sample::default()
            });
        }
        let c = watch.conditions();
        assert_eq!(
            (c.samples, c.mem_available_floor_bytes, c.swap_out_pages),
            (3, Some(5), Some(7))
        );
        assert_eq!((c.clock_floor_khz, c.cpu_temperature_peak_millic), (Some(6), None));
        let exit = c.exit.unwrap();
        assert_eq!(exit.mem_available_bytes, Some(7));
        assert!(exit.unavailable.contains(&"cpu_temperature".to_owned()));
        assert_eq!(watch.load_average(), None);
    }
}
