//! Looks at the memory between tokens, for a cache whose size the engine chooses.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bmoe_trace::RunConfig;
use bmoe_trace::record::BudgetRecord;

use super::available::MemorySources;
use super::budget::{self, Claims};
use super::governor::Governor;
use crate::error::EngineError;
use crate::flash::layout::ExpertLayout;
use crate::flash::memory::MemoryPlan;
use crate::flash::store::ExpertStore;

/// How the memory is looked at.
#[derive(Debug, Clone)]
pub struct MemoryWatch {
    /// Where `proc` and `sys` are: `/`, but for tests.
    pub root: PathBuf,
    /// Least time between two looks. A look reads a few small files of the kernel.
    pub every: Duration,
}

impl Default for MemoryWatch {
    fn default() -> Self {
        Self { root: "/".into(), every: Duration::from_millis(250) }
    }
}

/// Keeps a cache's budget to what there is.
#[derive(Debug)]
pub(super) struct BudgetKeeper {
    sources: MemorySources,
    governor: Governor,
    every: Duration,
    started: Instant,
    looked: Instant,
}

impl BudgetKeeper {
    /// Chooses the budget to begin with.
    ///
    /// # Errors
    /// There isn't enough, or the system doesn't tell.
    pub(super) fn choose(
        config: &RunConfig,
        experts: &ExpertLayout,
        claims: Claims,
        watch: &MemoryWatch,
    ) -> Result<(MemoryPlan, Self), EngineError> {
        let sources = MemorySources::find(&watch.root);
        let available = sources.available().ok_or_else(|| {
            EngineError::Config(
                "--cache-mb auto: the system doesn't tell how much memory is available; give a number"
                    .into(),
            )
        })?;
        let (plan, limits) = budget::choose(config, experts, &available, claims)?;
        let now = Instant::now();
        let governor = Governor::new(limits);
        Ok((plan, Self { sources, governor, every: watch.every, started: now, looked: now }))
    }

    /// Looks, if it is time to, and changes the store's budget if need be. To be called between two
    /// micro-batches.
    pub(super) fn look(&mut self, store: &mut ExpertStore, step: u32) -> Option<BudgetRecord> {
        let now = Instant::now();
        if now - self.looked < self.every {
            return None;
        }
        self.looked = now;
        let available_bytes = self.sources.available()?.bytes;
        let from_bytes = store.plan().budget_bytes;
        let unused = from_bytes - store.resident_bytes();
        let since_start = now - self.started;
        let to_bytes = self.governor.decide(since_start, available_bytes, from_bytes, unused)?;
        let evicted = store.resize(to_bytes);
        Some(BudgetRecord { step, from_bytes, to_bytes, available_bytes, evicted })
    }
}
