//! The two operations that stand in the graph in the place of stock nodes.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bmoe_trace::record::{Residency, RouteRecord};

use super::hook::{Main, Shared};
use super::kernel::{Kernel, TILED_ROWS};
use super::sys;

/// Outputs of one work item of the dot-product path: small enough to share out, large enough to be
/// worth it (ggml's own chunk for single rows).
const DOT_CHUNK: usize = 64;

/// Outputs of one work item of the tiled path; a multiple of ggml's row group, so that its windows fall
/// where they do in an undivided product.
const TILED_CHUNK: usize = 256;

/// The state of [`fetch`] for one layer.
pub(super) struct FetchOp {
    pub(super) shared: *const Shared,
    /// Index among the MoE layers.
    pub(super) layer: usize,
    /// Index in the model.
    pub(super) model_layer: u32,
    /// Largest converted activation row of the layer's products.
    pub(super) activation_row_bytes: usize,
}

/// The state of [`matmul`] for one weight tensor.
pub(super) struct MatmulOp {
    pub(super) shared: *const Shared,
    pub(super) layer: usize,
    pub(super) projection: usize,
    pub(super) kernel: Kernel,
    /// Elements of a weight row.
    pub(super) n_in: usize,
    /// Weight rows of one expert.
    pub(super) n_out: usize,
    pub(super) row_bytes: usize,
}

/// A (token, slot) pair routed to an expert.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    slot: u32,
    token: u32,
}

/// A share of one expert's product.
#[derive(Debug, Clone, Copy)]
struct Item {
    weights: *const u8,
    expert: u16,
    first_out: u32,
    n_out: u32,
}

/// What the threads of an operation share; see [`Shared`] for who may touch it when.
pub(super) struct Work {
    /// Rows of expert `e`: `rows[row_start[e]..row_start[e + 1]]`, token-major as in ggml.
    row_start: Vec<u32>,
    rows: Vec<Row>,
    items: Vec<Item>,
    last_round: bool,
}

/// Activations in the type that the kernels want. The buffer is sized by [`fetch`]; its bytes are
/// written by all threads of an operation, each its own, before the operation's first barrier.
pub(super) struct Activations {
    buffer: UnsafeCell<Vec<u64>>,
    /// What was converted last: address and type. Gate and up share one conversion. 0 = nothing.
    source: AtomicUsize,
}

impl Activations {
    pub(super) fn new() -> Self {
        Self { buffer: UnsafeCell::new(Vec::new()), source: AtomicUsize::new(0) }
    }

    /// # Safety
    /// Only while no operation that uses activations runs.
    unsafe fn reserve(&self, bytes: usize) {
        // SAFETY: the caller's promise.
        let buffer = unsafe { &mut *self.buffer.get() };
        if buffer.len() * 8 < bytes {
            buffer.resize(bytes.div_ceil(8), 0);
        }
        self.source.store(0, Ordering::Relaxed);
    }

    fn bytes(&self) -> *mut u8 {
        // SAFETY: the vector itself changes only in `reserve`, when nobody else is here.
        unsafe { (*self.buffer.get()).as_ptr().cast_mut().cast() }
    }
}

impl Work {
    pub(super) fn new(n_expert: usize) -> Self {
        Self {
            row_start: vec![0; n_expert + 1],
            rows: Vec::new(),
            items: Vec::new(),
            last_round: true,
        }
    }

    /// Sorts the event's accesses by expert.
    fn sort_rows(&mut self, experts: &[u16], top_k: usize) {
        self.row_start.fill(0);
        for &expert in experts {
            self.row_start[usize::from(expert) + 1] += 1;
        }
        for e in 1..self.row_start.len() {
            self.row_start[e] += self.row_start[e - 1];
        }
        let mut next = self.row_start.clone();
        self.rows.resize(experts.len(), Row::default());
        for (i, &expert) in experts.iter().enumerate() {
            let at = &mut next[usize::from(expert)];
            self.rows[*at as usize] = Row { slot: (i % top_k) as u32, token: (i / top_k) as u32 };
            *at += 1;
        }
    }

    fn rows_of(&self, expert: u16) -> &[Row] {
        let e = usize::from(expert);
        &self.rows[self.row_start[e] as usize..self.row_start[e + 1] as usize]
    }
}

/// Lets all threads of an operation wait for each other. They are all inside the operation at once,
/// and ggml's own barriers spin too.
#[derive(Debug, Default)]
pub(super) struct Barrier {
    arrived: AtomicUsize,
    generation: AtomicUsize,
}

