//! ggml's block formats: random blocks for weights that carry no structure, an encoder for the few
//! tensors that do, and (in tests) a decoder that proves both.
//!
//! Layouts are those of `ggml-common.h`; multi-byte fields are little-endian.

#[cfg(test)]
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod random;

/// The values of a 4-bit code in IQ4 blocks.
pub(crate) const IQ4_VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the values of an E2M1 code; the scale of an MXFP4 block is halved to make up for it.
pub(crate) const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The 12 bytes that hold eight 6-bit scales and eight 6-bit minima of a Q4_K or Q5_K block.
pub(crate) fn pack_scale_min(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    for j in 0..4 {
        packed[j] = scales[j] | (scales[j + 4] >> 4) << 6;
        packed[j + 4] = mins[j] | (mins[j + 4] >> 4) << 6;
        packed[j + 8] = (scales[j + 4] & 0xF) | (mins[j + 4] & 0xF) << 4;
    }
    packed
}

/// The E8M0 exponent byte for a block scale of 2^`log2`, with MXFP4's doubled values in mind.
pub(crate) fn e8m0(log2: i32) -> u8 {
    (log2 + 127).clamp(2, 254) as u8
}
