//! One trace, any policy, any budget.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use bmoe_cache::{Cache, EntrySizes, Layered, Policy};

use super::accesses::Accesses;
use super::belady::Belady;
use super::belady_bypass::BeladyBypass;
use super::budgets::Budget;
use super::future::Future;
use super::heat::Heat;
use super::kind::SimPolicy;
use super::layer_static::LayerStatic;
use super::pinned_lru::PinnedLru;
use super::replay::{Replay, Tally, replay};
use super::result::Simulation;
use super::unbounded::Unbounded;

/// Why a trace can't be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimulateError {
    /// Byte budgets need sizes.
    #[error(
        "the trace does not say how large an expert is, which a budget in bytes needs: give the size with \
         --expert-mib, or a budget with --slots-per-layer"
    )]
    NoSizes,
    /// Nothing to replay.
    #[error("the trace holds no routes to replay{0}")]
    Empty(&'static str),
    /// Positions have 32 bits.
    #[error("the trace has {rows} routed experts; fewer than 4294967295 can be replayed at a time")]
    TooLong {
        /// (token, slot) pairs.
        rows: usize,
    },
}

/// Replays one trace. What several replays need (when each expert is used next, which ones are hot) is worked
/// out once, when it is first needed; all threads may use one simulator.
#[derive(Debug)]
pub struct Simulator<'a> {
    accesses: &'a Accesses,
    seed: u64,
    future: OnceLock<[Future; 1]>,
    layer_futures: OnceLock<Vec<Future>>,
    heat: OnceLock<Heat>,
}

impl<'a> Simulator<'a> {
    /// Of these accesses. The seed of `random` is the engine's, 0.
    #[must_use]
    pub const fn new(accesses: &'a Accesses) -> Self {
        Self {
            accesses,
            seed: 0,
            future: OnceLock::new(),
            layer_futures: OnceLock::new(),
            heat: OnceLock::new(),
        }
    }

    /// The same with another seed for `random`.
    #[must_use]
    pub const fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// What is replayed.
    #[must_use]
    pub const fn accesses(&self) -> &Accesses {
        self.accesses
    }

    /// Whether a budget of this kind can be replayed.
    ///
    /// # Errors
    /// Bytes without sizes, no routes at all, or too many.
    pub fn check(&self, budget: Budget) -> Result<(), SimulateError> {
        if self.accesses.is_empty() {
            let decode_only = self.accesses.rules().decode_only;
            let what = if decode_only { " (only decode was asked for)" } else { "" };
            return Err(SimulateError::Empty(what));
        }
        let rows = self.accesses.rows();
        if rows >= u32::MAX as usize {
            return Err(SimulateError::TooLong { rows });
        }
        match budget {
            Budget::Bytes(_) if !self.accesses.sized() => Err(SimulateError::NoSizes),
            _ => Ok(()),
        }
    }

    /// Replays all events.
    ///
    /// # Errors
    /// As for [`Self::check`].
    pub fn run(&self, policy: SimPolicy, budget: Budget) -> Result<Simulation, SimulateError> {
        self.run_counted(policy, budget, None)
    }

    /// The same; `done` counts events while it goes on.
    pub(super) fn run_counted(
        &self,
        policy: SimPolicy,
        budget: Budget,
        done: Option<&AtomicU64>,
    ) -> Result<Simulation, SimulateError> {
        self.check(budget)?;
        let tally = match budget {
            Budget::Bytes(bytes) => self.with_bytes(policy, bytes, done),
            Budget::SlotsPerLayer(slots) => self.with_slots(policy, slots, done),
        };
        Ok(Simulation {
            policy,
            budget,
            prefill: tally.prefill,
            decode: tally.decode,
            decode_tokens: self.accesses.decode_tokens(),
            step_bytes: self.accesses.sized().then_some(tally.step_bytes),
        })
    }

    fn with_bytes(&self, policy: SimPolicy, bytes: u64, done: Option<&AtomicU64>) -> Tally {
        let sizes = self.accesses.entry_sizes();
        match policy {
            SimPolicy::Belady => self.cached(&sizes, bytes, Belady::new(&self.future()[0]), done),
            SimPolicy::BeladyBypass => {
                self.through(BeladyBypass::new(sizes, bytes, self.future()), done)
            }
            SimPolicy::Online(kind) => {
                self.cached(&sizes, bytes, kind.build(&sizes, self.seed), done)
            }
            SimPolicy::PinnedLru => {
                let policy = PinnedLru::of_run(&sizes, bytes, self.heat());
                self.cached(&sizes, bytes, policy, done)
            }
            SimPolicy::LayerStatic => {
                self.through(LayerStatic::new(&sizes, bytes, self.heat()), done)
            }
            SimPolicy::Unbounded => self.through(Unbounded::new(&sizes), done),
        }
    }

    fn with_slots(&self, policy: SimPolicy, slots: u32, done: Option<&AtomicU64>) -> Tally {
        let sizes = self.accesses.entry_slots();
        let all = u64::from(slots) * sizes.layers() as u64;
        match policy {
            SimPolicy::Belady => {
                let futures = self.layer_futures();
                let policy = Layered::new(&sizes, |_, layer| Belady::new(&futures[layer]));
                self.cached(&sizes, all, policy, done)
            }
            SimPolicy::BeladyBypass => {
                self.through(BeladyBypass::new(sizes, all, self.layer_futures()), done)
            }
            SimPolicy::Online(kind) => {
                let policy = Layered::new(&sizes, |of_layer, layer| {
                    kind.build(of_layer, self.seed.wrapping_add(layer as u64))
                });
                self.cached(&sizes, all, policy, done)
            }
            SimPolicy::PinnedLru => {
                let policy = Layered::new(&sizes, |of_layer, layer| {
                    PinnedLru::of_layer(of_layer, u64::from(slots), self.heat(), layer)
                });
                self.cached(&sizes, all, policy, done)
            }
            SimPolicy::LayerStatic => {
                self.through(LayerStatic::new(&sizes, all, self.heat()), done)
            }
            SimPolicy::Unbounded => self.through(Unbounded::new(&sizes), done),
        }
    }

    /// Through the engine's cache.
    fn cached<P: Policy>(
        &self,
        sizes: &EntrySizes,
        budget_bytes: u64,
        policy: P,
        done: Option<&AtomicU64>,
    ) -> Tally {
        let cache = Cache::new(sizes.clone(), budget_bytes, policy);
        self.through(cache.with_overshoot(self.accesses.rules().overshoot), done)
    }

    fn through(&self, mut through: impl Replay, done: Option<&AtomicU64>) -> Tally {
        replay(self.accesses, &mut through, done)
    }

    fn future(&self) -> &[Future; 1] {
        self.future.get_or_init(|| [Future::of_all(self.accesses)])
    }

    fn layer_futures(&self) -> &[Future] {
        self.layer_futures.get_or_init(|| Future::of_each_layer(self.accesses))
    }

    fn heat(&self) -> &Heat {
        self.heat.get_or_init(|| Heat::new(self.accesses))
    }
}
