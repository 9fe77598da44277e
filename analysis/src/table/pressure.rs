//! What the attempts did to the target and the target to them, and which of them are not valid.

use super::{NONE, Row, column, mib, name, number, table, text, words};
use crate::markdown::Markdown;
use crate::pressure::Pressure;
use crate::result_set::{CellRecord, Verdict};

const MIB: f64 = 1024.0 * 1024.0;

/// Memory, faults, temperatures and clocks of each cell, over all its attempts; columns of what was measured.
#[must_use]
pub fn pressure(rows: &[Row<'_>]) -> String {
    let any = |has: fn(&Pressure) -> bool| rows.iter().any(|row| has(&row.pressure));
    let bytes = |of: fn(&Pressure) -> Option<u64>| {
        move |row: &Row<'_>| mib(of(&row.pressure).map(|bytes| bytes as f64 / MIB))
    };
    let mut columns = vec![
        words("configuration", name),
        column("attempts", |row| row.pressure.attempts.to_string()),
        column("peak RSS MiB", bytes(|p| p.peak_rss_bytes)),
    ];
    if any(|p| p.mem_available_floor_bytes.is_some()) {
        columns.push(column("MemAvailable floor MiB", bytes(|p| p.mem_available_floor_bytes)));
    }
    if any(|p| p.swap_peak_bytes.is_some()) {
        columns.push(column("swap peak MiB", bytes(|p| p.swap_peak_bytes)));
    }
    if any(|p| p.swapped_pages.is_some()) {
        columns.push(column("pages swapped", |row| text(row.pressure.swapped_pages)));
    }
    columns.push(column("major faults/token", |row| number(row.pressure.major_faults, 1)));
    if any(|p| p.temperature_in_c.or(p.temperature_out_c).is_some()) {
        columns.push(column("CPU °C in → out", |row| {
            let Pressure { temperature_in_c, temperature_out_c, .. } = row.pressure;
            match (temperature_in_c, temperature_out_c) {
                (None, None) => NONE.to_owned(),
                (before, after) => format!("{} → {}", number(before, 1), number(after, 1)),
            }
        }));
    }
    if any(|p| p.temperature_peak_c.is_some()) {
        columns.push(column("peak °C", |row| number(row.pressure.temperature_peak_c, 1)));
    }
    if any(|p| p.clock_floor_khz.is_some()) {
        columns.push(column("clock floor MHz", |row| {
            number(row.pressure.clock_floor_khz.map(|khz| f64::from(khz) / 1e3), 0)
        }));
    }
    if any(|p| p.psi_memory_pct.is_some()) {
        columns.push(column("memory pressure %", |row| number(row.pressure.psi_memory_pct, 1)));
    }
    if any(|p| p.waited_s.is_some()) {
        columns.push(column("longest wait s", |row| {
            let waited = number(row.pressure.waited_s, 1);
            if row.pressure.gave_up > 0 { format!("{waited} (gave up)") } else { waited }
        }));
    }
    columns.push(words("verdict", |row| row.cell.verdicts()));
    table(&columns, rows.iter())
}

/// All attempts that are not valid, those that were repeated since among them; empty without any.
#[must_use]
pub fn not_valid(rows: &[Row<'_>]) -> String {
    let mut table = Markdown::new(&["configuration", "repetition", "attempt", "verdict", "reason"]);
    table.left_aligned(3);
    table.left_aligned(4);
    for row in rows {
        let attempts = row.cell.earlier.iter().chain(&row.cell.attempts).copied();
        let mut attempts: Vec<&CellRecord> =
            attempts.filter(|a| a.verdict != Verdict::Valid).collect();
        attempts.sort_by_key(|a| (a.repetition, a.attempt));
        for attempt in attempts {
            table.row(&[
                name(row),
                (attempt.repetition + 1).to_string(),
                attempt.attempt.to_string(),
                attempt.verdict.words().to_owned(),
                attempt.reason.clone().unwrap_or_else(|| NONE.to_owned()),
            ]);
        }
    }
    table.finish()
}
