//! Float rows to blocks: round to nearest with scales from each block's extremes. Good enough for
//! matrices that we make ourselves; no attempt at the error-minimising searches of real quantisers.

use half::f16;

use super::{E2M1_DOUBLED, IQ4_VALUES, e8m0, pack_scale_min};
use crate::WeightType;

/// Encodes `values` (whole blocks) as `ty` into `out`.
pub(crate) fn encode(ty: WeightType, values: &[f32], out: &mut [u8]) {
    debug_assert_eq!(out.len() as u64, ty.bytes(values.len() as u64));
    let blocks = values.chunks_exact(ty.block_len()).zip(out.chunks_exact_mut(ty.block_bytes()));
    match ty {
        WeightType::F32 => blocks.for_each(|(x, b)| b.copy_from_slice(&x[0].to_le_bytes())),
        WeightType::F16 => {
            blocks.for_each(|(x, b)| b.copy_from_slice(&f16::from_f32(x[0]).to_le_bytes()));
        }
        WeightType::Q8_0 => blocks.for_each(|(x, b)| q8_0(x, b)),
        WeightType::Q5_0 => blocks.for_each(|(x, b)| q5_0(x, b)),
        WeightType::Q4_0 => blocks.for_each(|(x, b)| q4_0(x, b)),
        WeightType::Q4_K => blocks.for_each(|(x, b)| q45_k(x, 15.0, b)),
        WeightType::Q5_K => blocks.for_each(|(x, b)| q45_k(x, 31.0, b)),
        WeightType::Q6_K => blocks.for_each(|(x, b)| q6_k(x, b)),
        WeightType::IQ4_XS => blocks.for_each(|(x, b)| iq4_xs(x, b)),
        WeightType::MXFP4 => blocks.for_each(|(x, b)| mxfp4(x, b)),
    }
}

fn abs_max(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |m, v| m.max(v.abs()))
}

/// 1 / x, or 0 for x = 0: an all-zero block has all-zero codes.
fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// Stores `d` as a half and returns the value that a reader will see.
fn put_half(d: f32, out: &mut [u8]) -> f32 {
    let h = f16::from_f32(d);
    out.copy_from_slice(&h.to_le_bytes());
    h.to_f32()
}

/// Round to nearest. Adding 1.5 * 2^23 leaves the integer in the low mantissa bits, which vectorises
/// where `f32::round` calls a function.
fn round(x: f32) -> i32 {
    const MAGIC: f32 = 12_582_912.0;
    (x + MAGIC).to_bits() as i32 - MAGIC.to_bits() as i32
}

fn q8_0(x: &[f32], block: &mut [u8]) {
    let inv = inverse(put_half(abs_max(x) / 127.0, &mut block[..2]));
    for (q, v) in block[2..].iter_mut().zip(x) {
        *q = round((v * inv).clamp(-127.0, 127.0)) as u8;
    }
}

/// The value of the largest magnitude, which gets the one code that has no counterpart of other sign.
fn signed_max(x: &[f32]) -> f32 {
    x.iter().fold(0.0f32, |m, &v| if v.abs() > m.abs() { v } else { m })
}

fn q4_0(x: &[f32], block: &mut [u8]) {
    let inv = inverse(put_half(signed_max(x) / -8.0, &mut block[..2]));
    let code = |v: f32| round((v * inv + 8.0).clamp(0.0, 15.0)) as u8;
    for j in 0..16 {
        block[2 + j] = code(x[j]) | code(x[j + 16]) << 4;
    }
}

fn q5_0(x: &[f32], block: &mut [u8]) {
    let inv = inverse(put_half(signed_max(x) / -16.0, &mut block[..2]));
    let mut high = 0u32;
    let code = |v: f32| round((v * inv + 16.0).clamp(0.0, 31.0)) as u8;
    for j in 0..16 {
        let (a, b) = (code(x[j]), code(x[j + 16]));
        block[6 + j] = (a & 0xF) | (b & 0xF) << 4;
        high |= u32::from(a >> 4) << j | u32::from(b >> 4) << (j + 16);
    }
    block[2..6].copy_from_slice(&high.to_le_bytes());
}

fn q45_k(x: &[f32], code_max: f32, block: &mut [u8]) {
    let (mut steps, mut lows) = ([0.0f32; 8], [0.0f32; 8]);
    for (i, sub) in x.chunks_exact(32).enumerate() {
        let (lo, hi) = sub.iter().fold((0.0f32, 0.0f32), |(lo, hi), &v| (lo.min(v), hi.max(v)));
        steps[i] = (hi - lo) / code_max;
        lows[i] = -lo;
    }
    let d = put_half(abs_max(&steps) / 63.0, &mut block[..2]);
    let dmin = put_half(abs_max(&lows) / 63.0, &mut block[2..4]);
    let scales = steps.map(|s| round((s * inverse(d)).min(63.0)) as u8);
    let mins = lows.map(|m| round((m * inverse(dmin)).min(63.0)) as u8);
    block[4..16].copy_from_slice(&pack_scale_min(&scales, &mins));

    let wide = code_max > 15.0;
    let (high, codes) = block[16..].split_at_mut(if wide { 32 } else { 0 });
    high.fill(0);
    for (i, sub) in x.chunks_exact(32).enumerate() {
        let (inv, low) = (inverse(d * f32::from(scales[i])), dmin * f32::from(mins[i]));
        for (l, v) in sub.iter().enumerate() {
            let code = round(((v + low) * inv).clamp(0.0, code_max)) as u8;
            let byte = &mut codes[32 * (i / 2) + l];
            *byte = if i % 2 == 0 { code & 0xF } else { *byte | (code & 0xF) << 4 };
            if wide {
                high[l] |= (code >> 4) << i;
            }
        }
    }
}

