//! The operation that multiplies with streamed experts, in the place of a stock node.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use super::kernel::{Kernel, TILED_ROWS};
use super::routes::finish_record;
use super::shared::Shared;
use super::sys;
use super::work::{Item, Row, Work};
use crate::error::EngineError;

/// Outputs of one work item of the dot-product path: small enough to share out, large enough to be
/// worth it (ggml's own chunk for single rows).
const DOT_CHUNK: usize = 64;

/// Outputs of one work item of the tiled path; a multiple of ggml's row group, so that its windows fall
/// where they do in an undivided product.
const TILED_CHUNK: usize = 256;

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
    // The tensor, not its data: ggml may put the down projection's input where the gate's was. Addresses
    // have fewer than 56 bits.
    let source = std::ptr::from_ref(input).addr() | (op.kernel.activation_type as usize) << 56;
    let convert =
        !op.kernel.takes_f32() && shared.activations.source.load(Ordering::Relaxed) != source;
    let mut stalled_before = 0;
    if thread == 0 {
        // SAFETY: thread 0; the others don't look at the work before the barrier.
        unsafe {
            shared.main().clock.dense(op.layer);
            stalled_before = shared.worker(0).stall_ns;
            start_round(op, shared);
        }
        shared.end_turn();
    }
    if convert {
        // SAFETY: `fetch` reserved room; each thread converts rows of its own.
        unsafe { convert_activations(op, shared, input, thread, threads) };
    }
    if thread != 0 {
        // SAFETY: each thread passes its own number.
        unsafe { shared.await_turn(thread) };
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
            // SAFETY: each thread passes its own number, and nothing of the worker is in use.
            if item.pending.is_some_and(|slice| !unsafe { shared.await_slice(slice, thread) }) {
                // The graph is stopped behind this node; the barriers must be passed all the same.
                continue;
            }
            // SAFETY: the item's slice is in memory now; items write disjoint outputs.
            unsafe { compute(op, shared, work, item, node, input, thread) };
        }
        if work.last_round {
            // The others looked at it before the first barrier.
            if thread == 0 {
                if convert {
                    shared.activations.source.store(source, Ordering::Relaxed);
                }
                // SAFETY: thread 0.
                unsafe { end_rounds(op, shared, stalled_before) };
            }
            return;
        }
        shared.barrier.wait(threads);
        if thread == 0 {
            // SAFETY: all others wait at the loop's barrier.
            unsafe { start_round(op, shared) };
            shared.end_turn();
        } else {
            // SAFETY: each thread passes its own number.
            unsafe { shared.await_turn(thread) };
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
    main.clock.experts(op.layer, 0);
    if main.pending.is_some() {
        // SAFETY: thread 0; the weights were computed before the experts.
        unsafe { finish_record(main, op.layer) };
    }
    let Some(source) = &mut main.source else { return };
    work.items.clear();
    match source.next_round(op.projection) {
        Ok(round) => {
            let round = round.to_vec();
            work.last_round = source.finished(op.projection);
            for expert in round {
                let tiled = shared.tiled_forced || work.rows_of(expert).len() >= TILED_ROWS;
                let chunk = if tiled { TILED_CHUNK } else { DOT_CHUNK };
                let slice = source.slice(expert, op.projection);
                if slice.bytes != (op.n_out * op.row_bytes) as u64 {
                    main.failure.get_or_insert(wrong_size(op, expert, slice.bytes));
                    shared.failed.store(true, Ordering::Release);
                    break;
                }
                for first_out in (0..op.n_out).step_by(chunk) {
                    work.items.push(Item {
                        // SAFETY: the slice holds `n_out` rows.
                        weights: unsafe { slice.address.add(first_out * op.row_bytes) },
                        pending: slice.pending,
                        expert,
                        first_out: first_out as u32,
                        n_out: chunk.min(op.n_out - first_out) as u32,
                    });
                }
            }
        }
        Err(e) => {
            main.failure.get_or_insert(e);
            shared.failed.store(true, Ordering::Release);
        }
    }
    // Getting a round ready is the store's time (it counts it); the rest of the operation is compute.
    main.clock.fetch(op.layer);
    shared.next_item.store(0, Ordering::Relaxed);
}

fn wrong_size(op: &MatmulOp, expert: u16, bytes: u64) -> EngineError {
    EngineError::Graph(format!(
        "the source of experts gave {bytes} bytes for expert {expert}, projection {} of MoE layer {}, which \
         has {}",
        op.projection,
        op.layer,
        op.n_out * op.row_bytes
    ))
}

/// Counts the operation's time.
///
/// # Safety
/// Thread 0.
unsafe fn end_rounds(op: &MatmulOp, shared: &Shared, stalled_before: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let stall_ns = shared.worker(0).stall_ns - stalled_before;
        shared.main().clock.experts(op.layer, stall_ns);
    }
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
            let products = shared.worker(thread).product.run(
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
