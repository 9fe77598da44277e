//! Where every expert's slices are in the model's files.

use bmoe_cache::EntrySizes;

/// Alignment of O_DIRECT windows in files and in memory. 4096 covers every block size in use; where
/// 512 would do, windows are a little longer than needed.
pub const WINDOW_ALIGN: u64 = 4096;

/// Which of an expert's matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Projection {
    /// `ffn_gate_exps`
    Gate,
    /// `ffn_up_exps`
    Up,
    /// `ffn_gate_up_exps`, both in one tensor
    GateUp,
    /// `ffn_down_exps`
    Down,
}

impl Projection {
    /// Reads a tensor's name, `blk.<layer>.ffn_<projection>_exps.weight`.
    #[must_use]
    pub fn parse(tensor_name: &str) -> Option<(u32, Self)> {
        let (layer, rest) = tensor_name.strip_prefix("blk.")?.split_once('.')?;
        let projection = match rest {
            "ffn_gate_exps.weight" => Self::Gate,
            "ffn_up_exps.weight" => Self::Up,
            "ffn_gate_up_exps.weight" => Self::GateUp,
            "ffn_down_exps.weight" => Self::Down,
            _ => return None,
        };
        Some((layer.parse().ok()?, projection))
    }
}

/// One weight tensor that holds a matrix of every expert of a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpertTensor {
    /// The tensor's name in the file.
    pub name: String,
    /// Which matrix.
    pub projection: Projection,
    /// Index into [`ExpertLayout::files`].
    pub file: usize,
    /// Where expert 0 starts in that file.
    pub offset: u64,
    /// Bytes of one expert's matrix; experts follow one another without gaps.
    pub slice_bytes: u64,
}

impl ExpertTensor {
    /// The file range of one expert's slice.
    #[must_use]
    pub fn slice(&self, expert: u16) -> std::ops::Range<u64> {
        let start = self.offset + u64::from(expert) * self.slice_bytes;
        start..start + self.slice_bytes
    }

    /// Bytes of memory that hold any of this tensor's slices wherever it starts within an aligned
    /// block: the slice with its aligned window.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        let start_in_block = |expert: u64| (self.offset + expert * self.slice_bytes) % WINDOW_ALIGN;
        // When slices are whole blocks, all of them start alike; otherwise any start can occur.
        let worst_start = if self.slice_bytes.is_multiple_of(WINDOW_ALIGN) {
            start_in_block(0)
        } else {
            WINDOW_ALIGN - 1
        };
        (worst_start + self.slice_bytes).next_multiple_of(WINDOW_ALIGN)
    }
}

/// The routed experts of one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerLayout {
    /// Index of the layer in the model.
    pub layer: u32,
    /// Its tensors, in the order in which the graph uses them (up or gate first, down last).
    pub tensors: Vec<ExpertTensor>,
}

impl LayerLayout {
    /// Bytes of one expert.
    #[must_use]
    pub fn expert_bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.slice_bytes).sum()
    }

    /// Memory of one expert, windows included.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        self.tensors.iter().map(ExpertTensor::frame_bytes).sum()
    }
}

/// The routed experts of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpertLayout {
    /// The model's files, in split order.
    pub files: Vec<std::path::PathBuf>,
    /// Experts per layer.
    pub n_expert: u32,
    /// MoE layers, in order.
    pub layers: Vec<LayerLayout>,
}

impl ExpertLayout {
    /// The cache's view of it.
    #[must_use]
    pub fn entry_sizes(&self) -> EntrySizes {
        let bytes: Vec<u64> = self.layers.iter().map(LayerLayout::expert_bytes).collect();
        EntrySizes::new(&bytes, self.n_expert)
    }

    /// Bytes of all routed experts.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.layers.iter().map(|l| l.expert_bytes() * u64::from(self.n_expert)).sum()
    }

    /// One token's top-k of the layer with the largest experts: what has to be in memory at once.
    #[must_use]
    pub fn top_k_bytes(&self, top_k: u32) -> u64 {
        let largest = self.layers.iter().map(LayerLayout::expert_bytes).max().unwrap_or(0);
        largest * u64::from(top_k)
    }

    /// One token's top-k of every layer: the working set of a decode step.
    #[must_use]
    pub fn token_demand_bytes(&self, top_k: u32) -> u64 {
        self.layers.iter().map(|l| l.expert_bytes() * u64::from(top_k)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(offset: u64, slice_bytes: u64) -> ExpertTensor {
        ExpertTensor {
            name: String::new(),
            projection: Projection::Down,
            file: 0,
            offset,
            slice_bytes,
        }
    }

    #[test]
    fn only_routed_expert_weights_are_recognised() {
        assert_eq!(Projection::parse("blk.7.ffn_up_exps.weight"), Some((7, Projection::Up)));
        assert_eq!(
            Projection::parse("blk.11.ffn_gate_up_exps.weight"),
            Some((11, Projection::GateUp))
        );
        for dense in [
            "blk.7.ffn_up_exps.bias",
            "blk.7.ffn_down_exps.scale",
            "blk.7.ffn_up_shexp.weight",
            "blk.x.ffn_up_exps.weight",
            "ffn_up_exps.weight",
        ] {
            assert_eq!(Projection::parse(dense), None, "{dense}");
        }
    }

    #[test]
    fn a_frame_holds_the_aligned_window_of_every_expert() {
        for (offset, slice_bytes) in [
            (32, 884_736),
            (4096, 4096),
            (96, 4_406_400),
            (4064, 1056),
            (0, 1),
            (1 << 40, 2_230_272),
        ] {
            let tensor = tensor(offset, slice_bytes);
            for expert in 0..64 {
                let slice = tensor.slice(expert);
                let start = slice.start / WINDOW_ALIGN * WINDOW_ALIGN;
                let window = slice.end.next_multiple_of(WINDOW_ALIGN) - start;
                assert!(window <= tensor.frame_bytes(), "{offset} {slice_bytes} {expert}");
            }
            assert!(tensor.frame_bytes() <= slice_bytes + 2 * WINDOW_ALIGN);
        }
    }
}
