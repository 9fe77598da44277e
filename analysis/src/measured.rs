//! A result folder's journal and data, read for a report or a comparison.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cells::{Cell, group};
use crate::data::{DataReader, RunRow, TokenRow, ingest};
use crate::error::Result;
use crate::journal::Journal;
use crate::result_set::CellRecord;

/// What a folder holds of its attempts.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// `cells.jsonl`.
    pub journal: Journal,
    /// Runs by `run_id`.
    pub runs: BTreeMap<String, RunRow>,
    /// Their decode steps.
    pub tokens: BTreeMap<String, Vec<TokenRow>>,
}

impl Measured {
    /// Reads a result folder. Builds its Parquet files first when one of them is missing.
    ///
    /// # Errors
    /// The folder is no result folder, or one of its files is missing, damaged or of another version; the
    /// error names the file and what to do.
    pub fn read(dir: &Path) -> Result<Self> {
        let journal = Journal::read(dir)?;
        let reader = DataReader::new(dir);
        if !reader.exists() {
            ingest(dir)?;
        }
        let runs = reader.runs()?.into_iter().collect();
        Ok(Self { journal, runs, tokens: reader.tokens()? })
    }

    /// The cells, in the order in which the runner first started them.
    #[must_use]
    pub fn cells(&self) -> Vec<Cell<'_>> {
        group(&self.journal.records)
    }

    /// The row of an attempt's run; `None` when the data don't hold it.
    #[must_use]
    pub fn row_of(&self, attempt: &CellRecord) -> Option<&RunRow> {
        self.runs.get(attempt.run_id.as_deref()?)
    }

    /// The decode steps of an attempt's run.
    #[must_use]
    pub fn tokens_of(&self, attempt: &CellRecord) -> &[TokenRow] {
        let run_id = attempt.run_id.as_deref().unwrap_or_default();
        self.tokens.get(run_id).map_or(&[], Vec::as_slice)
    }

    /// The runs of a cell's valid attempts, by repetition.
    #[must_use]
    pub fn valid_runs<'a>(&'a self, cell: &Cell<'a>) -> Vec<(&'a RunRow, &'a [TokenRow])> {
        let valid = cell
            .attempts
            .iter()
            .copied()
            .filter(|a| a.verdict == crate::result_set::Verdict::Valid);
        valid.filter_map(|a| Some((self.row_of(a)?, self.tokens_of(a)))).collect()
    }
}
