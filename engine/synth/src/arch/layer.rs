//! Attention and norms of one layer.

use super::Builder;
use crate::attention::{Attention, Rope};
use crate::fill::{Fill, Rows};
use crate::residual::NEXT_COPIED;
use crate::{Arch, Shape, WeightType};

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

impl Builder<'_> {
    /// The share of each head's pairs that rotate in Gemma 4's global layers is a quarter; the others get
    /// a frequency divisor so large that they stand still.
    pub(super) fn rope_freqs(&mut self) {
        let layers = self.shape.dims.layers;
        let any_global = (0..layers).any(|l| !is_windowed(self.shape, l));
        if self.shape.arch == Arch::Gemma4 && any_global {
            let pairs = heads(self.shape, None).head_dim / 2;
            let fill = Fill::Step { split: pairs as usize / 4, first: 1.0, rest: 1e30 };
            self.push("rope_freqs.weight", [u64::from(pairs)], WeightType::F32, fill);
        }
    }

    pub(super) fn layer(&mut self, layer: u32) {
        let (arch, hidden) = (self.shape.arch, self.shape.dims.hidden);
        self.norm(format!("blk.{layer}.attn_norm.weight"), hidden);
        self.attention(layer);
        match arch {
            Arch::Qwen3Moe | Arch::Qwen2Moe => {
                self.norm(format!("blk.{layer}.ffn_norm.weight"), hidden);
            }
            Arch::GptOss => self.norm(format!("blk.{layer}.post_attention_norm.weight"), hidden),
            Arch::Gemma4 => self.gemma4_norms(layer),
        }
        self.feed_forward(layer);
    }

    fn design(&self, layer: u32) -> Attention {
        let shape = self.shape;
        let h = heads(shape, Some(layer));
        let pairs = h.head_dim as usize / 2;
        let windowed = is_windowed(shape, layer);
        let window_base = shape.dims.window.as_ref().and_then(|w| w.rope_base);
        let gemma_global = shape.arch == Arch::Gemma4 && !windowed;
        let rope = Rope {
            base: window_base.filter(|_| windowed).unwrap_or(shape.dims.rope_base),
            rotating_pairs: if gemma_global { pairs / 4 } else { pairs },
        };
        Attention::new(shape, h.head_dim as usize, h.kv_heads as usize, &rope)
    }

    fn gain(&self, layer: u32) -> f32 {
        if layer == 0 { 1.0 } else { self.shape.routing.later_attention }
    }

    fn attention(&mut self, layer: u32) {
        let (shape, design) = (self.shape, self.design(layer));
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
            if shape.arch == Arch::Gemma4 { 1.0 } else { 1.0 / (head_dim as f32).sqrt() };
        // With per-head norms the norm's weight sets the size, else the projection does.
        let wanted = (design.peak() / score_scale).sqrt();
        let has_norm = shape.arch.has_qk_norm();
        let size = if has_norm { (head_dim as f32).sqrt() } else { wanted };

        let name = |part: &str| format!("blk.{layer}.attn_{part}");
        let boxed = || Box::new(design.clone());
        let q = Fill::Rows(Rows::Query { attention: boxed(), size });
        let k = Fill::Rows(Rows::Key { attention: boxed(), size });
        let o = Fill::Rows(Rows::AttnOutput {
            attention: boxed(),
            gain: self.gain(layer),
            copies: layer == 0,
        });
        self.push(name("q.weight"), [hidden, q_len], ty, q);
        self.push(name("k.weight"), [hidden, kv_len], ty, k);
        self.push(
            name("v.weight"),
            [hidden, kv_len],
            v_type,
            Fill::Rows(Rows::Value { copies: layer == 0 }),
        );
        self.push(name("output.weight"), [q_len, hidden], o_type, o);
        if has_norm {
            let weight = wanted / (head_dim as f32).sqrt();
            for part in ["q_norm.weight", "k_norm.weight"] {
                self.vector(name(part), [head_dim as u64], weight, 0.02 * weight);
            }
        }
        if matches!(shape.arch, Arch::Qwen2Moe | Arch::GptOss) {
            for (part, len) in [("q.bias", q_len), ("k.bias", kv_len), ("v.bias", kv_len)] {
                self.vector(name(part), [len], 0.0, 0.02);
            }
        }
        if shape.arch == Arch::GptOss {
            self.vector(name("output.bias"), [hidden], 0.0, 0.01);
            self.vector(name("sinks.weight"), [design.heads as u64], 0.0, 0.5);
        }
    }

    fn gemma4_norms(&mut self, layer: u32) {
        let (hidden, r) = (self.shape.dims.hidden, &self.residual);
        // The norm brings the root mean square of what attention writes, over all dimensions, to its weight.
        let topic = (self.gain(layer) * r.topic_rms).powi(2) * r.topic.len() as f32;
        let copied = if layer == 0 { NEXT_COPIED.powi(2) * r.next.len() as f32 } else { 0.0 };
        let attention = ((topic + copied) / hidden as f32).sqrt();
        let added = self.expert_rms();
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let len = [u64::from(hidden)];
        self.vector(name("post_attention_norm"), len, attention, 0.02 * attention);
        self.vector(name("post_ffw_norm"), len, added, 0.02 * added);
        for part in ["ffn_norm", "pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"] {
            self.norm(name(part), hidden);
        }
        self.vector(name("layer_output_scale"), [1], 1.0, 0.0);
    }
}
