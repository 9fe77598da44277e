//! Replaces nodes of llama.cpp's graph just before they are computed.
//!
//! llama.cpp asks `cb_eval` about every node before it computes anything. Answering "not needed" for
//! all of them keeps the whole micro-batch one graph, and changing a node in place while being asked is
//! enough to have another operation run in its stead:
//!
//! * `ffn_moe_weights-<layer>` (a `GET_ROWS` that picks the chosen experts' router weights) comes after
//!   routing and before the experts. It becomes `fetch`, which does the same and also makes the
//!   experts resident.
//!   When routing is forced it first overwrites the router's choice: nothing has read that yet.
//! * Every `MUL_MAT_ID` over streamed weights becomes `matmul`.
//!
//! Graphs are reused from token to token with the changed nodes in them.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use bmoe_trace::config::ComputeTrace;
use bmoe_trace::record::{ComputeRecord, Phase, ReadRecord, RouteRecord};

use super::clock::Clock;
use super::fetch::{self, FetchOp};
use super::forced::ForcedRoutes;
use super::gguf::ModelInfo;
use super::kernel::{Kernel, tiled_forced};
use super::matmul::{self, MatmulOp};
use super::model::Model;
use super::node::{early_choice, logits_layer, replace, weights_layer};
use super::nodes::NodeTrace;
use super::predict::{Predictor, Router};
pub use super::shared::Ahead;
use super::shared::{Batch, Main, Shared, Worker};
use super::sys;
use super::work::{Activations, Barrier, Work};
use crate::error::EngineError;
use crate::flash::source::ExpertSource;
use crate::flash::store::ExpertStore;

/// What the hook works on. Boxed by its context, so that its address stays.
pub struct Hook {
    shared: Box<Shared>,
    fetch_ops: Vec<FetchOp>,
    matmul_ops: HashMap<usize, MatmulOp>,
    layer_of: HashMap<u32, usize>,
    /// Buffers of the streamed weights.
    buffers: Vec<*mut sys::ggml_backend_buffer>,
    threads: usize,
}

/// What a hook is asked to do beside making experts resident.
#[derive(Debug, Clone, Default)]
pub struct HookOptions {
    /// Route records are wanted.
    pub record: bool,
    /// What is read ahead.
    pub ahead: Ahead,
    /// So many of the router's best experts of every token are recorded with their scores.
    pub scores: u32,
    /// Experts to use in the place of the router's choice; the weights are the router's own for them.
    pub forced: Option<Arc<ForcedRoutes>>,
    /// What is measured inside the graph.
    pub compute_trace: ComputeTrace,
    /// Largest micro-batch.
    pub ubatch_tokens: u32,
    /// Holds the number of the signal that asks the run to stop, or [`CANCEL`](crate::error::CANCEL), 0
    /// while there is neither.
    pub stop: Arc<AtomicUsize>,
}

impl Hook {
    /// A hook for a model, which streams once it has a store.
    #[must_use]
    pub fn new(info: &ModelInfo, options: HookOptions) -> Box<Self> {
        let HookOptions { record, ahead, scores, forced, compute_trace, ubatch_tokens, stop } =
            options;
        let layers = info.experts.layers.len();
        let main = Main {
            source: None,
            n_expert: info.n_expert as usize,
            record,
            records: Vec::new(),
            pending: None,
            weight_nodes: vec![std::ptr::null(); layers],
            order: vec![Vec::new(); layers],
            tensors: info.experts.layers.iter().map(|l| l.tensors.len()).collect(),
            other_routing: false,
            ids_nodes: vec![std::ptr::null(); layers],
            routers: vec![Router::UNKNOWN; layers],
            predictor: Predictor::default(),
            ahead,
            experts: Vec::new(),
            batch: Batch {
                turn: 0,
                phase: Phase::Prefill,
                ubatch_tokens,
                tokens: 0,
                first_position: 0,
                ubatches_before: 0,
                ubatch: None,
                last_layer: 0,
            },
            failure: None,
            clock: Clock::new(layers, compute_trace == ComputeTrace::Layers),
            forced,
            scores: scores as usize,
            nodes: (compute_trace == ComputeTrace::Nodes).then(NodeTrace::new),
        };
        Box::new(Self {
            shared: Box::new(Shared {
                main: UnsafeCell::new(main),
                work: UnsafeCell::new(Work::new(info.n_expert as usize)),
                workers: Vec::new(),
                lanes: None,
                overlap: false,
                read_failed: AtomicBool::new(false),
                turns: AtomicUsize::new(0),
                activations: Activations::new(),
                event_ready: AtomicBool::new(false),
                barrier: Barrier::default(),
                next_item: AtomicUsize::new(0),
                failed: AtomicBool::new(false),
                tiled_forced: tiled_forced(),
                stop,
            }),
            fetch_ops: Vec::new(),
            matmul_ops: HashMap::new(),
            layer_of: info.experts.layers.iter().enumerate().map(|(i, l)| (l.layer, i)).collect(),
            buffers: Vec::new(),
            threads: 1,
        })
    }

