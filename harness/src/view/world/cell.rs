//! A cell of a matrix.

use std::collections::BTreeMap;

use bmoe_analysis::result_set::{CellRecord, Verdict};

/// How a cell stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// Nothing has been done.
    #[default]
    Waiting,
    /// A run of it goes on.
    Running,
    /// Some of its runs are over, none goes on.
    Partly,
    /// All its runs are over.
    Over,
}

/// What is known of a cell.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CellView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The model's name within the matrix.
    pub model: String,
    /// Others are compared with it.
    pub baseline: bool,
    /// Runs that it is to have; 0 = not known.
    pub planned: usize,
    /// How it stands.
    pub state: State,
    /// Its attempts that ended, in that order.
    pub attempts: Vec<CellRecord>,
    /// Tokens a second, all tokens of its valid runs pooled.
    pub tok_s: Option<f64>,
    /// Hits over look-ups of its valid runs, 0 to 1.
    pub hit_rate: Option<f64>,
    /// MiB of experts read a token.
    pub read_mib: Option<f64>,
}

impl CellView {
    /// The last attempt at each repetition.
    #[must_use]
    pub fn last_attempts(&self) -> Vec<&CellRecord> {
        let mut last: BTreeMap<u32, &CellRecord> = BTreeMap::new();
        for record in &self.attempts {
            last.insert(record.repetition, record);
        }
        last.into_values().collect()
    }

    /// Repetitions that were tried to an end.
    #[must_use]
    pub fn done(&self) -> usize {
        self.last_attempts().len()
    }

    /// Those of them that came out valid.
    #[must_use]
    pub fn valid(&self) -> usize {
        self.last_attempts().iter().filter(|r| r.verdict == Verdict::Valid).count()
    }
}
