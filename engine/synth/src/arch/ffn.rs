//! Router, experts and dense feed-forward part of one layer.

use super::{Builder, Shared};
use crate::WeightType;
use crate::fill::{Fill, Rows};

impl Builder<'_> {
    /// Root mean square of what one layer's experts add to the residual.
    pub(super) fn expert_rms(&self) -> f32 {
        self.shape.routing.expert_output / (self.shape.dims.layers as f32).sqrt()
    }

    /// Deviation of down weights that makes a block of `width` put out `rms`.
    fn down_std(&self, width: u64, rms: f32) -> f32 {
        rms / (self.spec.activation_rms * (width as f32).sqrt())
    }

    /// What a token's expert weights scale the root mean square of its experts' sum by. Where weights are
    /// normalised they are near 1 / k each; else they are probabilities over all experts.
    fn mixing(&self) -> f32 {
        let d = &self.shape.dims;
        let (k, n) = (d.experts_used as f32, d.experts as f32);
        let sum = if self.spec.normalised { 1.0 } else { (4.0 * k / n).min(1.0) };
        sum / k.sqrt()
    }

    /// Experts and shared expert of a layer, or the dense part of one without.
    pub(super) fn feed_forward(&mut self, layer: u32) {
        let d = &self.shape.dims;
        let (dense_ffn, shared_experts) = (d.dense_ffn, d.shared_experts * d.expert_ffn);
        if d.is_dense(layer) {
            return self.dense_part(layer, "", dense_ffn);
        }
        self.experts(layer);
        if self.spec.choice_bias > 0.0 {
            self.choice_bias(layer);
        }
        match self.spec.shared {
            Shared::None => {}
            Shared::DenseFfn => self.dense_part(layer, "_shexp", dense_ffn),
            Shared::Counted if shared_experts == 0 => {}
            Shared::Counted => self.dense_part(layer, "_shexp", shared_experts),
        }
    }

    /// The bias that steers the choice of experts.
    pub(super) fn choice_bias(&mut self, layer: u32) {
        let experts = u64::from(self.shape.dims.experts);
        let name = format!("blk.{layer}.{}", self.spec.choice_bias_name);
        self.vector(name, [experts], 0.0, self.spec.choice_bias);
    }

    /// Router and routed experts.
    pub(super) fn experts(&mut self, layer: u32) {
        let d = &self.shape.dims;
        let (hidden, ffn, experts) =
            (u64::from(d.hidden), u64::from(d.expert_ffn), u64::from(d.experts));
        // What experts take and give, where that is not the residual.
        let wide = match d.extra("expert_latent") {
            0 => hidden,
            latent => u64::from(latent),
        };
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
        let in_std = 1.0 / (wide as f32).sqrt();
        let out_std = self.down_std(ffn, self.expert_rms() / self.mixing());
        if self.spec.fused_gate_up {
            let dims = [wide, 2 * ffn, experts];
            self.push_experts(name("gate_up_exps.weight"), dims, layer, in_type, in_std);
        } else {
            let parts = ["gate_exps.weight", "up_exps.weight"];
            for part in &parts[usize::from(!self.spec.gated)..] {
                self.push_experts(name(part), [wide, ffn, experts], layer, in_type, in_std);
            }
        }
        let dims = [ffn, wide, experts];
        self.push_experts(name("down_exps.weight"), dims, layer, down_type, out_std);
    }

    /// A part of width `ffn` that every token uses: half as loud as the experts, so that routing still shows.
    pub(super) fn dense_part(&mut self, layer: u32, suffix: &str, ffn: u32) {
        let parts = [("gate", ffn), ("up", ffn)];
        self.dense_tensors(layer, suffix, &parts[usize::from(!self.spec.gated)..], ffn);
        if self.spec.shared_gate {
            // A sigmoid near one half.
            let hidden = u64::from(self.shape.dims.hidden);
            let std = 1.0 / (hidden as f32).sqrt();
            self.vector(format!("blk.{layer}.ffn_gate_inp_shexp.weight"), [hidden], 0.0, std);
        }
    }

    /// The same with gate and up in one tensor, which has the name of up.
    pub(super) fn fused_dense_part(&mut self, layer: u32, suffix: &str, ffn: u32) {
        self.dense_tensors(layer, suffix, &[("up", 2 * ffn)], ffn);
    }

    /// Input projections by name and width, and down.
    fn dense_tensors(&mut self, layer: u32, suffix: &str, inputs: &[(&str, u32)], ffn: u32) {
        let (types, ffn) = (&self.shape.types, u64::from(ffn));
        let hidden = u64::from(self.shape.dims.hidden);
        let in_types = types.dense_gate_up.as_ref().unwrap_or(&types.attention);
        let in_type = in_types.at(layer);
        let down_type = types.dense_down.as_ref().unwrap_or(in_types).at(layer);
        let in_std = 1.0 / (hidden as f32).sqrt();
        let name = |part: &str| format!("blk.{layer}.ffn_{part}{suffix}.weight");
        let out_std = self.down_std(ffn, 0.5 * self.expert_rms());
        for &(part, width) in inputs {
            let dims = [hidden, u64::from(width)];
            self.push(name(part), dims, in_type, Fill::Random { std: in_std });
        }
        self.push(name("down"), [ffn, hidden], down_type, Fill::Random { std: out_std });
    }
}
