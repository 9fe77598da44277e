//! The state behind the operations, and who may touch it when.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use bmoe_trace::record::{Phase, RouteRecord};

use super::clock::Clock;
use super::forced::ForcedRoutes;
use super::kernel::StockProduct;
use super::nodes::NodeTrace;
use super::predict::{Predictor, Router};
use super::sys;
use super::work::{Activations, Barrier, Work};
use crate::error::EngineError;
use crate::flash::lanes::Lanes;
use crate::flash::queue::SliceState;
use crate::flash::source::ExpertSource;

/// State that graph threads reach.
///
/// *Thread 0* is the thread that calls `llama_decode`; ggml makes it thread 0 of the graph. `main` is
/// touched by thread 0 only. `work` is written by thread 0 while no other thread is inside an operation
/// of ours or while all others wait at the barrier, and read by all behind it. `workers[i]` is touched
/// by thread `i` only.
pub(super) struct Shared {
    pub(super) main: UnsafeCell<Main>,
    pub(super) work: UnsafeCell<Work>,
    pub(super) workers: Vec<UnsafeCell<Worker>>,
    /// The lanes, in `stream` mode: what waiting threads wait at.
    pub(super) lanes: Option<Arc<Lanes>>,
    /// Products are computed while slices are on their way.
    pub(super) overlap: bool,
    /// A slice that a product waited for could not be read.
    pub(super) read_failed: AtomicBool,
    /// Turns that thread 0 has finished, see [`Shared::await_turn`].
    pub(super) turns: AtomicUsize,
    pub(super) activations: Activations,
    /// The current event's experts can be computed. Written by `fetch`, when nothing else runs.
    pub(super) event_ready: AtomicBool,
    pub(super) barrier: Barrier,
    pub(super) next_item: AtomicUsize,
    /// Set by thread 0 outside of rounds or between two barriers, so all threads agree on it.
    pub(super) failed: AtomicBool,
    pub(super) tiled_forced: bool,
    /// Number of the signal that asks the run to stop, 0 while there is none.
    pub(super) stop: Arc<AtomicUsize>,
}

/// What only one graph thread touches.
pub(super) struct Worker {
    pub(super) product: StockProduct,
    /// Turns that the thread has waited for.
    turns: usize,
    /// Time that its products waited for slices, since it was last taken.
    pub(super) stall_ns: u64,
}

impl Worker {
    pub(super) fn new() -> Self {
        Self { product: StockProduct::new(), turns: 0, stall_ns: 0 }
    }
}

/// What only thread 0 touches.
pub(super) struct Main {
    /// Where streamed experts come from.
    pub(super) source: Option<Box<dyn ExpertSource>>,
    pub(super) n_expert: usize,
    /// Route records are wanted.
    pub(super) record: bool,
    pub(super) records: Vec<RouteRecord>,
    /// The current event's record, until its weights are known.
    pub(super) pending: Option<RouteRecord>,
    /// The node with the final router weights, per layer.
    pub(super) weight_nodes: Vec<*const sys::ggml_tensor>,
    /// Projections in the order in which the graph multiplies with them, per layer.
    pub(super) order: Vec<Vec<usize>>,
    /// How many projections each layer has.
    pub(super) tensors: Vec<usize>,
    /// While nodes are looked at: these are of a layer's second routing, among experts that aren't streamed
    /// (GroveMoE's chunk experts). Its nodes have the names of the first, its ids are a converted copy.
    pub(super) other_routing: bool,
    /// The node with the chosen experts, per layer.
    pub(super) ids_nodes: Vec<*const sys::ggml_tensor>,
    /// Routers, per layer.
    pub(super) routers: Vec<Router>,
    pub(super) predictor: Predictor,
    pub(super) ahead: Ahead,
    /// Accesses of the current event.
    pub(super) experts: Vec<u16>,
    pub(super) batch: Batch,
    pub(super) failure: Option<EngineError>,
    pub(super) clock: Clock,
    /// Experts that are used in the place of the router's choice.
    pub(super) forced: Option<Arc<ForcedRoutes>>,
    /// So many of the router's best experts are recorded with their scores.
    pub(super) scores: usize,
    /// Records of nodes, when they are wanted.
    pub(super) nodes: Option<NodeTrace>,
}

