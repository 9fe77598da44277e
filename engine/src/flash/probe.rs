//! Whether direct reads can be trusted.
//!
//! Some file systems (FUSE over a phone's shared storage, some network and overlay ones) accept O_DIRECT and
//! then return other bytes, too few, or fail at some offsets only. So pieces of the model are read both
//! ways and compared before the first token.

use std::io;

use super::layout::{ExpertLayout, WINDOW_ALIGN};
use super::window::read_window;

/// Longest piece that is compared: the pages that it touches are read once more than needed.
const PROBE_BYTES: u64 = 2 * WINDOW_ALIGN;

/// A piece of a file that is read both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Index of the file.
    pub file: usize,
    /// Where it starts.
    pub offset: u64,
    /// Its length; it must lie within the file.
    pub bytes: u64,
}

/// Where to look in a model: in each of its files the start of the first, the middle of the middle and
/// the end of the last expert tensor. That end is seldom a whole block, and often the file's own.
#[must_use]
pub fn probes(layout: &ExpertLayout) -> Vec<Probe> {
    let mut probes = Vec::new();
    for file in 0..layout.files.len() {
        let mut tensors: Vec<_> =
            layout.layers.iter().flat_map(|l| &l.tensors).filter(|t| t.file == file).collect();
        tensors.sort_unstable_by_key(|t| t.offset);
        let (Some(first), Some(last)) = (tensors.first(), tensors.last()) else { continue };
        let middle = tensors[tensors.len() / 2];
        let middle = middle.slice((layout.n_expert / 2) as u16);
        let end = last.slice((layout.n_expert - 1) as u16).end;
        let length = |slice_bytes: u64| slice_bytes.min(PROBE_BYTES);
        probes.push(Probe { file, offset: first.offset, bytes: length(first.slice_bytes) });
        let bytes = length(middle.end - middle.start);
        probes.push(Probe { file, offset: middle.start, bytes });
        let bytes = length(last.slice_bytes);
        probes.push(Probe { file, offset: end - bytes, bytes });
    }
    probes
}

/// Reads every probe both ways, whole blocks directly; `Err` says what is wrong with the direct reads.
///
/// # Errors
/// The first probe that can't be read or that differs.
pub(super) fn compare(
    probes: &[Probe],
    direct: impl Fn(usize, &mut [u8], u64) -> io::Result<usize>,
    buffered: impl Fn(usize, &mut [u8], u64) -> io::Result<usize>,
) -> Result<(), String> {
    const ALIGN: usize = WINDOW_ALIGN as usize;
    for &Probe { file, offset, bytes } in probes {
        let lead = offset % WINDOW_ALIGN;
        let start = offset - lead;
        let needed = (lead + bytes) as usize;
        let window = needed.next_multiple_of(ALIGN);
        let mut space = vec![0u8; window + ALIGN];
        let shift = space.as_ptr().align_offset(ALIGN);
        let got = &mut space[shift..shift + window];
        read_window(got, needed, ALIGN, |part, from| direct(file, part, start + from as u64))
            .map_err(|e| format!("reading with O_DIRECT at offset {start}: {e}"))?;
        let mut expected = vec![0u8; needed];
        read_window(&mut expected, needed, 1, |part, from| {
            buffered(file, part, start + from as u64)
        })
        .map_err(|e| format!("reading the same piece both ways at offset {start}: {e}"))?;
        if got[..needed] != expected {
            return Err(format!(
                "O_DIRECT returned other bytes than a buffered read at offset {start}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::layout::{ExpertTensor, LayerLayout, Projection};
    use super::*;

    const FILE_BYTES: usize = 100_000;

    /// Without a period that a shift could hit.
    fn byte(at: usize) -> u8 {
        ((at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
    }

    fn honest(part: &mut [u8], at: u64) -> io::Result<usize> {
        let bytes = part.len().min(FILE_BYTES.saturating_sub(at as usize));
        for (i, b) in part[..bytes].iter_mut().enumerate() {
            *b = byte(at as usize + i);
        }
        Ok(bytes)
    }

    fn model() -> ExpertLayout {
        let tensors = (0..3)
            .map(|i| ExpertTensor {
                name: String::new(),
                projection: Projection::Down,
                file: 0,
                offset: 1000 + i * 33_000,
                slice_bytes: 8250,
            })
            .collect();
        ExpertLayout {
            files: vec!["m".into()],
            n_expert: 4,
            layers: vec![LayerLayout { layer: 0, tensors }],
        }
    }

    type Reader = fn(&mut [u8], u64) -> io::Result<usize>;

    fn verdict(direct: Reader) -> Result<(), String> {
        compare(&probes(&model()), |_, part, at| direct(part, at), |_, part, at| honest(part, at))
    }

    #[test]
    fn probes_are_at_the_start_the_middle_and_the_end_of_the_experts() {
        let at: Vec<_> = probes(&model()).iter().map(|p| (p.offset, p.offset + p.bytes)).collect();
        assert_eq!(at, [(1000, 9192), (50_500, 58_692), (91_808, 100_000)]);
        assert!(!at[2].1.is_multiple_of(WINDOW_ALIGN), "the last one ends within a block");
    }

    #[test]
    fn an_honest_file_system_passes() {
        assert_eq!(verdict(honest), Ok(()));
    }

    #[test]
    fn every_kind_of_lie_is_found() {
        let lies: [(&str, Reader, &str); 6] = [
            (
                "zeros in the middle",
                |part, at| {
                    let got = honest(part, at)?;
                    if (49_000..59_000).contains(&at) {
                        part[..got].fill(0);
                    }
                    Ok(got)
                },
                "other bytes than a buffered read at offset 49152",
            ),
            (
                "the offset rounded down",
                |part, at| honest(part, at / 65_536 * 65_536),
                "other bytes",
            ),
            (
                "one block late from 64 KiB on",
                |part, at| honest(part, if at >= 65_536 { at + 4096 } else { at }),
                "at offset 90112",
            ),
            (
                "no last block",
                |part, at| {
                    let whole = FILE_BYTES as u64 / 4096 * 4096;
                    let bytes = part.len().min(whole.saturating_sub(at) as usize);
                    honest(&mut part[..bytes], at)
                },
                "ends 1696 bytes early",
            ),
            (
                "an error behind the first block",
                |part, at| {
                    if at > 0 { Err(io::Error::from_raw_os_error(22)) } else { honest(part, at) }
                },
                "Invalid argument",
            ),
            ("success without bytes", |part, _| Ok(part.len()), "other bytes"),
        ];
        for (lie, reader, found) in lies {
            let reason = verdict(reader).expect_err(lie);
            assert!(reason.contains("O_DIRECT") && reason.contains(found), "{lie}: {reason}");
        }
    }

    #[test]
    fn a_piece_that_comes_in_parts_is_no_lie() {
        let slow: Reader = |part, at| {
            let bytes = part.len().min(4096);
            honest(&mut part[..bytes], at)
        };
        assert_eq!(verdict(slow), Ok(()));
    }
}
