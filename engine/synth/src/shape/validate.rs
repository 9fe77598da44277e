//! Refuses shapes that can't be built, naming the field, its value and what was expected.

use super::{LayerTypes, Shape};
use crate::arch::{Has, Shared};
use crate::{Arch, Result, SynthError, tokenizer};

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
            .or_else(|| self.parts_problem())
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
        if self.arch.spec().heads_fill_hidden && d.heads * d.head_dim != d.hidden {
            return Some(format!(
                "dims.head_dim = {} with heads = {}, expected heads x head_dim = hidden = {} for {}",
                d.head_dim,
                d.heads,
                d.hidden,
                self.arch.name()
            ));
        }
        if !(d.rope_base.is_finite() && d.rope_base > 1.0) {
            return Some(format!("dims.rope_base = {}, expected more than 1", d.rope_base));
        }
        None
    }

    /// Parts that some architectures have.
    fn parts_problem(&self) -> Option<String> {
        let (d, spec, arch) = (&self.dims, self.arch.spec(), self.arch.name());
        let shared = if spec.shared == Shared::Counted { Has::Maybe } else { Has::Never };
        let parts = [
            ("dense_ffn", d.dense_ffn, spec.dense_ffn),
            ("leading_dense", d.leading_dense, spec.leading_dense),
            ("moe_step", d.moe_step, spec.moe_step),
            ("shared_experts", d.shared_experts, shared),
            ("expert_groups", d.expert_groups, spec.expert_groups),
            ("prediction_layers", d.prediction_layers, spec.prediction_layers),
        ];
        for (field, value, has) in parts {
            match (has, value) {
                (Has::Always, 0) => {
                    return Some(format!("dims.{field} is missing, expected a number for {arch}"));
                }
                (Has::Never, n) if n != 0 => {
                    return Some(format!("dims.{field} = {n}, but {arch} has no such part"));
                }
                _ => {}
            }
        }
        if (0..d.layers).all(|layer| d.is_dense(layer)) {
            return Some(format!(
                "dims: leading_dense = {}, moe_step = {} leave none of {} layers with experts",
                d.leading_dense, d.moe_step, d.layers
            ));
        }
        self.groups_problem().or_else(|| self.extra_problem())
    }

    /// llama.cpp ranks groups by their two best experts, and takes the top-k from the groups used.
    fn groups_problem(&self) -> Option<String> {
        let (d, groups, used) = (&self.dims, self.dims.expert_groups, self.dims.expert_groups_used);
        if groups == 0 {
            return (used > 0).then(|| {
                format!("dims.expert_groups_used = {used}, but dims.expert_groups is not given")
            });
        }
        if groups < 2 || !d.experts.is_multiple_of(groups) || d.experts / groups < 2 {
            return Some(format!(
                "dims.expert_groups = {groups}, expected 2 or more equal groups of at least 2 of the {} \
                 experts",
                d.experts
            ));
        }
        (used == 0 || used >= groups || used * (d.experts / groups) < d.experts_used).then(|| {
            format!(
                "dims.expert_groups_used = {used}, expected less than expert_groups = {groups} and enough \
                 for experts_used = {}",
                d.experts_used
            )
        })
    }

    fn extra_problem(&self) -> Option<String> {
        let (extra, names) = (&self.dims.extra, self.arch.spec().extra);
        if let Some(name) = names.iter().find(|n| extra.get(**n).is_none_or(|&v| v == 0)) {
            return Some(format!(
                "dims.extra.{name} is missing, expected a number for {}",
                self.arch.name()
            ));
        }
        let unknown = extra.keys().find(|k| !names.contains(&k.as_str()))?;
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Some(format!("dims.extra.{unknown} is not known; {} has {known}", self.arch.name()))
    }

    fn window_problem(&self) -> Option<String> {
        let (arch, has) = (self.arch.name(), self.arch.spec().window);
        let Some(w) = &self.dims.window else {
            return (has == Has::Always)
                .then(|| format!("dims.window is missing, expected size and period for {arch}"));
        };
        if has == Has::Never {
            return Some(format!("dims.window is given, but {arch} has no sliding window"));
        }
        if w.size == 0 || w.period < 2 {
            return Some(format!(
                "dims.window: size = {}, period = {}, expected at least 1 and 2",
                w.size, w.period
            ));
        }
        if self.arch == Arch::GptOss && w.period != 2 {
            return Some(format!("dims.window.period = {}, expected 2 for {arch}", w.period));
        }
        let own =
            w.global_head_dim.is_some() || w.global_kv_heads.is_some() || w.rope_base.is_some();
        if own && !self.arch.spec().global_heads {
            return Some(format!("dims.window: {arch} takes only size and period"));
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
        } else if !self.arch.spec().tied_head {
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