    /// Streams the experts from a source. To be called before anything is computed.
    pub fn set_source(&mut self, source: Box<dyn ExpertSource>) {
        // Only the store reads while others compute; threads wait at its lanes.
        self.shared.lanes = source.store().map(|store| Arc::clone(store.lanes()));
        self.shared.overlap = source.store().is_none_or(ExpertStore::overlaps);
        self.main().source = Some(source);
    }

    /// Prepares the operations for a model's tensors.
    pub(super) fn attach(&mut self, model: &Model, threads: u32) {
        self.threads = threads as usize;
        self.shared.workers = (0..threads).map(|_| UnsafeCell::new(Worker::new())).collect();
        let shared: *const Shared = &raw const *self.shared;
        let mut layers: Vec<(u32, usize)> = self.layer_of.iter().map(|(m, l)| (*m, *l)).collect();
        layers.sort_unstable_by_key(|(_, layer)| *layer);
        self.fetch_ops = layers
            .into_iter()
            .map(|(model_layer, layer)| FetchOp {
                shared,
                layer,
                model_layer,
                activation_row_bytes: 0,
            })
            .collect();
        for placed in model.experts() {
            // SAFETY: tensors of the loaded model.
            let tensor = unsafe { placed.tensor.as_ref() };
            if !self.buffers.contains(&tensor.buffer) {
                self.buffers.push(tensor.buffer);
            }
            let Some(kernel) = Kernel::of(tensor.type_) else { continue };
            let row_bytes = kernel.activation_bytes(tensor.ne[0] as usize);
            let largest = &mut self.fetch_ops[placed.layer].activation_row_bytes;
            *largest = row_bytes.max(*largest);
            self.matmul_ops.insert(
                placed.tensor.as_ptr() as usize,
                MatmulOp {
                    shared,
                    layer: placed.layer,
                    projection: placed.projection,
                    kernel,
                    n_in: tensor.ne[0] as usize,
                    n_out: tensor.ne[1] as usize,
                    row_bytes: tensor.nb[1],
                },
            );
        }
    }

    fn main(&mut self) -> &mut Main {
        self.shared.main.get_mut()
    }

    /// What the store did, and how long llama.cpp computed, since the last call.
    pub fn take_costs(&mut self) -> (crate::flash::store::StoreStats, u64) {
        let workers = self.shared.workers.iter_mut();
        let stalls: u64 = workers.map(|w| std::mem::take(&mut w.get_mut().stall_ns)).sum();
        let stall_ns = stalls / self.threads as u64;
        let main = self.main();
        let mut stats = main.source.as_mut().map(|s| s.take_stats()).unwrap_or_default();
        stats.io_wait_ns += stall_ns;
        (stats, main.clock.take_compute_ns().saturating_sub(stall_ns))
    }

    /// The engine's own store, in `stream` mode, to change it between two micro-batches.
    pub fn store_mut(&mut self) -> Option<&mut ExpertStore> {
        self.main().source.as_mut()?.store_mut()
    }

    /// The engine's own store, in `stream` mode.
    pub fn store(&mut self) -> Option<&ExpertStore> {
        self.main().source.as_ref()?.store()
    }

