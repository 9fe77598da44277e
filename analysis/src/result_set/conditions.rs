//! What surrounded an attempt: the target's state before and after it, and the extremes in between.

use serde::{Deserialize, Serialize};

/// State and extremes of the target around one attempt. `None` = nobody looked, or the target does not tell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// Just before the engine started, the gate behind it.
    pub entry: State,
    /// Just after it ended; `None` = the target was lost, or the runner ended before it could look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<State>,
    /// Lowest MemAvailable of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_available_floor_bytes: Option<u64>,
    /// Highest resident memory of the engine, as sampled; its own figure is in the trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_rss_bytes: Option<u64>,
    /// Most swap of the system in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_peak_bytes: Option<u64>,
    /// Pages that the system read from swap, from entry to exit (`pswpin` of /proc/vmstat).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_in_pages: Option<u64>,
    /// Pages that the system wrote to swap, from entry to exit (`pswpout`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_out_pages: Option<u64>,
    /// Highest temperature of the CPU, thousandths of a degree Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_temperature_peak_millic: Option<i32>,
    /// Lowest `scaling_max_freq` of the fastest cluster, kHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_floor_khz: Option<u32>,
    /// Highest memory pressure, in per cent of a ten-second average (`some avg10` of /proc/pressure/memory).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psi_memory_peak_pct: Option<f64>,
    /// Battery at entry, per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub battery_pct_start: Option<u32>,
    /// Battery at exit, per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub battery_pct_end: Option<u32>,
    /// Samples that the extremes are of; 0 = no extreme was looked for.
    pub samples: u32,
    /// What was waited for before the attempt; `None` = nothing had to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
}

/// The target at one moment. `None` = the target does not tell, which `unavailable` says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Hottest CPU sensor, thousandths of a degree Celsius. Never the battery's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_temperature_millic: Option<i32>,
    /// MemAvailable of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_available_bytes: Option<u64>,
    /// Swap of the system in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_used_bytes: Option<u64>,
    /// `scaling_max_freq` of each CPU cluster, kHz, in the order of their first cores.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub max_clock_khz: Vec<u32>,
    /// Load average of the last minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_average: Option<f64>,
    /// Names of the sensors that the target lacks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unavailable: Vec<String>,
}

/// The wait for the target to be as it was at the start of the matrix.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gate {
    /// Time waited; 0 = the gate was open.
    pub waited_s: f64,
    /// What was still amiss when the wait ended at its bound; `None` = all was well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gave_up: Option<String>,
    /// Names of the sensors that decided.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used: Vec<String>,
    /// Names of the sensors that would have, if the target had them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unavailable: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_measured_is_not_written_and_reads_back_as_not_measured() {
        let bare = Conditions::default();
        let json = serde_json::to_string(&bare).unwrap();
        assert_eq!(json, r#"{"entry":{},"samples":0}"#);
        assert_eq!(serde_json::from_str::<Conditions>(&json).unwrap(), bare);
        assert_eq!(serde_json::from_str::<Conditions>("{}").unwrap(), bare);
    }

    #[test]
    fn everything_survives_being_written() {
        let state = State {
            cpu_temperature_millic: Some(41_500),
            mem_available_bytes: Some(3 << 30),
            swap_used_bytes: Some(1 << 20),
            max_clock_khz: vec![1_800_000, 2_800_000],
            load_average: Some(0.75),
            unavailable: vec!["psi".into()],
        };
        let full = Conditions {
            entry: state.clone(),
            exit: Some(state),
            mem_available_floor_bytes: Some(1 << 30),
            peak_rss_bytes: Some(2 << 30),
            swap_peak_bytes: Some(5 << 20),
            swap_in_pages: Some(3),
            swap_out_pages: Some(4),
            cpu_temperature_peak_millic: Some(63_000),
            clock_floor_khz: Some(2_000_000),
            psi_memory_peak_pct: Some(12.5),
            battery_pct_start: Some(80),
            battery_pct_end: Some(79),
            samples: 61,
            gate: Some(Gate {
                waited_s: 12.5,
                gave_up: Some("CPU at 45.0 °C, wanted 40.0 °C".into()),
                used: vec!["cpu_temperature".into()],
                unavailable: vec!["clock".into()],
            }),
        };
        let json = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<Conditions>(&json).unwrap(), full);
    }
}