fn q6_k(x: &[f32], block: &mut [u8]) {
    let mut steps = [0.0f32; 16];
    for (step, sub) in steps.iter_mut().zip(x.chunks_exact(16)) {
        *step = signed_max(sub) / -32.0;
    }
    let d = put_half(abs_max(&steps) / 127.0, &mut block[208..210]);
    block[..192].fill(0);
    for (s, sub) in x.chunks_exact(16).enumerate() {
        let scale = round((steps[s] * inverse(d)).clamp(-127.0, 127.0));
        block[192 + s] = scale as u8;
        let inv = inverse(d * scale as f32);
        for (k, v) in sub.iter().enumerate() {
            let code = round((v * inv + 32.0).clamp(0.0, 63.0)) as u8;
            let i = 16 * s + k;
            let (half, part, l) = (i / 128, i % 128 / 32, i % 32);
            block[64 * half + 32 * (part % 2) + l] |= (code & 0xF) << (4 * (part / 2));
            block[128 + 32 * half + l] |= (code >> 4) << (2 * part);
        }
    }
}

/// The index of the entry of `table` (ascending) that is nearest to `v`.
fn nearest(table: &[i8], v: f32) -> u8 {
    let above = table.partition_point(|&t| f32::from(t) < v).clamp(1, table.len() - 1);
    let (lo, hi) = (f32::from(table[above - 1]), f32::from(table[above]));
    (if v - lo < hi - v { above - 1 } else { above }) as u8
}

fn iq4_xs(x: &[f32], block: &mut [u8]) {
    let mut steps = [0.0f32; 8];
    for (step, sub) in steps.iter_mut().zip(x.chunks_exact(32)) {
        *step = signed_max(sub) / -127.0;
    }
    let d = put_half(abs_max(&steps) / 31.0, &mut block[..2]);
    let (mut high, mut low) = (0u16, [0u8; 4]);
    for (i, sub) in x.chunks_exact(32).enumerate() {
        let scale = round((steps[i] * inverse(d)).clamp(-32.0, 31.0));
        let code = (scale + 32) as u8;
        low[i / 2] |= (code & 0xF) << (4 * (i % 2));
        high |= u16::from(code >> 4) << (2 * i);
        let inv = inverse(d * scale as f32);
        for j in 0..16 {
            let (a, b) =
                (nearest(&IQ4_VALUES, sub[j] * inv), nearest(&IQ4_VALUES, sub[j + 16] * inv));
            block[8 + 16 * i + j] = a | b << 4;
        }
    }
    block[2..4].copy_from_slice(&high.to_le_bytes());
    block[4..8].copy_from_slice(&low);
}

fn mxfp4(x: &[f32], block: &mut [u8]) {
    let max = abs_max(x);
    // The largest code is 6; a maximum just above 6 steps is better clipped than halved in resolution.
    let log2 = if max == 0.0 { -125 } else { (max / 7.0).log2().ceil() as i32 };
    block[0] = e8m0(log2);
    let inv = 2.0 * (-log2 as f32).exp2();
    let code = |v: f32| nearest(&E2M1_DOUBLED[..8], v.abs() * inv) | (u8::from(v < 0.0) << 3);
    for j in 0..16 {
        block[1 + j] = code(x[j]) | code(x[j + 16]) << 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::decode::decode;
    use crate::rng::Stream;

    /// Root mean square error, as a share of the root mean square.
    fn error(ty: WeightType, values: &[f32]) -> f32 {
        let mut bytes = vec![0xAA; ty.bytes(values.len() as u64) as usize];
        encode(ty, values, &mut bytes);
        let back = decode(ty, &bytes);
        let err: f32 = values.iter().zip(&back).map(|(a, b)| (a - b).powi(2)).sum();
        (err / values.iter().map(|a| a * a).sum::<f32>()).sqrt()
    }

    #[test]
    fn rows_survive_encoding_as_well_as_the_type_allows() {
        let mut values = vec![0.0; 256 * 64];
        Stream::new(3, 4).fill_normal(0.3, &mut values);
        let limits = [1e-9, 4e-4, 0.01, 0.05, 0.09, 0.08, 0.04, 0.025, 0.09, 0.14];
        for (ty, limit) in WeightType::ALL.into_iter().zip(limits) {
            let e = error(ty, &values);
            assert!(e < limit, "{ty}: relative error {e}, limit {limit}");
        }
    }

    #[test]
    fn zero_blocks_stay_zero() {
        for ty in WeightType::ALL {
            let values = [0.0; 256];
            let mut bytes = vec![0xAA; ty.bytes(256) as usize];
            encode(ty, &values, &mut bytes);
            let back = decode(ty, &bytes);
            assert!(back.iter().all(|&x| x == 0.0), "{ty}: {back:?}");
        }
    }
}
