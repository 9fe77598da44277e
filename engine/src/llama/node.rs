//! Nodes of llama.cpp's graph: what their names say, and how one becomes another operation.

use std::ffi::{CStr, c_void};

use super::sys;

/// The layer of a node that holds router weights at some stage: `ffn_moe_weights-7`,
/// `ffn_moe_weights_norm-7`, ... (but not the sums that they are divided by).
pub(super) fn weights_layer(node: &sys::ggml_tensor) -> Option<u32> {
    let (stage, layer) = stage_and_layer(node, b"ffn_moe_weights")?;
    matches!(stage, "" | "_norm" | "_softmax" | "_scaled").then_some(layer)
}

/// The layer of a node that holds the router's products, with or without its bias.
pub(super) fn logits_layer(node: &sys::ggml_tensor) -> Option<u32> {
    let (stage, layer) = stage_and_layer(node, b"ffn_moe_logits")?;
    matches!(stage, "" | "_biased").then_some(layer)
}

/// The layer of a node that holds the chosen experts.
fn choice_layer(node: &sys::ggml_tensor) -> Option<u32> {
    let (stage, layer) = stage_and_layer(node, b"ffn_moe_topk")?;
    stage.is_empty().then_some(layer)
}

/// The layer whose chosen experts a node reads although its routing is not finished: `known` gives the node with
/// the chosen experts of a layer whose routing is.
pub(super) fn early_choice(
    node: &sys::ggml_tensor,
    known: impl Fn(&u32) -> Option<*const sys::ggml_tensor>,
) -> Option<u32> {
    let reads = match node.op {
        // These look at another node's data in another way, without reading it.
        sys::GGML_OP_NONE
        | sys::GGML_OP_VIEW
        | sys::GGML_OP_RESHAPE
        | sys::GGML_OP_PERMUTE
        | sys::GGML_OP_TRANSPOSE => false,
        // A converted copy is of a second routing, among experts that aren't streamed (GroveMoE's chunk experts).
        sys::GGML_OP_CPY => false,
        _ => weights_layer(node).is_none(),
    };
    let sources = if reads { &node.src[..] } else { &[] };
    sources.iter().find_map(|source| {
        // SAFETY: sources that are there are tensors of the graph or the model.
        let layer = choice_layer(unsafe { source.as_ref() }?)?;
        (known(&layer)? != source.cast_const()).then_some(layer)
    })
}

/// Splits a node's name, `<prefix><stage>-<layer>`.
fn stage_and_layer<'a>(node: &'a sys::ggml_tensor, prefix: &[u8]) -> Option<(&'a str, u32)> {
    // Most nodes are told apart by their first bytes; this runs for every node of every token.
    if !node.name.iter().zip(prefix).all(|(a, b)| *a as u8 == *b) {
        return None;
    }
    // SAFETY: ggml terminates names.
    let name = unsafe { CStr::from_ptr(node.name.as_ptr()) }.to_str().ok()?;
    let (stage, layer) = name[prefix.len()..].split_once('-')?;
    Some((stage, layer.parse().ok()?))
}

/// Memory that ggml accepts for a context: it refuses (and ends the process over) anything that is aligned to less
/// than `GGML_MEM_ALIGN`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(16))]
pub(super) struct ContextMemory([u8; 16]);

pub(super) type CustomOp = unsafe extern "C" fn(*mut sys::ggml_tensor, i32, i32, *mut c_void);

/// Makes a node run `op` on up to `threads` threads.
pub(super) fn replace(node: &mut sys::ggml_tensor, op: CustomOp, data: *mut c_void, threads: i32) {
    let mut space = [ContextMemory::default(); 128];
    let params = sys::ggml_init_params {
        mem_size: size_of_val(&space),
        mem_buffer: space.as_mut_ptr().cast(),
        no_alloc: true,
    };
    // SAFETY: ggml itself lays out the parameters of a custom node in a scratch tensor, from which they
    // are copied; the scratch context has room for the tensor and ends here.
    unsafe {
        let ctx = sys::ggml_init(params);
        let scratch = sys::ggml_custom_4d(
            ctx,
            sys::GGML_TYPE_F32,
            1,
            1,
            1,
            1,
            std::ptr::null_mut(),
            0,
            Some(op),
            threads,
            data,
        );
        node.op = (*scratch).op;
        node.op_params = (*scratch).op_params;
        sys::ggml_free(ctx);
    }
}
