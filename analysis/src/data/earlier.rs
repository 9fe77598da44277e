//! What the Parquet files that are there already hold beyond the traces.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Table;
use super::read::DataReader;
use super::rows::{RunRow, TokenRow};
use crate::error::{AnalysisError, Result};

/// Runs that the traces no longer give, or no longer give as far.
#[derive(Default)]
pub(super) struct Earlier {
    pub(super) runs: Vec<(String, RunRow)>,
    pub(super) tokens: BTreeMap<String, Vec<TokenRow>>,
}

impl Earlier {
    /// Looks into `DIR/data`. `traced` are the rows made from traces and `wanted` the journal's runs;
    /// `covered` tells of a run whether its trace gives all that there ever was.
    ///
    /// # Errors
    /// Writing the files anew would lose rows: one of them is missing or can't be read, and the traces
    /// do not make up for it.
    pub(super) fn read<'a>(
        dir: &Path,
        traced: &BTreeMap<String, RunRow>,
        mut wanted: impl Iterator<Item = &'a str>,
        covered: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        let reader = DataReader::new(dir);
        let (there, missing): (Vec<Table>, Vec<Table>) =
            Table::ALWAYS.into_iter().partition(|t| t.path(dir).is_file());
        // Files that can't be read lose nothing when the traces give every run.
        let mut rebuilt = || wanted.all(&covered);
        let Some(table) = missing.first() else {
            return match Self::beyond(&reader, traced) {
                Err(_) if rebuilt() => Ok(Self::default()),
                found => found,
            };
        };
        let lost = match held(&reader, &there) {
            Err(_) if rebuilt() => 0,
            held => held?.iter().filter(|run_id| !covered(run_id)).count(),
        };
        match lost {
            0 => Ok(Self::default()),
            runs => Err(AnalysisError::MissingTable { path: table.path(dir), runs }),
        }
    }

    fn beyond(reader: &DataReader, traced: &BTreeMap<String, RunRow>) -> Result<Self> {
        let mut runs = reader.runs()?;
        runs.retain(|(run_id, row)| match traced.get(run_id) {
            Some(traced) => row.progress() > traced.progress(),
            None => true,
        });
        let tokens = if runs.is_empty() { BTreeMap::new() } else { reader.tokens()? };
        Ok(Self { runs, tokens })
    }
}

/// The runs that some of the files hold: each names all of them in its metadata.
fn held(reader: &DataReader, tables: &[Table]) -> Result<BTreeSet<String>> {
    let mut held = BTreeSet::new();
    for table in tables {
        held.extend(reader.metadata(*table)?.runs.into_keys());
    }
    Ok(held)
}
