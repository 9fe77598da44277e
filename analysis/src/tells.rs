//! Two tells of a cell that something else than itself slowed down.
//!
//! They need no sensor: each compares cells with what they must look like beside each other. A cell that
//! they name was measured on a device that was busy, hot or short of memory; measured again in another
//! order, what moves was the device.

use std::collections::BTreeMap;

use crate::cells::{Cell, Figures};
use crate::data::RunRow;
use crate::measured::Measured;

/// Figures of a cell, or of one of its runs, that the tells look at.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// The cell's id.
    pub id: String,
    /// Its name, for the evidence.
    pub name: String,
    /// Everything that decides what it computes and how it gets its experts, but for the number of experts
    /// per token: only subjects with the same text here are compared for their compute.
    pub setting: String,
    /// What decides how much memory is mapped and how much work is done, cache and lanes aside: only subjects
    /// with the same text here are compared for their faults.
    pub work: String,
    /// Experts per token.
    pub top_k: u32,
    /// Compute time of an average decode token.
    pub compute_s: f64,
    /// Major page faults of an average decode token.
    pub major_faults: f64,
}

impl Subject {
    /// A cell with its figures and one of its runs; `None` when no token was decoded.
    #[must_use]
    pub fn of(cell: &Cell<'_>, run: &RunRow, figures: &Figures) -> Option<Self> {
        let per_token = figures.per_token?;
        let config = cell.config;
        let top_k = match config.n_expert_used {
            0 => run.n_expert_used,
            n => n,
        };
        let mut setting = serde_json::to_value(config).unwrap_or_default();
        if let Some(settings) = setting.as_object_mut() {
            settings.remove("n_expert_used");
        }
        let work = (cell.model, config.mode, config.dense_weights, top_k);
        let length = (&config.prompt, config.n_predict, config.ctx_tokens, config.ubatch_tokens);
        Some(Self {
            id: cell.id.to_owned(),
            name: cell.name.to_owned(),
            setting: format!("{} {setting}", cell.model),
            work: format!("{work:?} {length:?}"),
            top_k,
            compute_s: per_token.compute_s,
            major_faults: per_token.major_faults,
        })
    }
}

/// Finds both tells among the valid cells of a result folder.
#[must_use]
pub fn of_folder(measured: &Measured) -> Vec<Finding> {
    let subjects = measured.cells().into_iter().filter_map(|cell| {
        let runs = measured.valid_runs(&cell);
        Subject::of(&cell, runs.first()?.0, &Figures::pooled(&runs)?)
    });
    tells(&subjects.collect::<Vec<_>>())
}

/// Which tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tell {
    /// Fewer experts per token took more compute.
    ComputeRises,
    /// Ten times the major page faults of comparable work.
    FaultsJump,
}

/// A subject that looks contaminated.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Which tell.
    pub tell: Tell,
    /// The suspect's id.
    pub id: String,
    /// The suspect's name.
    pub name: String,
    /// Id of the subject that it was compared with.
    pub against: String,
    /// What was seen, one sentence for people.
    pub evidence: String,
}

/// Compute may rise by so much without meaning anything: repetitions differ by as much.
const COMPUTE_TOLERANCE: f64 = 0.05;

/// Faults have to be so many times those of the others.
const FAULTS_FACTOR: f64 = 10.0;

/// Fewer faults per token than this are never a jump.
const FAULTS_OF_NOTE: f64 = 1.0;

/// Finds both tells, in the order of the subjects; a subject has each at most once.
#[must_use]
pub fn tells(subjects: &[Subject]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for subject in subjects {
        findings.extend(compute_rises(subject, subjects));
        findings.extend(faults_jump(subject, subjects));
    }
    findings
}

