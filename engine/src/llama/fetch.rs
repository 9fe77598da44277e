//! The operation that makes a layer's experts resident, in the place of a stock node.

use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bmoe_trace::record::{Residency, RouteRecord};

use super::shared::{Main, Shared};
use super::sys;
use crate::error::EngineError;

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

/// In the place of a node that must not run.
pub(super) unsafe extern "C" fn nothing(_: *mut sys::ggml_tensor, _: i32, _: i32, _: *mut c_void) {}

/// In the place of the `GET_ROWS` that picks router weights: does that, and makes the chosen experts
/// resident. ggml calls it on every thread: thread 0 decides, the others wait for it as read lanes.
///
/// # Safety
/// ggml calls it with the node that `Hook::visit` replaced and the `FetchOp` given there.
pub(super) unsafe extern "C" fn fetch(
    node: *mut sys::ggml_tensor,
    thread: i32,
    _: i32,
    data: *mut c_void,
) {
    // SAFETY: given by `Hook::visit`; both outlive the context. Each thread passes its own number.
    unsafe {
        let op = &*data.cast_const().cast::<FetchOp>();
        let shared = &*op.shared;
        if thread == 0 {
            make_resident(op, shared, &*node);
            shared.end_turn();
        } else {
            shared.await_turn(thread as usize);
        }
    }
}

/// Thread 0's part of [`fetch`].
///
/// # Safety
/// Thread 0, inside `fetch`; `node` is the replaced node.
unsafe fn make_resident(op: &FetchOp, shared: &Shared, node: &sys::ggml_tensor) {
    // SAFETY: thread 0, and the others are not inside an operation that uses the state.
    let (main, work) = unsafe { (shared.main(), shared.work_mut()) };
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
                    main.failure.get_or_insert(EngineError::Graph(message));
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
        turn: main.batch.turn,
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
        scored: Vec::new(),
        scores: Vec::new(),
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

/// Copies the final router weights of the event into its record.
///
/// # Safety
/// Thread 0, behind the routing and before the experts of the layer.
pub(super) unsafe fn finish_record(main: &mut Main, layer: usize) {
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
