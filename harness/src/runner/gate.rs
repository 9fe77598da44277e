//! Whether a device is fit for the next run: as it was when the matrix began, or as somebody wanted it.

use std::time::Duration;

use bmoe_analysis::result_set::State;

use super::conditions::sensor;

/// A CPU that is not more than so much warmer than it was counts as cooled down: the last degrees take minutes.
const WARMER_MILLIC: i32 = 5_000;
/// A device that has this share of the memory it had counts as recovered.
const MEMORY_SHARE: f64 = 0.8;

/// When the next run may begin. `None` = as it was when the matrix began.
#[derive(Debug, Clone, PartialEq)]
pub struct GateRules {
    /// Nothing is waited for.
    pub off: bool,
    /// The CPU is not hotter.
    pub cpu_temperature_c: Option<f64>,
    /// At least so much memory can be had.
    pub mem_available_mib: Option<u64>,
    /// `scaling_max_freq` of each cluster is at least so many per cent of what it was.
    pub max_clock_pct: Option<f64>,
    /// The longest wait.
    pub max_wait: Duration,
    /// Time between two looks.
    pub poll: Duration,
}

impl Default for GateRules {
    fn default() -> Self {
        Self {
            off: false,
            cpu_temperature_c: None,
            mem_available_mib: None,
            max_clock_pct: None,
            max_wait: Duration::from_secs(180),
            poll: Duration::from_secs(2),
        }
    }
}

/// What a look at a device says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// What is not as it should be, for people.
    pub(super) amiss: Vec<String>,
    /// Sensors that decided.
    pub(super) used: Vec<String>,
    /// Sensors that would have, if there were any.
    pub(super) unavailable: Vec<String>,
}

impl GateRules {
    pub(super) fn look(&self, baseline: &State, now: &State) -> Look {
        let mut look = Look::default();
        if self.off {
            return look;
        }
        let limit = self.cpu_temperature_c.map(millic);
        let limit = limit.or_else(|| Some(baseline.cpu_temperature_millic? + WARMER_MILLIC));
        look.judge(sensor::CPU_TEMPERATURE, now.cpu_temperature_millic.zip(limit), |is, limit| {
            let told = || format!("CPU at {}, wanted {} or less", celsius(is), celsius(limit));
            (is > limit).then(told)
        });
        let floor = self.mem_available_mib.map(|mib| mib << 20);
        let floor = floor.or_else(|| Some(share(baseline.mem_available_bytes?)));
        look.judge(sensor::MEM_AVAILABLE, now.mem_available_bytes.zip(floor), |is, floor| {
            let told = || format!("{} MiB available, wanted {}", is >> 20, floor >> 20);
            (is < floor).then(told)
        });
        let pct = self.max_clock_pct.unwrap_or(100.0);
        let clusters: Vec<(u32, u32)> =
            now.max_clock_khz.iter().copied().zip(baseline.max_clock_khz.iter().copied()).collect();
        let held = |(is, was): &(u32, u32)| f64::from(*is) * 100.0 < f64::from(*was) * pct;
        look.judge(sensor::MAX_CLOCK, (!clusters.is_empty()).then_some((0, 0)), |_, _| {
            clusters
                .iter()
                .find(|c| held(c))
                .map(|(is, was)| format!("clock held at {} MHz, was {}", is / 1000, was / 1000))
        });
        look
    }
}

impl Look {
    fn judge<T: Copy>(
        &mut self,
        sensor: &str,
        reading: Option<(T, T)>,
        amiss: impl FnOnce(T, T) -> Option<String>,
    ) {
        match reading {
            Some((is, wanted)) => {
                self.used.push(sensor.to_owned());
                self.amiss.extend(amiss(is, wanted));
            }
            None => self.unavailable.push(sensor.to_owned()),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "temperatures are small")]
fn millic(celsius: f64) -> i32 {
    (celsius * 1000.0) as i32
}

fn celsius(millic: i32) -> String {
    format!("{:.1} °C", f64::from(millic) / 1000.0)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of memory need not be exact"
)]
fn share(bytes: u64) -> u64 {
    (bytes as f64 * MEMORY_SHARE) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(millic: Option<i32>, mib: Option<u64>, clocks: &[u32]) -> State {
        State {
            cpu_temperature_millic: millic,
            mem_available_bytes: mib.map(|mib| mib << 20),
            max_clock_khz: clocks.to_vec(),
            ..State::default()
        }
    }

    #[test]
    fn a_device_must_be_as_it_was() {
        let was = state(Some(40_000), Some(8000), &[1_800_000, 2_800_000]);
        let rules = GateRules::default();
        let amiss = |now: &State| rules.look(&was, now).amiss;
        assert_eq!(amiss(&was), Vec::<String>::new());
        assert_eq!(amiss(&state(Some(44_900), Some(6500), &[1_800_000, 2_800_000])), [""; 0]);
        assert_eq!(
            amiss(&state(Some(46_000), Some(6000), &[1_800_000, 2_400_000])),
            [
                "CPU at 46.0 °C, wanted 45.0 °C or less",
                "6000 MiB available, wanted 6400",
                "clock held at 2400 MHz, was 2800",
            ]
        );
    }

    #[test]
    fn thresholds_replace_the_baseline() {
        let rules = GateRules {
            cpu_temperature_c: Some(50.0),
            mem_available_mib: Some(100),
            max_clock_pct: Some(80.0),
            ..GateRules::default()
        };
        let was = state(Some(20_000), Some(8000), &[1000]);
        assert_eq!(rules.look(&was, &state(Some(49_000), Some(101), &[801])).amiss, [""; 0]);
        assert_eq!(rules.look(&was, &state(Some(51_000), Some(99), &[799])).amiss.len(), 3);
        assert_eq!(GateRules { off: true, ..rules }.look(&was, &was), Look::default());
    }

    #[test]
    fn a_sensor_that_is_not_there_decides_nothing_and_is_named() {
        let machine = state(None, Some(8000), &[]);
        let look = GateRules::default().look(&machine, &machine);
        assert_eq!(look.used, ["mem_available"]);
        assert_eq!(look.unavailable, ["cpu_temperature", "max_clock"]);
    }
}
