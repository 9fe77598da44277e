//! What a log's summary says, held against its rows: a summary that does not fit them is of other rows.

use super::error::{ImportError, Result};
use super::keys::Keys;

/// What the rows of a log come to.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) rows: u64,
    pub(super) wall_ms: f64,
    /// Of the last row that measured it.
    pub(super) hit_pct: Option<f64>,
}

impl Tally {
    /// Refuses a summary that contradicts the rows by more than rounding can.
    pub(super) fn check(&self, line: u64, summary: &Keys) -> Result<()> {
        let wrong = |key: &str, value: String, expected: String| {
            let why = "rows are lost or changed, or it is another log's summary";
            Err(ImportError::key(line, key, value, format!("{expected} ({why})")))
        };
        let said = |key: &str| summary.parsed::<f64>(key).filter(|value| *value >= 0.0);
        if let Some(tokens) = summary.parsed::<u64>("tokens").filter(|n| *n != self.rows) {
            return wrong(
                "tokens",
                tokens.to_string(),
                format!("{}, the number of rows", self.rows),
            );
        }
        // Rates have three decimals, and per token the rows are rounded to a thousandth of a millisecond.
        let rate = self.rows as f64 / (self.wall_ms / 1e3);
        if let Some(rate_said) = said("tok/s").filter(|r| (r - rate).abs() > 0.002 + rate * 1e-3) {
            return wrong(
                "tok/s",
                rate_said.to_string(),
                format!("{rate:.3}, the rate of the rows"),
            );
        }
        // One decimal.
        if let (Some(said), Some(found)) = (said("cache_hit_pct"), self.hit_pct)
            && (said - found).abs() > 0.06
        {
            return wrong(
                "cache_hit_pct",
                said.to_string(),
                format!("{found:.2}, as in the last row"),
            );
        }
        Ok(())
    }
}
