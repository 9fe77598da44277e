//! What goes into each tensor.

mod rows;
mod successors;

use crate::WeightType;
use crate::quant::{encode, random};
use crate::rng::Stream;

pub(crate) use rows::{Model, Rows, tied_gain};

/// The content of a tensor.
#[derive(Debug, Clone)]
pub(crate) enum Fill {
    /// Random blocks of this standard deviation.
    Random { std: f32 },
    /// Normal F32 values around a mean (norm weights, biases, sinks, scales).
    Around { mean: f32, std: f32 },
    /// F32 values: one for the first `split` elements, another for the rest.
    Step { split: usize, first: f32, rest: f32 },
    /// The experts of each token, as 32-bit integers: `used` neighbours among `experts`.
    TokenExperts { experts: u32, used: u32 },
    /// Rows computed as floats, then encoded.
    Rows(Rows),
}

/// Bytes that one unit of work produces, give or take a row.
const CHUNK_BYTES: usize = 1 << 20;

/// Rows (for computed tensors) or blocks per unit of work.
pub(crate) fn units_per_chunk(fill: &Fill, ty: WeightType, row_len: u64) -> u64 {
    let unit = match fill {
        Fill::Rows(_) => ty.bytes(row_len),
        _ => ty.block_bytes() as u64,
    };
    (CHUNK_BYTES as u64 / unit).max(1)
}

/// Number of units in a tensor of `len` weights.
pub(crate) fn units(fill: &Fill, ty: WeightType, row_len: u64, len: u64) -> u64 {
    match fill {
        Fill::Rows(_) => len / row_len,
        _ => len / ty.block_len() as u64,
    }
}

/// Produces units `first..first + count` of a tensor into `out`, which has their exact size.
pub(crate) fn produce(
    model: &Model,
    fill: &Fill,
    ty: WeightType,
    row_len: usize,
    key: u64,
    first: u64,
    out: &mut [u8],
) {
    match fill {
        Fill::Random { std } => random::fill(ty, *std, &mut Stream::new(key, first), out),
        Fill::Around { mean, std } => {
            let mut values = vec![0.0; out.len() / 4];
            Stream::new(key, first).fill_normal(*std, &mut values);
            for (bytes, v) in out.chunks_exact_mut(4).zip(values) {
                bytes.copy_from_slice(&(mean + v).to_le_bytes());
            }
        }
        Fill::Step { split, first: head, rest } => {
            for (i, bytes) in out.chunks_exact_mut(4).enumerate() {
                let value = if first as usize + i < *split { head } else { rest };
                bytes.copy_from_slice(&value.to_le_bytes());
            }
        }
        Fill::TokenExperts { experts, used } => {
            for (i, bytes) in out.chunks_exact_mut(4).enumerate() {
                let (token, slot) =
                    ((first + i as u64) / u64::from(*used), (first + i as u64) % u64::from(*used));
                let start = Stream::new(key, token).next_u64() % u64::from(*experts);
                let expert = (start + slot) % u64::from(*experts);
                bytes.copy_from_slice(&(expert as u32).to_le_bytes());
            }
        }
        Fill::Rows(rows) => {
            let mut values = vec![0.0; row_len];
            let row_bytes = ty.bytes(row_len as u64) as usize;
            let mut scratch = rows::Scratch::default();
            for (i, bytes) in out.chunks_exact_mut(row_bytes).enumerate() {
                model.row(rows, key, first + i as u64, &mut values, &mut scratch);
                encode::encode(ty, &values, bytes);
            }
        }
    }
}
