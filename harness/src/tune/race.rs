//! Which of the measured configurations are still in the race.

use bmoe_analysis::cells::Figures;
use bmoe_analysis::compare::{Arm, Metric, RUNS_NEEDED, compare};
use bmoe_analysis::measured::Measured;

/// Two configurations are equally fast when the interval of their difference lies within this.
pub const EQUAL_PCT: f64 = 1.0;

/// A configuration in the race.
#[derive(Debug, Clone, PartialEq)]
pub struct Runner {
    /// Its cell.
    pub id: String,
    /// What a person calls it.
    pub name: String,
    /// Mean rate.
    pub tok_s: f64,
    /// Valid runs.
    pub runs: usize,
    /// How much slower than the leader, with its 95 % interval, per cent; `None` for the leader and where too little was measured.
    pub behind_pct: Option<[f64; 3]>,
}

impl Runner {
    /// Whether it is slower than the leader at every point of the interval.
    #[must_use]
    pub fn is_beaten(&self) -> bool {
        self.behind_pct.is_some_and(|[_, _, high]| high < 0.0)
    }

    /// Whether it can't be told from the leader, and closely.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.behind_pct.is_some_and(|[_, low, high]| low > -EQUAL_PCT && high < EQUAL_PCT)
    }
}

/// The measured configurations, the leader first, and those that are no candidates with the reason.
#[must_use]
pub fn standing(measured: &Measured) -> (Vec<Runner>, Vec<(String, String)>) {
    let mut arms = Vec::new();
    let mut out = Vec::new();
    for cell in measured.cells() {
        let verdict = cell.verdict(&[]);
        let lossless = cell.attempts.iter().all(|attempt| attempt.lossless);
        let name = cell.name.to_owned();
        let arm = Arm::new(measured, cell, 0);
        let rates = Figures::pooled(&arm.runs).and_then(|figures| figures.rates);
        match rates {
            Some(rates) if lossless => arms.push((arm, rates.mean)),
            _ => out.push((name, verdict)),
        }
    }
    arms.sort_by(|a, b| b.1.total_cmp(&a.1));
    let runners = arms
        .iter()
        .enumerate()
        .map(|(place, (arm, tok_s))| {
            let against =
                (place > 0).then(|| compare(&[(arms[0].0.clone(), arm.clone())], Metric::TokS));
            let enough = arm.runs.len() > 1 && arms[0].0.runs.len() > 1;
            let behind_pct = against.and_then(|all| {
                let one = all.into_iter().next().filter(|_| enough)?;
                Some([one.difference_pct?, one.low_pct?, one.high_pct?])
            });
            Runner {
                id: arm.cell.id.to_owned(),
                name: arm.cell.name.to_owned(),
                tok_s: *tok_s,
                runs: arm.runs.len(),
                behind_pct,
            }
        })
        .collect();
    (runners, out)
}

/// Whether nothing is left to decide: the leader has runs enough for an interval that means something, and every other
/// one is beaten, or closely equal.
#[must_use]
pub fn is_decided(standing: &[Runner]) -> bool {
    let enough = standing.first().is_some_and(|leader| leader.runs >= RUNS_NEEDED);
    enough && standing.iter().skip(1).all(|runner| runner.is_beaten() || runner.is_equal())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner(behind_pct: Option<[f64; 3]>) -> Runner {
        Runner { id: "a".into(), name: "a".into(), tok_s: 1.0, runs: 4, behind_pct }
    }

    #[test]
    fn a_race_is_decided_by_intervals() {
        let leader = runner(None);
        let beaten = runner(Some([-8.0, -12.0, -3.0]));
        let equal = runner(Some([-0.2, -0.8, 0.6]));
        let open = runner(Some([-2.0, -5.0, 1.0]));
        assert!(is_decided(&[leader.clone(), beaten.clone(), equal]));
        assert!(!is_decided(&[leader.clone(), beaten, open]));
        assert!(!is_decided(&[leader.clone(), runner(None)]));
        assert!(is_decided(std::slice::from_ref(&leader)));
        assert!(!is_decided(&[Runner { runs: 2, ..leader }]));
    }
}