    /// Route records since the last call.
    pub fn take_records(&mut self) -> Vec<RouteRecord> {
        std::mem::take(&mut self.main().records)
    }

    /// Records of computing since the last call, when they are wanted.
    pub fn take_compute_records(&mut self) -> Vec<ComputeRecord> {
        let mut layers: Vec<(usize, u32)> = self.layer_of.iter().map(|(m, l)| (*l, *m)).collect();
        layers.sort_unstable();
        let layers: Vec<u32> = layers.into_iter().map(|(_, model)| model).collect();
        let main = self.main();
        let mut records =
            main.clock.take_records(main.batch.ubatches_before.saturating_sub(1), &layers);
        records.extend(main.nodes.iter_mut().flat_map(NodeTrace::take));
        records
    }

    /// Records of reads since the last call, when lanes keep them; times count from `origin`.
    pub fn take_read_records(&mut self, origin: Instant) -> Vec<ReadRecord> {
        self.main().source.as_mut().map(|s| s.take_reads(origin)).unwrap_or_default()
    }

    /// Micro-batches so far.
    pub fn ubatches(&mut self) -> u32 {
        self.main().batch.ubatches_before
    }

    /// Events from here on belong to a turn's prompt.
    pub fn start_turn(&mut self, turn: u32) {
        let batch = &mut self.main().batch;
        batch.turn = turn;
        batch.phase = Phase::Prefill;
    }

    /// Events from here on belong to decode steps.
    pub fn start_decode(&mut self) {
        self.main().batch.phase = Phase::Decode;
    }

    pub(super) fn start_batch(&mut self, tokens: u32, first_position: u32) {
        let main = self.main();
        main.batch.tokens = tokens;
        main.batch.first_position = first_position;
        main.batch.ubatch = None;
        main.clock.start();
        if let Some(nodes) = &mut main.nodes {
            nodes.start();
        }
    }

    pub(super) fn end_batch(&mut self) {
        let main = self.main();
        main.clock.end();
        main.batch.ubatches_before += main.batch.tokens.div_ceil(main.batch.ubatch_tokens);
        main.records.extend(main.pending.take());
    }

    /// The graph was stopped in the middle, and another one is going to run.
    pub(super) fn abandon(&mut self) {
        let main = self.main();
        if let Some(source) = &mut main.source {
            source.abandon();
        }
    }

    pub(super) fn take_failure(&mut self) -> Option<EngineError> {
        let signal = self.shared.stop.load(Ordering::Relaxed);
        let main = self.main();
        let read = || main.source.as_ref()?.store()?.lanes().queue().take_error();
        let read = read().map(EngineError::from);
        main.failure.take().or(read).or_else(|| EngineError::interrupted(signal))
    }

    /// Looks at a node and replaces it if it is one of those above.
    ///
    /// # Safety
    /// `node` is a node of a graph that is about to be computed; the caller is thread 0.
    unsafe fn visit(&self, node: *mut sys::ggml_tensor) {
        // SAFETY: the caller's promise; no operation of ours is running, so thread 0 may use `main`.
        let (node, main) = unsafe { (&mut *node, &mut *self.shared.main.get()) };
        match node.op {
            sys::GGML_OP_CUSTOM => main.other_routing = false,
            sys::GGML_OP_MUL_MAT_ID => {
                let weights = node.src[0];
                let Some(op) = self.matmul_ops.get(&(weights as usize)) else {
                    return self.refuse_if_streamed(node, main);
                };
                if main.ids_nodes[op.layer] != node.src[2].cast_const() {
                    let message = format!(
                        "layer {} multiplies its experts before its routing is known",
                        op.layer
                    );
                    return self.fail_at(node, main, EngineError::Graph(message));
                }
                learn_order(main, op);
                let op: *const MatmulOp = op;
                replace(node, matmul::matmul, op.cast_mut().cast(), self.threads as i32);
            }
            _ => {
                let known = |layer: &u32| Some(main.ids_nodes[*self.layer_of.get(layer)?]);
                if main.forced.is_some()
                    && let Some(layer) = early_choice(node, known)
                {
                    let message =
                        format!("layer {layer} uses the router's choice before it can be replaced");
                    return self.fail_at(node, main, EngineError::Graph(message));
                }
                if main.ahead.predict_experts > 0
                    && let Some(layer) = logits_layer(node).and_then(|l| self.layer_of.get(&l))
                {
                    main.routers[*layer].learn(node);
                }
                if let Some(layer) = weights_layer(node) {
                    if let Some(&layer) = self.layer_of.get(&layer) {
                        if node.op == sys::GGML_OP_GET_ROWS {
                            // SAFETY: a node of this kind has ids.
                            main.other_routing = unsafe { (*node.src[1]).op } == sys::GGML_OP_CPY;
                        }
                        if main.other_routing {
                            return;
                        }
                        main.weight_nodes[layer] = node;
                        if node.op == sys::GGML_OP_GET_ROWS
                            && (main.record || main.source.is_some() || main.forced.is_some())
                        {
                            main.ids_nodes[layer] = node.src[1];
                            let op: *const FetchOp = &raw const self.fetch_ops[layer];
                            replace(node, fetch::fetch, op.cast_mut().cast(), 1);
                        }
                    }
                } else {
                    self.refuse_if_streamed(node, main);
                }
            }
        }
    }

