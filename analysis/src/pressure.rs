//! What a cell's attempts did to the target, and the target to them.

use crate::data::{RunRow, TokenRow};
use crate::result_set::{CellRecord, Conditions, State};
use crate::stats::mean;

/// Extremes over all attempts at a cell, valid or not, of what was sampled beside them and of what their
/// traces recorded. `None` = nobody measured it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pressure {
    /// Attempts looked at.
    pub attempts: usize,
    /// Highest resident memory of the engine.
    pub peak_rss_bytes: Option<u64>,
    /// Lowest MemAvailable.
    pub mem_available_floor_bytes: Option<u64>,
    /// Most swap of the system in use, or of the engine where the system's was not sampled.
    pub swap_peak_bytes: Option<u64>,
    /// Most pages swapped in and out during an attempt.
    pub swapped_pages: Option<u64>,
    /// Major page faults of an average decode token.
    pub major_faults: Option<f64>,
    /// Temperature of the CPU before the engine started, mean of the attempts, °C.
    pub temperature_in_c: Option<f64>,
    /// When it had ended.
    pub temperature_out_c: Option<f64>,
    /// Highest in between.
    pub temperature_peak_c: Option<f64>,
    /// Lowest limit of the fastest cluster's clock, kHz.
    pub clock_floor_khz: Option<u32>,
    /// Highest memory pressure, per cent.
    pub psi_memory_pct: Option<f64>,
    /// Longest wait at the gate.
    pub waited_s: Option<f64>,
    /// Waits that ended at their bound.
    pub gave_up: usize,
}

impl Pressure {
    /// Of attempts with their runs; an attempt may have none.
    #[must_use]
    pub fn of(attempts: &[(&CellRecord, Option<&RunRow>, &[TokenRow])]) -> Self {
        let conditions = || attempts.iter().filter_map(|(a, ..)| a.conditions.as_ref());
        let tokens = || attempts.iter().flat_map(|(_, _, tokens)| tokens.iter());
        let highest = |of: fn(&Conditions) -> Option<u64>| conditions().filter_map(of).max();
        let runs = attempts.iter().filter_map(|(_, run, _)| run.and_then(|r| r.peak_rss_bytes));
        let celsius = |of: fn(&Conditions) -> Option<&State>| {
            let states = conditions().filter_map(of);
            let degrees = states.filter_map(|s| s.cpu_temperature_millic).map(degrees);
            mean(&degrees.collect::<Vec<_>>())
        };
        let count = tokens().count();
        let swapped = |c: &Conditions| match (c.swap_in_pages, c.swap_out_pages) {
            (None, None) => None,
            (read, written) => Some(read.unwrap_or(0) + written.unwrap_or(0)),
        };
        let waits = || conditions().filter_map(|c| c.gate.as_ref());
        Self {
            attempts: attempts.len(),
            peak_rss_bytes: runs.chain(highest(|c| c.peak_rss_bytes)).max(),
            mem_available_floor_bytes: conditions()
                .filter_map(|c| c.mem_available_floor_bytes)
                .chain(tokens().filter_map(|t| t.mem_available_bytes))
                .min(),
            swap_peak_bytes: highest(|c| c.swap_peak_bytes)
                .or_else(|| tokens().filter_map(|t| t.swap_bytes).max()),
            swapped_pages: highest(swapped),
            major_faults: (count > 0)
                .then(|| tokens().map(|t| t.major_faults).sum::<u64>() as f64 / count as f64),
            temperature_in_c: celsius(|c| Some(&c.entry)),
            temperature_out_c: celsius(|c| c.exit.as_ref()),
            temperature_peak_c: conditions()
                .filter_map(|c| c.cpu_temperature_peak_millic)
                .max()
                .map(degrees),
            clock_floor_khz: conditions().filter_map(|c| c.clock_floor_khz).min(),
            psi_memory_pct: conditions()
                .filter_map(|c| c.psi_memory_peak_pct)
                .max_by(f64::total_cmp),
            waited_s: waits().map(|gate| gate.waited_s).max_by(f64::total_cmp),
            gave_up: waits().filter(|gate| gate.gave_up.is_some()).count(),
        }
    }
}

fn degrees(millic: i32) -> f64 {
    f64::from(millic) / 1000.0
}
