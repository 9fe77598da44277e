//! Random blocks with a given standard deviation and mean 0, made without going through floats.
//!
//! Codes are uniform random bits. A format whose codes are not symmetric (0..15 around 8) would have a
//! mean of half a step; the block scale's sign is random, which makes the mean vanish over blocks.

use half::f16;

use super::{e8m0, pack_scale_min};
use crate::WeightType;
use crate::rng::Stream;

/// Root mean square of a format's code values, when codes are uniform.
fn code_rms(ty: WeightType) -> f32 {
    match ty {
        WeightType::F32 | WeightType::F16 => 1.0,
        // Codes -127..=127, the value -128 being mapped to -127.
        WeightType::Q8_0 => (((127 * 128 * 255 / 3 + 127 * 127) as f32) / 256.0).sqrt(),
        // -16..=15 and -8..=7: (n^2 - 1) / 12 + 1/4 with n codes.
        WeightType::Q5_0 => 85.5f32.sqrt(),
        WeightType::Q4_0 => 21.5f32.sqrt(),
        // The minimum cancels the mean exactly: (n^2 - 1) / 12.
        WeightType::Q4_K => 21.25f32.sqrt(),
        WeightType::Q5_K => 85.25f32.sqrt(),
        WeightType::Q6_K => 341.5f32.sqrt(),
        WeightType::IQ4_XS => {
            let squares: i32 = super::IQ4_VALUES.iter().map(|&v| i32::from(v) * i32::from(v)).sum();
            (squares as f32 / 16.0).sqrt()
        }
        // Undoubled values: 34.25 / 4.
        WeightType::MXFP4 => 8.5625f32.sqrt(),
    }
}

/// Fills `out`, whole blocks of `ty`, with random weights of standard deviation `std`.
pub(crate) fn fill(ty: WeightType, std: f32, rng: &mut Stream, out: &mut [u8]) {
    debug_assert_eq!(out.len() % ty.block_bytes(), 0);
    match ty {
        WeightType::F32 => {
            let mut value = [0.0f32];
            for bytes in out.chunks_exact_mut(4) {
                rng.fill_normal(std, &mut value);
                bytes.copy_from_slice(&value[0].to_le_bytes());
            }
        }
        WeightType::F16 => {
            let mut value = [0.0f32];
            for bytes in out.chunks_exact_mut(2) {
                rng.fill_normal(std, &mut value);
                bytes.copy_from_slice(&f16::from_f32(value[0]).to_le_bytes());
            }
        }
        _ => {
            rng.fill_bytes(out);
            for block in out.chunks_exact_mut(ty.block_bytes()) {
                set_scales(ty, std / code_rms(ty), rng.next_u64(), block);
            }
        }
    }
}

/// Overwrites the scale fields of a block of random bytes, so that one code step is `step`, give or take
/// a jitter with mean square 1. `bits` supplies the jitter.
fn set_scales(ty: WeightType, step: f32, bits: u64, block: &mut [u8]) {
    let sign = if bits & 1 == 0 { 1.0 } else { -1.0 };
    // Uniform in 0.75..1.25 has the mean square 1 + 0.25 / 12.
    let jitter = (0.75 + 0.5 * ((bits >> 1 & 0xFFFF) as f32 / 65_536.0)) / 1.020_83f32.sqrt();
    let half = |x: f32| f16::from_f32(x).to_le_bytes();
    match ty {
        WeightType::F32 | WeightType::F16 => {}
        WeightType::Q8_0 => {
            block[..2].copy_from_slice(&half(sign * jitter * step));
            for code in &mut block[2..] {
                *code = (*code as i8).max(-127) as u8;
            }
        }
        WeightType::Q5_0 | WeightType::Q4_0 => {
            block[..2].copy_from_slice(&half(sign * jitter * step));
        }
        WeightType::Q4_K | WeightType::Q5_K => {
            let (scales, rms) = six_bit_scales(bits);
            let d = step / rms;
            let middle = if ty == WeightType::Q4_K { 7.5 } else { 15.5 };
            block[..2].copy_from_slice(&half(d));
            block[2..4].copy_from_slice(&half(middle * d));
            // Equal scales and minima put the middle of the code range at 0.
            block[4..16].copy_from_slice(&pack_scale_min(&scales, &scales));
        }
        WeightType::Q6_K => {
            // Sixteen signed scales of magnitude 48..=63, drawn from the block's own random bytes.
            let mut square = 0.0;
            for scale in &mut block[192..208] {
                let magnitude = 48 + (*scale & 15) as i8;
                square += f32::from(magnitude).powi(2);
                *scale = (if *scale & 16 == 0 { magnitude } else { -magnitude }) as u8;
            }
            block[208..210].copy_from_slice(&half(step / (square / 16.0).sqrt()));
        }
        WeightType::IQ4_XS => {
            // Eight scales l - 32 with l in 16..=23 or 41..=48: magnitudes 9..=16 of either sign.
            let (mut high, mut low, mut square) = (0u16, [0u8; 4], 0.0);
            for i in 0..8 {
                let magnitude = 9 + (bits >> (20 + 4 * i) & 7) as i32;
                let signed = if bits >> (23 + 4 * i) & 1 == 0 { magnitude } else { -magnitude };
                let code = (signed + 32) as u8;
                square += (magnitude * magnitude) as f32;
                low[i / 2] |= (code & 0xF) << (4 * (i % 2));
                high |= u16::from(code >> 4) << (2 * i);
            }
            block[..2].copy_from_slice(&half(step / (square / 8.0).sqrt()));
            block[2..4].copy_from_slice(&high.to_le_bytes());
            block[4..8].copy_from_slice(&low);
        }
        WeightType::MXFP4 => {
            // Only powers of two exist: choose between the two neighbours so that the mean square fits.
            let log2 = step.log2().floor();
            let ratio = (step / log2.exp2()).powi(2);
            let upper = (bits >> 20 & 0xFFFF) as f32 / 65_536.0 < (ratio - 1.0) / 3.0;
            block[0] = e8m0(log2 as i32 + i32::from(upper));
        }
    }
}

/// Eight random 6-bit scales in 48..=63 and their root mean square.
fn six_bit_scales(bits: u64) -> ([u8; 8], f32) {
    let mut scales = [0; 8];
    let mut square = 0.0;
    for (i, scale) in scales.iter_mut().enumerate() {
        *scale = 48 + (bits >> (20 + 4 * i) & 15) as u8;
        square += f32::from(*scale).powi(2);
    }
    (scales, (square / 8.0).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::decode::decode;

    #[test]
    fn every_type_has_mean_zero_and_the_asked_deviation() {
        for ty in WeightType::ALL {
            for std in [0.02, 0.6] {
                let n = 256 * 2000;
                let mut bytes = vec![0; ty.bytes(n as u64) as usize];
                fill(ty, std, &mut Stream::new(5, 6), &mut bytes);
                let values = decode(ty, &bytes);
                assert_eq!(values.len(), n);
                let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / n as f64;
                let square = values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / n as f64;
                let relative = square.sqrt() / f64::from(std);
                assert!((relative - 1.0).abs() < 0.02, "{ty}: deviation {relative} of the asked");
                assert!(mean.abs() / f64::from(std) < 0.02, "{ty}: mean {mean}, deviation {std}");
                let limit = 6.0 * std;
                assert!(values.iter().all(|x| x.abs() < limit), "{ty}: a value beyond {limit}");
            }
        }
    }
}