impl Barrier {
    pub(super) fn wait(&self, threads: usize) {
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.store(generation.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut spins = 0u32;
        while self.generation.load(Ordering::Acquire) == generation {
            spins += 1;
            if spins < 10_000 {
                std::hint::spin_loop();
            } else {
                // Thread 0 may be waiting for flash; the lanes need a core.
                std::thread::yield_now();
            }
        }
    }
}

/// In the place of a node that must not run.
pub(super) unsafe extern "C" fn nothing(_: *mut sys::ggml_tensor, _: i32, _: i32, _: *mut c_void) {}

/// In the place of the `GET_ROWS` that picks router weights: does that, and makes the chosen experts
/// resident. ggml calls it on every thread; thread 0 does the work, the others go on to ggml's barrier.
///
/// # Safety
/// ggml calls it with the node that `Hook::visit` replaced and the `FetchOp` given there.
pub(super) unsafe extern "C" fn fetch(
    node: *mut sys::ggml_tensor,
    thread: i32,
    _: i32,
    data: *mut c_void,
) {
    if thread != 0 {
        return;
    }
    // SAFETY: thread 0, and the others are not inside an operation that uses the state.
    let (op, node, main, work) = unsafe {
        let op = &*data.cast_const().cast::<FetchOp>();
        (op, &*node, (*op.shared).main(), (*op.shared).work_mut())
    };
    // SAFETY: the operation's shared state outlives the context.
    let shared = unsafe { &*op.shared };
    shared.event_ready.store(false, Ordering::Relaxed);
    if shared.failed.load(Ordering::Acquire) {
        return;
    }
    let start = Instant::now();
    main.compute_ns += (start - main.handed_over).as_nanos() as u64;
    // SAFETY: sources of a replaced GET_ROWS.
    let (probabilities, ids) = unsafe { (&*node.src[0], &*node.src[1]) };
    let (top_k, tokens) = (ids.ne[0] as usize, ids.ne[1] as usize);
    main.records.extend(main.pending.take());
    main.experts.clear();
    for token in 0..tokens {
        for slot in 0..top_k {
            // SAFETY: positions within the tensors' dimensions, by their strides; `GET_ROWS` of a
            // [1, n_expert, tokens] tensor copies one float per id.
            unsafe {
                let id = *ids.data.byte_add(token * ids.nb[1] + slot * ids.nb[0]).cast::<i32>();
                let Some(expert) =
                    u16::try_from(id).ok().filter(|e| usize::from(*e) < main.n_expert)
                else {
                    let message = format!("the router chose expert {id} of {}", main.n_expert);
                    main.failure.get_or_insert(crate::error::EngineError::Graph(message));
                    shared.failed.store(true, Ordering::Release);
                    return;
                };
                main.experts.push(expert);
                let from = probabilities
                    .data
                    .byte_add(id as usize * probabilities.nb[1] + token * probabilities.nb[2]);
                let to = node.data.byte_add(slot * node.nb[1] + token * node.nb[2]);
                *to.cast::<f32>() = *from.cast::<f32>();
            }
        }
    }
    let positions = positions(main, op.layer, tokens);
    if let Some(store) = &mut main.store {
        if let Err(e) = store.begin(op.layer, &main.experts) {
            main.failure.get_or_insert(e.into());
            shared.failed.store(true, Ordering::Release);
            return;
        }
        work.sort_rows(&main.experts, top_k);
        // SAFETY: no product runs while this node does.
        unsafe { shared.activations.reserve(main.experts.len() * op.activation_row_bytes) };
        shared.event_ready.store(true, Ordering::Release);
    }
    if main.record {
        main.pending = Some(record(main, op.model_layer, top_k as u32, positions));
    }
    main.handed_over = Instant::now();
}

/// Counts micro-batches and gives the absolute positions of the event's tokens.
fn positions(main: &mut Main, layer: usize, tokens: usize) -> Vec<u32> {
    let batch = &mut main.batch;
    let ubatch = match batch.ubatch {
        None => 0,
        Some(u) if layer <= batch.last_layer => u + 1,
        Some(u) => u,
    };
    batch.ubatch = Some(ubatch);
    batch.last_layer = layer;
    // The last layer keeps only the tokens whose output is wanted: the last ones.
    let end = ((ubatch + 1) * batch.ubatch_tokens).min(batch.tokens);
    let end = batch.first_position + end;
    (end.saturating_sub(tokens as u32)..end).collect()
}

fn record(main: &Main, layer: u32, top_k: u32, positions: Vec<u32>) -> RouteRecord {
    let mut record = RouteRecord {
        turn: 0,
        ubatch: main.batch.ubatches_before + main.batch.ubatch.unwrap_or(0),
        phase: main.batch.phase,
        layer,
        top_k,
        positions,
        experts: main.experts.clone(),
        weights: vec![f32::NAN; main.experts.len()],
        distinct: Vec::new(),
        residency: Vec::new(),
        read_bytes: Vec::new(),
    };
    if let Some(store) = &main.store {
        let (experts, hits) = store.event_experts();
        let expert_bytes = store.event_expert_bytes();
        record.distinct = experts.to_vec();
        record.residency = (0..experts.len())
            .map(|i| if i < hits { Residency::Hit } else { Residency::Miss })
            .collect();
        record.read_bytes =
            (0..experts.len()).map(|i| if i < hits { 0 } else { expert_bytes }).collect();
    }
    record
}

/// In the place of a `MUL_MAT_ID` over streamed weights.
///
/// # Safety
/// ggml calls it on all threads with the node that `Hook::visit` replaced and the `MatmulOp` given
/// there; the event's `fetch` ran before.
pub(super) unsafe extern "C" fn matmul(
    node: *mut sys::ggml_tensor,
    thread: i32,
    threads: i32,
    data: *mut c_void,
) {
    let (thread, threads) = (thread as usize, threads as usize);
    // SAFETY: given by `Hook::visit`; both outlive the context.
    let (op, shared) = unsafe {
        let op = &*data.cast_const().cast::<MatmulOp>();
        (op, &*op.shared)
    };
    // Changed by `fetch` only, so all threads see the same.
    if !shared.event_ready.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: a replaced MUL_MAT_ID node and its second source.
    let (node, input) = unsafe { (&*node, &*(*node).src[1]) };
    // Addresses have fewer than 56 bits.
    let source = input.data as usize | (op.kernel.activation_type as usize) << 56;
    let convert =
        !op.kernel.takes_f32() && shared.activations.source.load(Ordering::Relaxed) != source;
    if thread == 0 {
        // SAFETY: thread 0; the others don't look at the work before the barrier.
        unsafe { start_round(op, shared) };
    }
    if convert {
        // SAFETY: `fetch` reserved room; each thread converts rows of its own.
        unsafe { convert_activations(op, shared, input, thread, threads) };
    }
    loop {
        shared.barrier.wait(threads);
        if shared.failed.load(Ordering::Acquire) {
            return;
        }
        // SAFETY: behind the barrier.
        let work = unsafe { shared.work() };
        loop {
            let i = shared.next_item.fetch_add(1, Ordering::Relaxed);
            let Some(item) = work.items.get(i) else { break };
            // SAFETY: the item's slice is in memory for this round; items write disjoint outputs.
            unsafe { compute(op, shared, work, item, node, input, thread) };
        }
        if work.last_round {
            // The others looked at it before the first barrier.
            if thread == 0 && convert {
                shared.activations.source.store(source, Ordering::Relaxed);
            }
            return;
        }
        shared.barrier.wait(threads);
        if thread == 0 {
            // SAFETY: all others wait at the loop's barrier.
            unsafe { start_round(op, shared) };
        }
    }
}

/// Gets the next experts and shares out their products.
///
/// # Safety
/// Thread 0, while no other thread uses `items`.
unsafe fn start_round(op: &MatmulOp, shared: &Shared) {
    // SAFETY: the caller's promise.
    let (main, work) = unsafe { (shared.main(), shared.work_mut()) };
    let start = Instant::now();
    if main.pending.is_some() {
        // SAFETY: thread 0; the weights were computed before the experts.
        unsafe { finish_record(main, op.layer) };
    }
    let Some(store) = &mut main.store else { return };
    work.items.clear();
    match store.next_round(op.projection) {
        Ok(round) => {
            let round = round.to_vec();
            work.last_round = store.finished(op.projection);
            for expert in round {
                let tiled = shared.tiled_forced || work.rows_of(expert).len() >= TILED_ROWS;
                let chunk = if tiled { TILED_CHUNK } else { DOT_CHUNK };
                let slice = store.slice(expert, op.projection);
                for first_out in (0..op.n_out).step_by(chunk) {
                    work.items.push(Item {
                        // SAFETY: the slice holds `n_out` rows.
                        weights: unsafe { slice.add(first_out * op.row_bytes) },
                        expert,
                        first_out: first_out as u32,
                        n_out: chunk.min(op.n_out - first_out) as u32,
                    });
                }
            }
        }
        Err(e) => {
            main.failure.get_or_insert(e.into());
            shared.failed.store(true, Ordering::Release);
        }
    }
    // Getting a round ready is the store's time (it counts it); the rest of the operation is compute.
    let in_store = start.elapsed();
    main.handed_over += in_store;
    shared.next_item.store(0, Ordering::Relaxed);
}

/// Copies the final router weights of the event into its record.
///
/// # Safety
/// Thread 0, behind the routing and before the experts of the layer.
unsafe fn finish_record(main: &mut Main, layer: usize) {
    let Some(record) = &mut main.pending else { return };
    let node = main.weight_nodes[layer];
    if !node.is_null() {
        // SAFETY: the last node with router weights; its buffer is in use until the experts' outputs
        // are weighted. It is contiguous: [1, top_k, tokens] or [top_k, tokens].
        unsafe {
            if sys::ggml_nelements(node) as usize == record.weights.len()
                && sys::ggml_is_contiguous(node)
            {
                let data = (*node).data.cast::<f32>();
                for (i, weight) in record.weights.iter_mut().enumerate() {
                    *weight = *data.add(i);
                }
            }
        }
    }
    main.records.extend(main.pending.take());
}

/// Converts this thread's share of the activation rows.
///
/// # Safety
/// All threads call it with the same node; the activations' buffer has room.
unsafe fn convert_activations(
    op: &MatmulOp,
    shared: &Shared,
    input: &sys::ggml_tensor,
    thread: usize,
    threads: usize,
) {
    let (ne11, ne12) = (input.ne[1] as usize, input.ne[2] as usize);
    let row_bytes = op.kernel.activation_bytes(op.n_in);
    let to = shared.activations.bytes();
    let rows = ne11 * ne12;
    let block = op.kernel.activation_block;
    let blocks = op.n_in / block;
    for row in 0..rows {
        // Many rows: whole rows in turn. Few rows: every thread some blocks of each, as ggml does.
        let (first, last) = if rows >= 4 * threads {
            if row % threads != thread {
                continue;
            }
            (0, blocks)
        } else {
            (thread * blocks / threads, (thread + 1) * blocks / threads)
        };
        let offset = row % ne11 * input.nb[1] + row / ne11 * input.nb[2];
        // SAFETY: within the input by its strides, and within the row's part of the buffer; blocks of
        // different threads are disjoint.
        unsafe {
            op.kernel.convert(
                input.data.byte_add(offset).cast::<f32>().add(first * block),
                to.add(row * row_bytes + op.kernel.activation_bytes(first * block)),
                (last - first) * block,
            );
        }
    }
}

/// Computes one item.
///
/// # Safety
/// Behind the barrier of the item's round, on graph thread `thread`.
unsafe fn compute(
    op: &MatmulOp,
    shared: &Shared,
    work: &Work,
    item: &Item,
    node: &sys::ggml_tensor,
    input: &sys::ggml_tensor,
    thread: usize,
) {
    let rows = work.rows_of(item.expert);
    let ne11 = input.ne[1] as usize;
    let row_bytes = op.kernel.activation_bytes(op.n_in);
    let activation = |row: &Row| -> *const u8 {
        let (i11, i12) = (row.slot as usize % ne11, row.token as usize);
        // SAFETY: within the input by its strides, or within the converted rows.
        unsafe {
            if op.kernel.takes_f32() {
                input.data.byte_add(i11 * input.nb[1] + i12 * input.nb[2]).cast_const().cast()
            } else {
                shared.activations.bytes().cast_const().add((i11 + i12 * ne11) * row_bytes)
            }
        }
    };
    let output = |row: &Row| -> *mut f32 {
        // SAFETY: within the node by its strides.
        unsafe {
            node.data
                .byte_add(row.slot as usize * node.nb[1] + row.token as usize * node.nb[2])
                .cast::<f32>()
                .add(item.first_out as usize)
        }
    };
    let n_out = item.n_out as usize;
    if shared.tiled_forced || rows.len() >= TILED_ROWS {
        // SAFETY: this thread's worker; weights and activations hold what the kernel wants; outputs of
        // different items are disjoint.
        unsafe {
            let products = shared.worker(thread).run(
                &op.kernel,
                item.weights,
                op.n_in,
                n_out,
                rows.iter().map(activation),
            );
            for (row, product) in rows.iter().zip(products.chunks_exact(n_out)) {
                std::ptr::copy_nonoverlapping(product.as_ptr(), output(row), n_out);
            }
        }
        return;
    }
    for row in rows {
        let (from, to) = (activation(row), output(row));
        for i in 0..n_out {
            // SAFETY: weight row `i` of the item, an activation row of the same length, one output.
            unsafe { op.kernel.dot(op.n_in, to.add(i), item.weights.add(i * op.row_bytes), from) };
        }
    }
}
