//! Refuses shapes that can't be built, naming the field, its value and what was expected.

use super::{Arch, LayerTypes, Shape};
use crate::{Result, SynthError, tokenizer};

/// What llama.cpp accepts at most.
const MAX_LAYERS: u32 = 512;
const MAX_EXPERTS: u32 = 512;

impl Shape {
    /// Checks that the model can be built and that llama.cpp can load it.
    ///
    /// # Errors
    /// Names the first field that doesn't fit.
    pub fn validate(&self) -> Result<()> {
        self.problem()
            .map_or(Ok(()), |message| Err(SynthError::Shape { shape: self.name.clone(), message }))
    }

    fn problem(&self) -> Option<String> {
        self.dims_problem()
            .or_else(|| self.window_problem())
            .or_else(|| self.types_problem())
            .or_else(|| self.tied_problem())
            .or_else(|| self.routing_problem())
            .or_else(|| self.blocks_problem())
    }

    fn dims_problem(&self) -> Option<String> {
        let d = &self.dims;
        let ranges = [
            ("dims.layers", d.layers, 1, MAX_LAYERS),
            ("dims.hidden", d.hidden, 128, 1 << 16),
            ("dims.heads", d.heads, 1, 1024),
            ("dims.kv_heads", d.kv_heads, 1, d.heads),
            ("dims.head_dim", d.head_dim, 16, 1024),
            ("dims.experts", d.experts, 2, MAX_EXPERTS),
            ("dims.experts_used", d.experts_used, 1, d.experts),
            ("dims.expert_ffn", d.expert_ffn, 1, 1 << 18),
            ("dims.context", d.context, 1, 1 << 24),
            ("tokenizer.vocab", self.tokenizer.vocab, tokenizer::MIN_VOCAB, tokenizer::MAX_VOCAB),
        ];
        for (field, value, low, high) in ranges {
            if value < low || value > high {
                return Some(format!("{field} = {value}, expected {low} to {high}"));
            }
        }
        let multiples = [("dims.hidden", d.hidden, 32), ("dims.head_dim", d.head_dim, 16)];
        for (field, value, of) in multiples {
            if !value.is_multiple_of(of) {
                return Some(format!("{field} = {value}, expected a multiple of {of}"));
            }
        }
        if !d.heads.is_multiple_of(d.kv_heads) {
            return Some(format!(
                "dims.heads = {}, expected a multiple of kv_heads = {}",
                d.heads, d.kv_heads
            ));
        }
        if self.arch == Arch::Qwen2Moe && d.heads * d.head_dim != d.hidden {
            return Some(format!(
                "dims.head_dim = {} with heads = {}, expected heads x head_dim = hidden = {} for qwen2moe",
                d.head_dim, d.heads, d.hidden
            ));
        }
        if !(d.rope_base.is_finite() && d.rope_base > 1.0) {
            return Some(format!("dims.rope_base = {}, expected more than 1", d.rope_base));
        }
        match (self.arch.has_dense_ffn(), d.dense_ffn) {
            (true, 0) => Some(format!(
                "dims.dense_ffn is missing, expected the width of the always-on part of {}",
                self.arch.name()
            )),
            (false, n) if n != 0 => {
                Some(format!("dims.dense_ffn = {n}, but {} has no such part", self.arch.name()))
            }
            _ => None,
        }
    }

    fn window_problem(&self) -> Option<String> {
        let arch = self.arch.name();
        let Some(w) = &self.dims.window else {
            return self
                .arch
                .has_window()
                .then(|| format!("dims.window is missing, expected size and period for {arch}"));
        };
        if !self.arch.has_window() {
            return Some(format!("dims.window is given, but {arch} has no sliding window"));
        }
        if w.size == 0 || w.period < 2 {
            return Some(format!(
                "dims.window: size = {}, period = {}, expected at least 1 and 2",
                w.size, w.period
            ));
        }
        if self.arch == Arch::GptOss {
            if w.period != 2 {
                return Some(format!("dims.window.period = {}, expected 2 for {arch}", w.period));
            }
            if w.global_head_dim.is_some() || w.global_kv_heads.is_some() || w.rope_base.is_some() {
                return Some(format!("dims.window: {arch} takes only size and period"));
            }
        }
        if let Some(n) = w.global_head_dim.filter(|&n| n == 0 || !n.is_multiple_of(32)) {
            return Some(format!("dims.window.global_head_dim = {n}, expected a multiple of 32"));
        }
        let heads = self.dims.heads;
        w.global_kv_heads.filter(|&n| n == 0 || !heads.is_multiple_of(n)).map(|n| {
            format!("dims.window.global_kv_heads = {n}, expected a divisor of heads = {heads}")
        })
    }

    fn types_problem(&self) -> Option<String> {
        let t = &self.types;
        let fields: [(&str, Option<&LayerTypes>); 7] = [
            ("expert_gate_up", Some(&t.expert_gate_up)),
            ("expert_down", Some(&t.expert_down)),
            ("attention", Some(&t.attention)),
            ("attn_v", t.attn_v.as_ref()),
            ("attn_output", t.attn_output.as_ref()),
            ("dense_gate_up", t.dense_gate_up.as_ref()),
            ("dense_down", t.dense_down.as_ref()),
        ];
        fields.into_iter().find_map(|(field, types)| {
            types?.problem(self.dims.layers).map(|p| format!("types.{field} {p}"))
        })
    }

    fn tied_problem(&self) -> Option<String> {
        let d = &self.dims;
        if self.types.output.is_some() {
            None
        } else if !matches!(self.arch, Arch::Qwen3Moe | Arch::Gemma4) {
            Some(format!(
                "types.output is missing, expected a type: the head of {} is not tied to the embedding",
                self.arch.name()
            ))
        } else {
            (d.heads < 2 * d.kv_heads).then(|| {
                format!(
                    "types.output is missing (a head tied to the embedding), which needs heads = {} to be \
                     at least twice kv_heads = {}",
                    d.heads, d.kv_heads
                )
            })
        }
    }

    fn routing_problem(&self) -> Option<String> {
        let r = &self.routing;
        let knobs = [
            ("popularity", r.popularity, 0.0, 100.0),
            ("topic", r.topic, 0.0, 100.0),
            ("topic_window", r.topic_window, 0.5, 1000.0),
            ("recent", r.recent, 0.0, 100.0),
            ("recent_window", r.recent_window, 0.5, 1000.0),
            ("sharpness", r.sharpness, 0.01, 20.0),
            ("later_attention", r.later_attention, 0.0, 2.0),
            ("expert_output", r.expert_output, 0.0, 10.0),
        ];
        for (field, value, low, high) in knobs {
            if !(low..=high).contains(&value) {
                return Some(format!("routing.{field} = {value}, expected {low} to {high}"));
            }
        }
        (r.successors == 0 || r.successors > 16)
            .then(|| format!("routing.successors = {}, expected 1 to 16", r.successors))
    }

    /// Every tensor's first dimension must fill whole blocks of its type.
    fn blocks_problem(&self) -> Option<String> {
        crate::arch::tensors(self).iter().find_map(|t| {
            let block = t.weight_type.block_len() as u64;
            (!t.dims[0].is_multiple_of(block)).then(|| {
                format!(
                    "tensor {} has rows of {} weights, but type {} needs a multiple of {block}: \
                     change the dimension or choose a type with blocks of 32",
                    t.name, t.dims[0], t.weight_type
                )
            })
        })
    }
}
