//! The tensor types that the writer can produce.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A ggml tensor type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(non_camel_case_types, reason = "these are the names that the field uses")]
pub enum WeightType {
    /// 32-bit float.
    F32,
    /// 16-bit float.
    F16,
    /// 8-bit quants, one scale per 32.
    Q8_0,
    /// 5-bit quants, one scale per 32.
    Q5_0,
    /// 4-bit quants, one scale per 32.
    Q4_0,
    /// 4-bit quants in super-blocks of 256, with scales and minima.
    Q4_K,
    /// 5-bit quants in super-blocks of 256, with scales and minima.
    Q5_K,
    /// 6-bit quants in super-blocks of 256, with scales.
    Q6_K,
    /// 4-bit non-linear quants in super-blocks of 256.
    IQ4_XS,
    /// 4-bit floats (E2M1), one power-of-two scale per 32.
    MXFP4,
}

impl WeightType {
    /// Every type, in the order of the documentation.
    pub const ALL: [Self; 10] = [
        Self::F32,
        Self::F16,
        Self::Q8_0,
        Self::Q5_0,
        Self::Q4_0,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::IQ4_XS,
        Self::MXFP4,
    ];

    /// The name as ggml prints it, in upper case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Q8_0 => "Q8_0",
            Self::Q5_0 => "Q5_0",
            Self::Q4_0 => "Q4_0",
            Self::Q4_K => "Q4_K",
            Self::Q5_K => "Q5_K",
            Self::Q6_K => "Q6_K",
            Self::IQ4_XS => "IQ4_XS",
            Self::MXFP4 => "MXFP4",
        }
    }

    /// The `ggml_type` number stored in GGUF files.
    pub const fn ggml_id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q5_0 => 6,
            Self::Q8_0 => 8,
            Self::Q4_K => 12,
            Self::Q5_K => 13,
            Self::Q6_K => 14,
            Self::IQ4_XS => 23,
            Self::MXFP4 => 39,
        }
    }

    /// The `llama_ftype` number closest to a file that is mostly of this type.
    pub(crate) const fn file_type(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q8_0 => 7,
            Self::Q5_0 => 8,
            Self::Q4_K => 15,
            Self::Q5_K => 17,
            Self::Q6_K => 18,
            Self::IQ4_XS => 30,
            Self::MXFP4 => 38,
        }
    }

    /// Weights per block. The first dimension of a tensor must be a multiple of this.
    pub const fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 => 1,
            Self::Q8_0 | Self::Q5_0 | Self::Q4_0 | Self::MXFP4 => 32,
            Self::Q4_K | Self::Q5_K | Self::Q6_K | Self::IQ4_XS => 256,
        }
    }

    /// Bytes per block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
            Self::Q8_0 => 34,
            Self::Q5_0 => 22,
            Self::Q4_0 => 18,
            Self::Q4_K => 144,
            Self::Q5_K => 176,
            Self::Q6_K => 210,
            Self::IQ4_XS => 136,
            Self::MXFP4 => 17,
        }
    }

    /// Bytes of `n_weights` weights, which must fill whole blocks.
    pub const fn bytes(self, n_weights: u64) -> u64 {
        n_weights / self.block_len() as u64 * self.block_bytes() as u64
    }
}

impl fmt::Display for WeightType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_through_toml() {
        #[derive(Deserialize)]
        struct Doc {
            t: WeightType,
        }
        for t in WeightType::ALL {
            let doc: Doc = toml::from_str(&format!("t = \"{t}\"")).unwrap();
            assert_eq!(doc.t, t);
        }
    }

    #[test]
    fn an_expert_of_qwen3_30b_has_the_published_size() {
        let gate_up = WeightType::Q4_K.bytes(2 * 2048 * 768);
        assert_eq!(gate_up + WeightType::Q4_K.bytes(2048 * 768), 2_654_208);
        assert_eq!(gate_up + WeightType::Q6_K.bytes(2048 * 768), 3_059_712);
    }
}
