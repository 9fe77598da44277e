//! Router, experts and dense feed-forward part of one layer.

use super::Builder;
use crate::fill::{Fill, Rows};
use crate::{Arch, WeightType};

/// Root mean square of `activation(gate) * up` for unit normal inputs.
fn activation_rms(arch: Arch) -> f32 {
    match arch {
        Arch::Qwen3Moe | Arch::Qwen2Moe => 0.6,
        Arch::Gemma4 => 0.65,
        // gpt-oss multiplies with up + 1.
        Arch::GptOss => 0.9,
    }
}

impl Builder<'_> {
    /// Root mean square of what one layer's experts add to the residual.
    pub(super) fn expert_rms(&self) -> f32 {
        self.shape.routing.expert_output / (self.shape.dims.layers as f32).sqrt()
    }

    /// Deviation of down weights that makes a block of `width` put out `rms`.
    fn down_std(&self, width: u64, rms: f32) -> f32 {
        rms / (activation_rms(self.shape.arch) * (width as f32).sqrt())
    }

    /// What a token's expert weights scale the root mean square of its experts' sum by. Where weights are
    /// normalised they are near 1 / k each; Qwen2 MoE keeps the probabilities over all experts.
    fn mixing(&self) -> f32 {
        let d = &self.shape.dims;
        let (k, n) = (d.experts_used as f32, d.experts as f32);
        let sum = if self.shape.arch == Arch::Qwen2Moe { (4.0 * k / n).min(1.0) } else { 1.0 };
        sum / k.sqrt()
    }

    pub(super) fn feed_forward(&mut self, layer: u32) {
        let (arch, d) = (self.shape.arch, &self.shape.dims);
        let (hidden, ffn, experts) =
            (u64::from(d.hidden), u64::from(d.expert_ffn), u64::from(d.experts));
        let router = Fill::Rows(Rows::Router);
        self.push(
            format!("blk.{layer}.ffn_gate_inp.weight"),
            [hidden, experts],
            WeightType::F32,
            router,
        );

        let name = |part: &str| format!("blk.{layer}.ffn_{part}");
        let in_type = self.shape.types.expert_gate_up.at(layer);
        let down_type = self.shape.types.expert_down.at(layer);
        let in_std = 1.0 / (hidden as f32).sqrt();
        let out_std = self.down_std(ffn, self.expert_rms() / self.mixing());
        if arch == Arch::Gemma4 {
            let dims = [hidden, 2 * ffn, experts];
            self.push_experts(name("gate_up_exps.weight"), dims, layer, in_type, in_std);
        } else {
            for part in ["gate_exps.weight", "up_exps.weight"] {
                self.push_experts(name(part), [hidden, ffn, experts], layer, in_type, in_std);
            }
        }
        let dims = [ffn, hidden, experts];
        self.push_experts(name("down_exps.weight"), dims, layer, down_type, out_std);

        match arch {
            Arch::Qwen3Moe => {}
            Arch::Qwen2Moe => self.dense_part(layer, "_shexp"),
            Arch::Gemma4 => {
                self.dense_part(layer, "");
                // The router's input is divided by sqrt(hidden) in the graph.
                let scale = (hidden as f32).sqrt();
                self.vector(name("gate_inp.scale"), [hidden], scale, 0.02 * scale);
                self.vector(name("down_exps.scale"), [experts], 1.0, 0.1);
            }
            Arch::GptOss => {
                self.vector(name("gate_inp.bias"), [experts], 0.0, 0.02);
                for part in ["gate_exps.bias", "up_exps.bias"] {
                    self.vector(name(part), [ffn, experts], 0.0, 0.02);
                }
                let bias = 0.02 * self.expert_rms();
                self.vector(name("down_exps.bias"), [hidden, experts], 0.0, bias);
            }
        }
    }

    /// The part that every token uses: half as loud as the experts, so that routing still shows.
    fn dense_part(&mut self, layer: u32, suffix: &str) {
        let (types, d) = (&self.shape.types, &self.shape.dims);
        let (hidden, ffn) = (u64::from(d.hidden), u64::from(d.dense_ffn));
        let in_types = types.dense_gate_up.as_ref().unwrap_or(&types.attention);
        let in_type = in_types.at(layer);
        let down_type = types.dense_down.as_ref().unwrap_or(in_types).at(layer);
        let in_std = 1.0 / (hidden as f32).sqrt();
        let name = |part: &str| format!("blk.{layer}.ffn_{part}{suffix}.weight");
        let out_std = self.down_std(ffn, 0.5 * self.expert_rms());
        for part in ["gate", "up"] {
            self.push(name(part), [hidden, ffn], in_type, Fill::Random { std: in_std });
        }
        self.push(name("down"), [ffn, hidden], down_type, Fill::Random { std: out_std });
        if !suffix.is_empty() {
            // The shared expert's gate: a sigmoid near one half.
            self.vector(format!("blk.{layer}.ffn_gate_inp_shexp.weight"), [hidden], 0.0, in_std);
        }
    }
}
