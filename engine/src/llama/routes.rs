//! Records of which experts were used.

use bmoe_trace::record::RouteRecord;

use super::shared::{Batch, Main};
use super::sys;

/// Counts micro-batches and gives the absolute positions of the event's tokens.
pub(super) fn positions(batch: &mut Batch, layer: usize, tokens: usize) -> Vec<u32> {
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

/// The record of the current event, without what is not known yet: the final weights.
pub(super) fn record(main: &Main, layer: u32, top_k: u32, positions: Vec<u32>) -> RouteRecord {
    let mut record = RouteRecord {
        turn: main.batch.turn,
        ubatch: main.batch.number(),
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
    for (expert, residency, read_bytes) in main.source.iter().flat_map(|source| source.found()) {
        record.distinct.push(expert);
        record.residency.push(residency);
        record.read_bytes.push(read_bytes);
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

/// Adds the `m` best experts of every token with their scores.
///
/// # Safety
/// `probabilities` must be the `[1, n_expert, tokens]` source of the node that picks weights, computed.
pub(super) unsafe fn add_scores(
    record: &mut RouteRecord,
    m: usize,
    n_expert: usize,
    probabilities: &sys::ggml_tensor,
    tokens: usize,
) {
    let m = m.min(n_expert);
    if m == 0 {
        return;
    }
    let mut best: Vec<(f32, u16)> = Vec::with_capacity(n_expert);
    for token in 0..tokens {
        best.clear();
        for expert in 0..n_expert {
            // SAFETY: within the tensor by its strides.
            let score = unsafe {
                let at = expert * probabilities.nb[1] + token * probabilities.nb[2];
                *probabilities.data.byte_add(at).cast_const().cast::<f32>()
            };
            best.push((score, expert as u16));
        }
        let order = |a: &(f32, u16), b: &(f32, u16)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if m < n_expert {
            best.select_nth_unstable_by(m - 1, order);
            best.truncate(m);
        }
        best.sort_unstable_by(order);
        record.scored.extend(best.iter().map(|(_, expert)| *expert));
        record.scores.extend(best.iter().map(|(score, _)| *score));
    }
}
