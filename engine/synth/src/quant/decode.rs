//! A plain decoder of every block format, for tests.

use half::f16;

use super::{E2M1_DOUBLED, IQ4_VALUES};
use crate::WeightType;

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn scale_min(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, min) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        (
            (packed[j + 4] & 0xF) | (packed[j - 4] >> 6) << 4,
            (packed[j + 4] >> 4) | (packed[j] >> 6) << 4,
        )
    };
    (f32::from(scale), f32::from(min))
}

/// The weights in `bytes`, whole blocks of `ty`.
pub(crate) fn decode(ty: WeightType, bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(ty.block_bytes()).flat_map(|block| decode_block(ty, block)).collect()
}

fn decode_block(ty: WeightType, block: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; ty.block_len()];
    match ty {
        WeightType::F32 => out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]),
        WeightType::F16 => out[0] = half_at(block, 0),
        WeightType::Q8_0 => {
            let d = half_at(block, 0);
            for (x, &q) in out.iter_mut().zip(&block[2..]) {
                *x = d * f32::from(q as i8);
            }
        }
        WeightType::Q4_0 | WeightType::Q5_0 => {
            let d = half_at(block, 0);
            let (high, codes) = if ty == WeightType::Q5_0 {
                (u32::from_le_bytes([block[2], block[3], block[4], block[5]]), &block[6..])
            } else {
                (0, &block[2..])
            };
            let middle = if ty == WeightType::Q5_0 { 16 } else { 8 };
            for j in 0..32 {
                let low = if j < 16 { codes[j] & 0xF } else { codes[j - 16] >> 4 };
                let code = i32::from(low) | ((high >> j & 1) << 4) as i32;
                out[j] = d * (code - middle) as f32;
            }
        }
        WeightType::Q4_K | WeightType::Q5_K => {
            let (d, dmin) = (half_at(block, 0), half_at(block, 2));
            let (high, codes) = if ty == WeightType::Q5_K {
                (&block[16..48], &block[48..])
            } else {
                (&block[..0], &block[16..])
            };
            for (i, x) in out.iter_mut().enumerate() {
                let (pair, sub, l) = (i / 64, i / 32, i % 32);
                let byte = codes[32 * pair + l];
                let mut code = if sub % 2 == 0 { byte & 0xF } else { byte >> 4 };
                if ty == WeightType::Q5_K {
                    code |= (high[l] >> sub & 1) << 4;
                }
                let (scale, min) = scale_min(&block[4..16], sub);
                *x = d * scale * f32::from(code) - dmin * min;
            }
        }
        WeightType::Q6_K => {
            let d = half_at(block, 208);
            for (i, x) in out.iter_mut().enumerate() {
                let (half, part, l) = (i / 128, i % 128 / 32, i % 32);
                let low = block[64 * half + 32 * (part % 2) + l] >> (4 * (part / 2)) & 0xF;
                let high = block[128 + 32 * half + l] >> (2 * part) & 3;
                let scale = f32::from(block[192 + i / 16] as i8);
                *x = d * scale * f32::from((low | high << 4) as i8 - 32);
            }
        }
        WeightType::IQ4_XS => {
            let d = half_at(block, 0);
            let high = u16::from_le_bytes([block[2], block[3]]);
            for (i, x) in out.iter_mut().enumerate() {
                let (sub, l) = (i / 32, i % 32);
                let low = block[4 + sub / 2] >> (4 * (sub % 2)) & 0xF;
                let scale = i32::from(low) | i32::from(high >> (2 * sub) & 3) << 4;
                let byte = block[8 + 16 * sub + l % 16];
                let code = if l < 16 { byte & 0xF } else { byte >> 4 };
                *x = d * (scale - 32) as f32 * f32::from(IQ4_VALUES[usize::from(code)]);
            }
        }
        WeightType::MXFP4 => {
            let d = f32::from(block[0]).mul_add(1.0, -128.0).exp2();
            for (l, x) in out.iter_mut().enumerate() {
                let byte = block[1 + l % 16];
                let code = if l < 16 { byte & 0xF } else { byte >> 4 };
                *x = d * f32::from(E2M1_DOUBLED[usize::from(code)]);
            }
        }
    }
    out
}
