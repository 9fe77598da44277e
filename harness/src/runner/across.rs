//! What is only seen when cells stand beside each other.

use std::collections::BTreeMap;
use std::path::Path;

use bmoe_analysis::measured::Measured;
use bmoe_analysis::result_set::{CellRecord, Verdict};
use bmoe_analysis::tells::{self, Finding, Tell};

use super::journal::Journal;
use crate::error::Error;

fn read(folder: &Path) -> Result<Measured, Error> {
    bmoe_analysis::ingest(folder)?;
    Ok(Measured::read(folder)?)
}

/// The last attempt at each run.
fn last(records: &[CellRecord]) -> Vec<&CellRecord> {
    let mut last: BTreeMap<(&str, u32), &CellRecord> = BTreeMap::new();
    for record in records {
        last.insert((&record.id, record.repetition), record);
    }
    last.into_values().collect()
}

/// Valid runs of cells with ten times the major faults of comparable ones are recorded once more, as faulting.
/// Gives those records.
///
/// # Errors
/// The folder can't be read or written.
pub fn judge_across(folder: &Path) -> Result<Vec<CellRecord>, Error> {
    let (mut journal, past) = Journal::open(folder).map_err(super::RunnerError::from)?;
    if !past.records.iter().any(|record| record.run_id.is_some()) {
        return Ok(Vec::new());
    }
    let measured = read(folder)?;
    let findings = tells::of_folder(&measured);
    let mut judged = Vec::new();
    for record in last(&measured.journal.records) {
        let jump = |f: &&Finding| f.tell == Tell::FaultsJump && f.id == record.id;
        if let Some(finding) = findings.iter().find(jump)
            && record.verdict == Verdict::Valid
        {
            let evidence = Some(finding.evidence.clone());
            let again =
                CellRecord { verdict: Verdict::Faulting, reason: evidence, ..record.clone() };
            journal.record(&again).map_err(super::RunnerError::from)?;
            judged.push(again);
        }
    }
    Ok(judged)
}

/// Cells that something else than themselves may have slowed down, by id, with the evidence.
///
/// # Errors
/// The folder can't be read.
pub fn suspects(folder: &Path) -> Result<Vec<(String, String)>, Error> {
    let measured = read(folder)?;
    let mut found: Vec<(String, String)> =
        tells::of_folder(&measured).into_iter().map(|f| (f.id, f.evidence)).collect();
    for record in last(&measured.journal.records) {
        if matches!(record.verdict, Verdict::Faulting | Verdict::Throttled | Verdict::Swapped) {
            let reason = record.reason.as_deref().unwrap_or_default();
            let evidence = format!("{}: {}: {reason}", record.name, record.verdict.words());
            found.push((record.id.clone(), evidence));
        }
    }
    Ok(found)
}
