//! Which cores compute and which read.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::EngineError;

/// The process's cores, in two parts. Core numbers are the kernel's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cores {
    /// Those of the compute threads.
    pub(super) compute: Vec<usize>,
    /// The others; empty when the mask leaves none.
    pub(super) others: Vec<usize>,
}

impl Cores {
    /// The parts that a mask makes of the cores that this thread may use; `None` for an empty mask.
    ///
    /// # Errors
    /// The mask can't be read, names no core, or one that the process may not use.
    pub(super) fn of(mask: &str) -> Result<Option<Self>, EngineError> {
        if mask.is_empty() {
            return Ok(None);
        }
        let allowed = sched_getaffinity(None).map_err(|e| {
            EngineError::Config(format!(
                "--cpu-mask {mask}: the system doesn't tell which cores there are: {e}"
            ))
        })?;
        let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|c| allowed.is_set(*c)).collect();
        Self::split(mask, &allowed).map(Some)
    }

    fn split(mask: &str, allowed: &[usize]) -> Result<Self, EngineError> {
        let refuse = |why: String| Err(EngineError::Config(format!("--cpu-mask {mask}{why}")));
        let Some(compute) = parse(mask) else {
            return refuse(
                " is neither a list of cores such as 4-7,9 nor a hexadecimal mask such as 0xf0"
                    .into(),
            );
        };
        if compute.is_empty() {
            return refuse(" names no core; give at least one, or leave it out".into());
        }
        let unknown: Vec<usize> =
            compute.iter().copied().filter(|c| !allowed.contains(c)).collect();
        if !unknown.is_empty() {
            return refuse(format!(
                " names {}, which this process may not use; it has {}",
                list(&unknown),
                list(allowed)
            ));
        }
        let others = allowed.iter().copied().filter(|c| !compute.contains(c)).collect();
        Ok(Self { compute, others })
    }

    /// The compute threads' cores, as a list such as `4-7,9`.
    pub(super) fn mask(&self) -> String {
        list(&self.compute)
    }

    /// Runs `start` so that the threads which it starts are on the other cores, if there are any.
    pub(super) fn apart<T>(&self, start: impl FnOnce() -> T) -> Result<T, EngineError> {
        let _pinned = (!self.others.is_empty()).then(|| pin(&self.others)).transpose()?;
        Ok(start())
    }

    /// Puts this thread, and the threads that it starts from here on, on the compute threads' cores. ggml
    /// starts its threads from the one that decodes, and they inherit its cores.
    pub(super) fn compute(&self) -> Result<Pinned, EngineError> {
        pin(&self.compute)
    }
}

/// A thread on certain cores; it gets back those that it had.
pub(super) struct Pinned {
    before: CpuSet,
}

fn pin(cores: &[usize]) -> Result<Pinned, EngineError> {
    let failed = |e| {
        EngineError::Config(format!(
            "threads can't be put on the cores {}: {e}; leave out --cpu-mask",
            list(cores)
        ))
    };
    let before = sched_getaffinity(None).map_err(failed)?;
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    sched_setaffinity(None, &set).map_err(failed)?;
    Ok(Pinned { before })
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// The cores of a list or a hexadecimal mask, ascending.
fn parse(mask: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    if let Some(digits) = mask.strip_prefix("0x").or_else(|| mask.strip_prefix("0X")) {
        if digits.is_empty() {
            return None;
        }
        for (i, digit) in digits.chars().rev().enumerate() {
            let bits = digit.to_digit(16)?;
            cores.extend((0..4).filter(|bit| bits >> bit & 1 == 1).map(|bit| 4 * i + bit));
        }
    } else {
        for part in mask.split(',') {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to): (usize, usize) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
            // No machine has more; a slip of the keyboard must not fill the memory.
            if from > to || to >= CpuSet::MAX_CPU {
                return None;
            }
            cores.extend(from..=to);
        }
    }
    cores.sort_unstable();
    cores.dedup();
    Some(cores)
}

/// A list as the kernel writes it.
fn list(cores: &[usize]) -> String {
    let runs = cores.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => unreachable!("chunks are never empty"),
    });
    runs.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks_mean_the_same() {
        assert_eq!(parse("4-7"), parse("0xf0"));
        assert_eq!(parse("0,2-3, 9"), Some(vec![0, 2, 3, 9]));
        assert_eq!(parse("0x20d"), Some(vec![0, 2, 3, 9]));
        assert_eq!(parse("0x0"), Some(vec![]));
        assert_eq!(list(&[0, 2, 3, 9]), "0,2-3,9");
        for wrong in ["", "a", "1-", "3-1", "0x", "0xg", "1,,2", "-1", "0-99999999"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_mask_splits_the_cores_that_are_there() {
        let cores = Cores::split("0x6", &[0, 1, 2, 5]).unwrap();
        assert_eq!((cores.mask().as_str(), cores.others.as_slice()), ("1-2", &[0, 5][..]));
        assert!(Cores::split("0-1", &[0, 1]).unwrap().others.is_empty());
        let refused = |mask| Cores::split(mask, &[0, 1, 2, 5]).unwrap_err().to_string();
        assert_eq!(
            refused("1,3-5"),
            "--cpu-mask 1,3-5 names 3-4, which this process may not use; it has 0-2,5"
        );
        assert!(refused("0x0").contains("names no core"));
        assert!(refused("big").contains("neither a list"));
    }
}
