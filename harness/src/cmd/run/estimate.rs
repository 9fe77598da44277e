//! How long a matrix will probably take.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use bmoe_analysis::journal::Journal;
use bmoe_analysis::result_set::Verdict;

use crate::matrix::Schedule;
use crate::progress::about;

/// Where nothing is known: what a phone did with a large model.
const GUESSED_TOKENS_PER_S: f64 = 3.0;
/// The same of loading it.
const GUESSED_LOAD_S: f64 = 10.0;

/// A time, and what it is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimate {
    seconds: f64,
    runs: usize,
    known: usize,
    guessed_tokens: u64,
}

impl Estimate {
    /// What cells took before is looked for in the result folders beside this one.
    pub(super) fn of(schedule: &Schedule, out: &Path) -> Self {
        let beside = out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let taken = taken(beside);
        let mut estimate =
            Self { seconds: 0.0, runs: schedule.runs.len(), known: 0, guessed_tokens: 0 };
        for run in &schedule.runs {
            let cell = &schedule.cells[run.cell];
            match taken.get(&cell.id) {
                Some(times) => {
                    estimate.known += 1;
                    #[expect(clippy::cast_precision_loss, reason = "a few results")]
                    let count = times.len() as f64;
                    estimate.seconds += times.iter().sum::<f64>() / count;
                }
                None => {
                    let tokens = cell.config.n_predict;
                    estimate.guessed_tokens += u64::from(tokens);
                    estimate.seconds += GUESSED_LOAD_S + f64::from(tokens) / GUESSED_TOKENS_PER_S;
                }
            }
        }
        estimate
    }
}

/// What valid runs of each cell took in the result folders of a folder, in seconds.
fn taken(folder: &Path) -> HashMap<String, Vec<f64>> {
    let mut taken: HashMap<String, Vec<f64>> = HashMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(journal) = Journal::read(&entry.path()) else { continue };
        for record in journal.records.into_iter().filter(|r| r.verdict == Verdict::Valid) {
            taken.entry(record.id).or_default().push(record.wall_s);
        }
    }
    taken
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = about(Duration::try_from_secs_f64(self.seconds).unwrap_or_default());
        write!(f, "about {time} and the waits between runs")?;
        match (self.known, self.runs - self.known) {
            (_, 0) => write!(f, " (from earlier results)"),
            (0, _) => write!(
                f,
                " (guessed from {} tokens at {GUESSED_TOKENS_PER_S} a second and {GUESSED_LOAD_S} s to load)",
                self.guessed_tokens
            ),
            (known, _) => write!(
                f,
                " ({known} of {} runs from earlier results, the others guessed at {GUESSED_TOKENS_PER_S} tokens \
                 a second)",
                self.runs
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_says_what_it_is_made_of() {
        let guess = Estimate { seconds: 100.0, runs: 4, known: 0, guessed_tokens: 64 };
        assert_eq!(
            guess.to_string(),
            "about 2 min and the waits between runs (guessed from 64 tokens at 3 a second and 10 s to load)"
        );
        let known = Estimate { known: 4, ..guess };
        assert!(known.to_string().ends_with("(from earlier results)"));
        let some = Estimate { known: 1, ..guess };
        assert!(some.to_string().contains("1 of 4 runs from earlier results"));
    }
}
