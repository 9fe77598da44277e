//! Replays the routes of a run through any cache policy, offline.
//!
//! The online policies are those of the engine, and so is the cache around them ([`bmoe_cache::Cache`]): what is
//! simulated here is what the engine measures, to the last byte. The offline ones know the whole run: [`Belady`]
//! and [`BeladyBypass`] its future, [`LayerStatic`] and [`PinnedLru`] its hottest experts; [`Unbounded`] never
//! evicts. `docs/simulation.md` describes all of them and the two rules for events larger than the budget.
//!
//! ```
//! use bmoe_analysis::routes::{RouteEvent, RouteLayer, RouteTrace};
//! use bmoe_analysis::simulate::{Accesses, Budget, Rules, Simulator};
//! use bmoe_trace::record::Phase;
//!
//! // One layer of four experts of 10 bytes; three tokens, two experts each.
//! let layers = vec![RouteLayer { index: 0, expert_bytes: 10 }];
//! let mut trace = RouteTrace::new("toy".into(), String::new(), layers, 4);
//! for (position, experts) in [[0, 1], [1, 2], [0, 1]].iter().enumerate() {
//!     trace.push(&RouteEvent {
//!         phase: Phase::Decode,
//!         layer: 0,
//!         positions: &[position as u32],
//!         experts,
//!         weights: &[],
//!         residency: &[],
//!         read_bytes: &[],
//!         scored: &[],
//!         scores: &[],
//!     })?;
//! }
//! let accesses = Accesses::new(&trace, Rules::ENGINE);
//! let simulator = Simulator::new(&accesses);
//! let lru = simulator.run("lru".parse()?, Budget::Bytes(20))?;
//! assert_eq!((lru.decode.hits, lru.decode.misses), (2, 4));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accesses;
mod belady;
mod belady_bypass;
mod budgets;
mod future;
mod heat;
mod jobs;
mod kind;
mod layer_static;
mod pinned_lru;
mod replay;
mod result;
mod simulator;
mod unbounded;

pub use bmoe_cache::Overshoot;

pub use accesses::{Access, Accesses, Rules};
pub use belady::Belady;
pub use belady_bypass::BeladyBypass;
pub use budgets::{Budget, auto_budgets, auto_slots};
pub use future::Future;
pub use heat::Heat;
pub use jobs::{Job, run_all};
pub use kind::{SimPolicy, UnknownSimPolicy};
pub use layer_static::LayerStatic;
pub use pinned_lru::PinnedLru;
pub use replay::{Outcome, Replay};
pub use result::{Counted, Simulation};
pub use simulator::{SimulateError, Simulator};
pub use unbounded::Unbounded;