    /// Streamed weights have no bytes at their address: whatever else reads them must not run.
    fn refuse_if_streamed(&self, node: &mut sys::ggml_tensor, main: &mut Main) {
        let streamed = |source: &*mut sys::ggml_tensor| {
            // SAFETY: sources that are there are tensors of the graph or the model.
            !source.is_null() && self.buffers.contains(unsafe { &(**source).buffer })
        };
        if !self.buffers.is_empty() && node.src.iter().any(streamed) {
            // SAFETY: ggml's names are static strings.
            let op = unsafe { CStr::from_ptr(sys::ggml_op_name(node.op)) }.to_string_lossy();
            let message = format!("the model's graph uses streamed experts in an operation {op}");
            self.fail_at(node, main, EngineError::Graph(message));
        }
    }

    fn fail_at(&self, node: &mut sys::ggml_tensor, main: &mut Main, error: EngineError) {
        main.failure.get_or_insert(error);
        self.shared.failed.store(true, Ordering::Release);
        replace(node, fetch::nothing, std::ptr::null_mut(), 1);
    }
}

/// Reads follow the order in which the graph multiplies with a layer's projections, which is the order in
/// which its nodes are seen.
fn learn_order(main: &mut Main, op: &MatmulOp) {
    let order = &mut main.order[op.layer];
    if order.contains(&op.projection) {
        return;
    }
    order.push(op.projection);
    if let Some(source) = &mut main.source
        && order.len() == main.tensors[op.layer]
    {
        source.set_order(op.layer, order);
    }
}

/// `cb_eval`: sees every node before the graph runs. It asks for no result, so nothing is split, unless
/// nodes are to be timed.
pub(super) unsafe extern "C" fn on_node(
    node: *mut sys::ggml_tensor,
    ask: bool,
    data: *mut c_void,
) -> bool {
    if ask {
        // SAFETY: `data` is the context's hook; llama.cpp passes a node of its graph and calls from the
        // thread that decodes.
        unsafe {
            let hook = &*data.cast_const().cast::<Hook>();
            hook.visit(node);
            return hook.shared.main().nodes.is_some();
        }
    }
    // SAFETY: as above; the node was computed, and nothing else is at the moment.
    unsafe {
        let main = (*data.cast_const().cast::<Hook>()).shared.main();
        let ubatch = main.batch.number();
        if let Some(nodes) = &mut main.nodes {
            nodes.done(&*node, ubatch);
        }
    }
    true
}

/// `abort_callback`: asked between nodes.
pub(super) unsafe extern "C" fn on_abort_check(data: *mut c_void) -> bool {
    // SAFETY: `data` is the context's hook; only atomics are read.
    let shared = unsafe { &*(*data.cast_const().cast::<Hook>()).shared };
    shared.failed.load(Ordering::Acquire)
        || shared.read_failed.load(Ordering::Acquire)
        || shared.stop.load(Ordering::Relaxed) != 0
}
