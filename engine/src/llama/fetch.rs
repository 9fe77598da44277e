//! The operation that makes a layer's experts resident, in the place of a stock node.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use bmoe_trace::record::{Phase, ReadPurpose};

use super::forced::ForcedRoutes;
use super::routes::{add_scores, positions, record};
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
    main.clock.dense(op.layer);
    // SAFETY: sources of a replaced GET_ROWS.
    let (probabilities, ids) = unsafe { (&*node.src[0], &*node.src[1]) };
    let (top_k, tokens) = (ids.ne[0] as usize, ids.ne[1] as usize);
    main.records.extend(main.pending.take());
    main.experts.clear();
    let positions = positions(&mut main.batch, op.layer, tokens);
    if let Some(forced) = &main.forced {
        // SAFETY: the chosen experts of a computed node; `Hook::visit` saw to it that this node is the first
        // to read them.
        if let Err(message) = unsafe { force(forced, op, ids, &positions) } {
            main.failure.get_or_insert(EngineError::Graph(message));
            shared.failed.store(true, Ordering::Release);
            return;
        }
    }
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
    let ubatch = main.batch.number();
    if let Some(source) = &mut main.source {
        if let Err(e) = source.begin(ubatch, op.layer, &main.experts) {
            main.failure.get_or_insert(e);
            shared.failed.store(true, Ordering::Release);
            return;
        }
        work.sort_rows(&main.experts, top_k);
        // SAFETY: no product runs while this node does.
        unsafe { shared.activations.reserve(main.experts.len() * op.activation_row_bytes) };
        shared.event_ready.store(true, Ordering::Release);
        if tokens == 1 && main.batch.phase == Phase::Decode {
            // SAFETY: thread 0; the layer's router has run, and its input is the experts' input too.
            unsafe { read_ahead(main, op.layer) };
        }
    }
    if main.record {
        let mut record = record(main, op.model_layer, top_k as u32, positions);
        // SAFETY: the router's probabilities are this node's source, so they are still there.
        unsafe { add_scores(&mut record, main.scores, main.n_expert, probabilities, tokens) };
        main.pending = Some(record);
    }
    main.clock.fetch(op.layer);
}

/// Puts the recorded experts in the place of the router's choice.
///
/// # Safety
/// `ids` is the `[top_k, tokens]` node of chosen experts, computed and read by nothing yet.
unsafe fn force(
    forced: &ForcedRoutes,
    op: &FetchOp,
    ids: &sys::ggml_tensor,
    positions: &[u32],
) -> Result<(), String> {
    let layer = op.model_layer;
    let top_k = ids.ne[0] as usize;
    if top_k != forced.top_k() {
        return Err(format!(
            "layer {layer} uses {top_k} experts a token, the replayed trace {}",
            forced.top_k()
        ));
    }
    for (token, position) in positions.iter().enumerate() {
        let experts = forced.experts(op.layer, *position).ok_or_else(|| {
            format!("the replayed trace has no experts of layer {layer} for token {position}")
        })?;
        for (slot, expert) in experts.iter().enumerate() {
            // SAFETY: within the tensor by its strides; its elements are 32-bit integers.
            unsafe {
                let at = ids.data.byte_add(token * ids.nb[1] + slot * ids.nb[0]).cast::<i32>();
                *at = i32::from(*expert);
            }
        }
    }
    Ok(())
}

/// Asks for experts of the next layers behind this layer's own.
///
/// # Safety
/// Thread 0, behind the layer's router and before its experts.
unsafe fn read_ahead(main: &mut Main, layer: usize) {
    let Main { source: Some(source), ahead, routers, predictor, experts, .. } = main else {
        return;
    };
    if ahead.predict_experts > 0 && layer + 1 < routers.len() {
        // SAFETY: the routers' nodes are of the running graph; the caller's promise for the input.
        let guesses = unsafe {
            predictor.guess(&routers[layer], &routers[layer + 1], ahead.predict_experts as usize)
        };
        for expert in guesses {
            source.read_early(layer + 1, expert, ReadPurpose::Predict);
        }
    }
    if ahead.prefetch_layers > 0 {
        source.prefetch_after(layer, experts, ahead.prefetch_layers);
    }
}
