//! Many replays on all cores.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::budgets::Budget;
use super::kind::SimPolicy;
use super::result::Simulation;
use super::simulator::{SimulateError, Simulator};

/// How often the progress is told.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// One replay to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// The policy.
    pub policy: SimPolicy,
    /// The budget.
    pub budget: Budget,
}

/// Does all of them, one thread per core, and gives their results in the order of the jobs. `progress` is told how many
/// events have been replayed, of [`Accesses::len`](super::Accesses::len) for each job.
///
/// # Errors
/// As for [`Simulator::check`], before anything is replayed.
pub fn run_all(
    simulator: &Simulator<'_>,
    jobs: &[Job],
    mut progress: impl FnMut(u64),
) -> Result<Vec<Simulation>, SimulateError> {
    for job in jobs {
        simulator.check(job.budget)?;
    }
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get).min(jobs.len());
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let (sender, receiver) = mpsc::channel();
    let mut results: Vec<Option<Simulation>> = vec![None; jobs.len()];
    std::thread::scope(|scope| {
        for _ in 0..cores {
            let (sender, next, done) = (sender.clone(), &next, &done);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(number) else { break };
                    let result = simulator.run_counted(job.policy, job.budget, Some(done));
                    if sender.send((number, result)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(TELL_EVERY) {
                Ok((number, result)) => results[number] = Some(result?),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            progress(done.load(Ordering::Relaxed));
        }
        Ok::<(), SimulateError>(())
    })?;
    Ok(results.into_iter().flatten().collect())
}