/// Against the subject with more experts that needs the least compute.
fn compute_rises(suspect: &Subject, all: &[Subject]) -> Option<Finding> {
    let other = all
        .iter()
        .filter(|other| other.setting == suspect.setting && other.top_k > suspect.top_k)
        .filter(|other| other.compute_s > 0.0)
        .min_by(|a, b| a.compute_s.total_cmp(&b.compute_s))?;
    let rise = suspect.compute_s / other.compute_s - 1.0;
    (rise > COMPUTE_TOLERANCE).then(|| Finding {
        tell: Tell::ComputeRises,
        id: suspect.id.clone(),
        name: suspect.name.clone(),
        against: other.id.clone(),
        evidence: format!(
            "{} computed for {:.1} ms a token with {} experts, {} for {:.1} ms with {}: {:.0} % more for less \
             work",
            suspect.name,
            suspect.compute_s * 1e3,
            suspect.top_k,
            other.name,
            other.compute_s * 1e3,
            other.top_k,
            rise * 100.0,
        ),
    })
}

/// Against the one in the middle of the comparable others, the lower one of two.
fn faults_jump(suspect: &Subject, all: &[Subject]) -> Option<Finding> {
    if suspect.major_faults < FAULTS_OF_NOTE {
        return None;
    }
    let mut others: Vec<&Subject> = all
        .iter()
        .filter(|other| other.work == suspect.work && !std::ptr::eq(*other, suspect))
        .collect();
    others.sort_by(|a, b| a.major_faults.total_cmp(&b.major_faults));
    let other = *others.get(others.len().checked_sub(1)? / 2)?;
    (suspect.major_faults >= FAULTS_FACTOR * other.major_faults).then(|| Finding {
        tell: Tell::FaultsJump,
        id: suspect.id.clone(),
        name: suspect.name.clone(),
        against: other.id.clone(),
        evidence: format!(
            "{} had {:.1} major page faults a token, comparable work ({}) {:.1}",
            suspect.name, suspect.major_faults, other.name, other.major_faults
        ),
    })
}

/// The ids of the suspects, each once, with all that was found of it.
#[must_use]
pub fn suspects(findings: &[Finding]) -> BTreeMap<&str, Vec<&Finding>> {
    let mut suspects: BTreeMap<&str, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        suspects.entry(&finding.id).or_default().push(finding);
    }
    suspects
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(id: &str, top_k: u32, compute_ms: f64, major_faults: f64) -> Subject {
        Subject {
            id: id.into(),
            name: format!("cell {id}"),
            setting: "stream".into(),
            work: format!("stream top-{top_k}"),
            top_k,
            compute_s: compute_ms / 1e3,
            major_faults,
        }
    }

    #[test]
    fn compute_that_rises_with_fewer_experts_is_told() {
        let found = tells(&[
            subject("k8", 8, 20.0, 0.0),
            subject("k6", 6, 26.0, 0.0),
            subject("k4", 4, 20.5, 0.0),
            Subject { setting: "mmap".into(), ..subject("m2", 2, 90.0, 0.0) },
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].tell, &*found[0].id, &*found[0].against),
            (Tell::ComputeRises, "k6", "k8")
        );
        assert_eq!(
            found[0].evidence,
            "cell k6 computed for 26.0 ms a token with 6 experts, cell k8 for 20.0 ms with 8: 30 % more for \
             less work"
        );
    }

    #[test]
    fn faults_that_jump_tenfold_are_told() {
        let found = tells(&[
            subject("a", 8, 20.0, 0.2),
            subject("b", 8, 20.0, 0.0),
            subject("c", 8, 20.0, 8.0),
            Subject { work: "other".into(), ..subject("d", 8, 20.0, 900.0) },
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].tell, &*found[0].id), (Tell::FaultsJump, "c"));
        assert_eq!(
            found[0].evidence,
            "cell c had 8.0 major page faults a token, comparable work (cell b) 0.0"
        );
        assert_eq!(suspects(&found).keys().copied().collect::<Vec<_>>(), ["c"]);
    }

    #[test]
    fn few_faults_and_small_rises_mean_nothing() {
        assert!(tells(&[subject("a", 8, 20.0, 0.9), subject("b", 8, 20.0, 0.0)]).is_empty());
        assert!(tells(&[subject("a", 8, 20.0, 40.0), subject("b", 8, 20.0, 5.0)]).is_empty());
        assert!(tells(&[subject("a", 8, 20.0, 0.0), subject("b", 6, 20.9, 0.0)]).is_empty());
        assert!(tells(&[subject("a", 8, 20.0, 500.0)]).is_empty());
        assert!(tells(&[]).is_empty());
    }
}