/// What is read before a layer asks for it, while tokens are generated.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ahead {
    /// What the previous token used in so many of the next layers.
    pub prefetch_layers: u32,
    /// So many of the experts that the next layer's router names.
    pub predict_experts: u32,
}

/// Where in the run the graph is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    /// Turn of the session.
    pub(super) turn: u32,
    pub(super) phase: Phase,
    pub(super) ubatch_tokens: u32,
    pub(super) tokens: u32,
    pub(super) first_position: u32,
    /// Micro-batches of earlier batches.
    pub(super) ubatches_before: u32,
    /// Micro-batch within this batch; `None` before its first event.
    pub(super) ubatch: Option<u32>,
    /// Layer of the last event.
    pub(super) last_layer: usize,
}

impl Batch {
    /// The running micro-batch's number within the run.
    pub(super) fn number(&self) -> u32 {
        self.ubatches_before + self.ubatch.unwrap_or(0)
    }
}

impl Shared {
    /// # Safety
    /// Only thread 0, and no two results at a time.
    #[expect(clippy::mut_from_ref, reason = "see `Shared`: thread 0 only")]
    pub(super) unsafe fn main(&self) -> &mut Main {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.main.get() }
    }

    /// # Safety
    /// Only thread 0, while no other thread reads (see [`Shared`]).
    #[expect(clippy::mut_from_ref, reason = "see `Shared`: thread 0 only, between barriers")]
    pub(super) unsafe fn work_mut(&self) -> &mut Work {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.work.get() }
    }

    /// # Safety
    /// Only behind the barrier that ends thread 0's writing.
    pub(super) unsafe fn work(&self) -> &Work {
        // SAFETY: the caller's promise.
        unsafe { &*self.work.get() }
    }

    /// # Safety
    /// Only graph thread `thread`, and no two results at a time.
    #[expect(clippy::mut_from_ref, reason = "see `Shared`: one thread, one worker")]
    pub(super) unsafe fn worker(&self, thread: usize) -> &mut Worker {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.workers[thread].get() }
    }

    /// Waits until a slice has landed; false when it could not be read.
    ///
    /// # Safety
    /// Only graph thread `thread`, while nothing else uses its worker.
    pub(super) unsafe fn await_slice(&self, slice: u32, thread: usize) -> bool {
        let Some(lanes) = &self.lanes else { return true };
        let queue = lanes.queue();
        match queue.state(slice) {
            SliceState::Ready => return true,
            SliceState::Pending => {}
            SliceState::Absent | SliceState::Failed => return self.fail_read(),
        }
        let start = Instant::now();
        let landed = queue.wait_for(slice);
        // SAFETY: the caller's promise.
        unsafe { self.worker(thread) }.stall_ns += start.elapsed().as_nanos() as u64;
        landed || self.fail_read()
    }

    fn fail_read(&self) -> bool {
        self.read_failed.store(true, Ordering::Release);
        false
    }

    /// Ends a turn of thread 0: experts are resident, or a round is ready. With overlap there are no turns:
    /// thread 0 never waits for reads while the others could help.
    pub(super) fn end_turn(&self) {
        if let (Some(lanes), false) = (&self.lanes, self.overlap) {
            lanes.turn_over(&self.turns);
        }
    }

    /// Waits on another thread for the end of thread 0's turn, and reads in the meantime. Every thread
    /// passes the same operations, so each counts its own turns.
    ///
    /// # Safety
    /// Only graph thread `thread`.
    pub(super) unsafe fn await_turn(&self, thread: usize) {
        if let (Some(lanes), false) = (&self.lanes, self.overlap) {
            // SAFETY: the caller's promise.
            let worker = unsafe { self.worker(thread) };
            worker.turns += 1;
            lanes.help_until(&self.turns, worker.turns, thread);
        }
    }
}
