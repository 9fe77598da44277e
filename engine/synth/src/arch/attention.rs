//! Attention of one layer.

use super::Builder;
use super::spec::{Gate, QkNorm};
use crate::Shape;
use crate::attention::{Attention, Rope};
use crate::fill::{Fill, Rows};

/// Attention heads of a layer.
pub(super) struct Heads {
    pub head_dim: u32,
    pub kv_heads: u32,
}

/// Whether a layer attends to its sliding window only.
pub(super) fn is_windowed(shape: &Shape, layer: u32) -> bool {
    shape.dims.window.as_ref().is_some_and(|w| !(layer + 1).is_multiple_of(w.period))
}

/// Heads of a layer; of global layers when `layer` is `None`.
pub(super) fn heads(shape: &Shape, layer: Option<u32>) -> Heads {
    let d = &shape.dims;
    let own = Heads { head_dim: d.head_dim, kv_heads: d.kv_heads };
    match &d.window {
        Some(w) if layer.is_none_or(|l| !is_windowed(shape, l)) => Heads {
            head_dim: w.global_head_dim.unwrap_or(own.head_dim),
            kv_heads: w.global_kv_heads.unwrap_or(own.kv_heads),
        },
        _ => own,
    }
}

/// Elements of a layer's value projection.
pub(crate) fn value_len(shape: &Shape, layer: u32) -> usize {
    let heads = heads(shape, Some(layer));
    (heads.head_dim * heads.kv_heads) as usize
}

impl Builder<'_> {
    fn design(&self, layer: u32) -> Attention {
        let shape = self.shape;
        let h = heads(shape, Some(layer));
        let pairs = h.head_dim as usize / 2;
        let windowed = is_windowed(shape, layer);
        let window_base = shape.dims.window.as_ref().and_then(|w| w.rope_base);
        let rope = Rope {
            base: window_base.filter(|_| windowed).unwrap_or(shape.dims.rope_base),
            rotating_pairs: if windowed { pairs } else { pairs / self.spec.global_rotation },
            neighbour_pairs: self.spec.neighbour_pairs,
        };
        Attention::new(shape, h.head_dim as usize, h.kv_heads as usize, &rope)
    }

    /// Attention output of a layer, relative to the first.
    pub(super) fn attention_gain(&self, layer: u32) -> f32 {
        if layer == 0 { 1.0 } else { self.shape.routing.later_attention }
    }

    /// Attention that averages, see [`crate::attention`].
    pub(super) fn attention(&mut self, layer: u32) {
        let (shape, spec, design) = (self.shape, self.spec, self.design(layer));
        let hidden = u64::from(shape.dims.hidden);
        let head_dim = design.head_dim;
        let q_len = (design.heads * head_dim) as u64;
        let kv_len = (design.kv_heads * head_dim) as u64;
        let types = &shape.types;
        let ty = types.attention.at(layer);
        let v_type = types.attn_v.as_ref().map_or(ty, |t| t.at(layer));
        let o_type = types.attn_output.as_ref().map_or(ty, |t| t.at(layer));

        // llama.cpp multiplies scores with this.
        let score_scale =
            if spec.score_scale > 0.0 { spec.score_scale } else { 1.0 / (head_dim as f32).sqrt() };
        // With norms the norm's weight sets the size, else the projection does.
        let wanted = (design.peak() / score_scale).sqrt();
        let has_norm = spec.qk_norm != QkNorm::None;
        let size = if has_norm { (head_dim as f32).sqrt() } else { wanted };

        let name = |part: &str| format!("blk.{layer}.attn_{part}");
        let boxed = || Box::new(design.clone());
        let q = Rows::Query { attention: boxed(), size };
        let k = Rows::Key { attention: boxed(), size };
        let v = Rows::Value { copies: layer == 0 };
        let o = Rows::AttnOutput {
            attention: boxed(),
            gain: self.attention_gain(layer),
            copies: layer == 0,
        };
        if spec.fused_qkv {
            let stack = Rows::Stack(vec![(q_len, q), (kv_len, k), (kv_len, v)]);
            self.push(name("qkv.weight"), [hidden, q_len + 2 * kv_len], ty, Fill::Rows(stack));
        } else {
            self.push(name("q.weight"), [hidden, q_len], ty, Fill::Rows(q));
            self.push(name("k.weight"), [hidden, kv_len], ty, Fill::Rows(k));
            self.push(name("v.weight"), [hidden, kv_len], v_type, Fill::Rows(v));
        }
        self.push(name("output.weight"), [q_len, hidden], o_type, Fill::Rows(o));
        if has_norm {
            let weight = wanted / (head_dim as f32).sqrt();
            let (q_norm, k_norm) = match spec.qk_norm {
                QkNorm::Whole => (q_len, kv_len),
                _ => (head_dim as u64, head_dim as u64),
            };
            for (part, len) in [("q_norm.weight", q_norm), ("k_norm.weight", k_norm)] {
                self.vector(name(part), [len], weight, 0.02 * weight);
            }
        }
        let gates = match spec.attention_gate {
            Gate::None => 0,
            Gate::PerHead => design.heads as u64,
            Gate::PerElement => q_len,
        };
        if gates > 0 {
            self.mixer(layer, "attn_gate.weight", [hidden, gates], 1.0);
        }
        if spec.qkv_bias {
            for (part, len) in [("q.bias", q_len), ("k.bias", kv_len), ("v.bias", kv_len)] {
                self.vector(name(part), [len], 0.0, 0.02);
            }
        }
    }
}
