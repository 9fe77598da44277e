//! What `iobench` reads: a model's slices, a file, or a file made for it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::statvfs;

use crate::error::EngineError;
use crate::flash::layout::WINDOW_ALIGN;
use crate::flash::probe::{Probe, probes};
use crate::flash::read_loop::Piece;
use crate::llama::gguf::ModelInfo;

/// Bytes written at once to a scratch file.
const BLOCK_BYTES: usize = 4 << 20;

/// Where the bytes come from.
#[derive(Debug, Clone)]
pub enum SourceOptions {
    /// The expert slices of a model, of the sizes that they have.
    Model(PathBuf),
    /// Pieces of any file.
    File {
        /// The file.
        path: PathBuf,
        /// Their sizes.
        sizes_bytes: Vec<u64>,
    },
    /// Pieces of a file that is made for the purpose and removed at the end.
    Scratch {
        /// The folder that it is made in; it decides which disk is measured.
        folder: PathBuf,
        /// Its length.
        file_bytes: u64,
        /// Sizes of the pieces.
        sizes_bytes: Vec<u64>,
    },
}

/// Files, and the pieces of each size in them.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) files: Vec<PathBuf>,
    pub(super) probes: Vec<Probe>,
    pub(super) sizes: Vec<Pieces>,
    /// Removes the scratch file when dropped.
    _scratch: Option<tempfile::NamedTempFile>,
}

/// All pieces of one size, in random order.
#[derive(Debug)]
pub(super) struct Pieces {
    pub(super) bytes: u64,
    pieces: Vec<Piece>,
    next: usize,
}

impl Pieces {
    fn new(bytes: u64, mut pieces: Vec<Piece>) -> Self {
        let mut random = SplitMix(bytes);
        for i in (1..pieces.len()).rev() {
            pieces.swap(i, (random.next() % (i as u64 + 1)) as usize);
        }
        Self { bytes, pieces, next: 0 }
    }

    /// The next piece; the first again behind the last.
    pub(super) fn next(&mut self) -> Piece {
        let piece = self.pieces[self.next];
        self.next = (self.next + 1) % self.pieces.len();
        piece
    }

    /// Whether the next piece is the first one (again).
    pub(super) fn at_start(&self) -> bool {
        self.next == 0
    }
}

impl Source {
    /// # Errors
    /// The model or file can't be used, or a scratch file can't be made.
    pub(super) fn open(
        options: &SourceOptions,
        stop: &AtomicUsize,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self, EngineError> {
        match options {
            SourceOptions::Model(path) => {
                let info = ModelInfo::read(path)?;
                info.check_streamable()?;
                let experts = info.experts;
                let mut pieces = std::collections::BTreeMap::<u64, Vec<Piece>>::new();
                for tensor in experts.layers.iter().flat_map(|l| &l.tensors) {
                    let of_size = pieces.entry(tensor.slice_bytes).or_default();
                    of_size.extend((0..experts.n_expert).map(|expert| Piece {
                        file: tensor.file,
                        offset: tensor.slice(expert as u16).start,
                        bytes: tensor.slice_bytes,
                    }));
                }
                Ok(Self {
                    probes: probes(&experts),
                    sizes: pieces.into_iter().map(|(b, p)| Pieces::new(b, p)).collect(),
                    files: experts.files,
                    _scratch: None,
                })
            }
            SourceOptions::File { path, sizes_bytes } => Self::of_file(path, sizes_bytes, None),
            SourceOptions::Scratch { folder, file_bytes, sizes_bytes } => {
                // Before anything is written for nothing.
                for &bytes in sizes_bytes {
                    check_size(bytes, &folder.join("a scratch file"), *file_bytes)?;
                }
                let scratch = write_scratch(folder, *file_bytes, stop, progress)?;
                let path = scratch.path().to_owned();
                Self::of_file(&path, sizes_bytes, Some(scratch))
            }
        }
    }

    fn of_file(
        path: &Path,
        sizes_bytes: &[u64],
        scratch: Option<tempfile::NamedTempFile>,
    ) -> Result<Self, EngineError> {
        let metadata = std::fs::metadata(path).map_err(|e| {
            EngineError::Config(format!("cannot read {}: {e}; check --file", path.display()))
        })?;
        if !metadata.is_file() {
            return Err(EngineError::Config(format!("{} is not a file", path.display())));
        }
        let file_bytes = metadata.len();
        let mut sizes = Vec::new();
        for &bytes in sizes_bytes {
            check_size(bytes, path, file_bytes)?;
            let stride = bytes.next_multiple_of(WINDOW_ALIGN);
            let count = (file_bytes - bytes) / stride + 1;
            let piece = |i| Piece { file: 0, offset: i * stride, bytes };
            sizes.push(Pieces::new(bytes, (0..count).map(piece).collect()));
        }
        let length = file_bytes.min(2 * WINDOW_ALIGN);
        let probe = |offset| Probe { file: 0, offset, bytes: length };
        let last = file_bytes - length;
        Ok(Self {
            files: vec![path.to_owned()],
            probes: vec![probe(0), probe(last / 2), probe(last)],
            sizes,
            _scratch: scratch,
        })
    }
}

fn check_size(bytes: u64, path: &Path, file_bytes: u64) -> Result<(), EngineError> {
    if bytes == 0 || bytes > file_bytes {
        return Err(EngineError::Config(format!(
            "pieces of {} KiB can't be read from {}, which has {} KiB; give other --sizes or a larger \
             file (--scratch-mb)",
            bytes / 1024,
            path.display(),
            file_bytes / 1024
        )));
    }
    Ok(())
}

/// Writes a file of random bytes, which no disk can make smaller, and waits until they are on the disk.
fn write_scratch(
    folder: &Path,
    bytes: u64,
    stop: &AtomicUsize,
    progress: &mut dyn FnMut(&str),
) -> Result<tempfile::NamedTempFile, EngineError> {
    let failed = |e: std::io::Error| EngineError::Output {
        what: format!("a scratch file in {}", folder.display()),
        message: e.to_string(),
    };
    let free = statvfs(folder).map_err(|e| failed(e.into()))?;
    let free_bytes = free.f_bavail.saturating_mul(free.f_frsize);
    if free_bytes < bytes + bytes / 10 {
        return Err(EngineError::Config(format!(
            "a scratch file of {} MiB and a tenth to spare don't fit into {}, which has {} MiB free; give a \
             smaller --scratch-mb, another --dir, or a --file that is there",
            bytes >> 20,
            folder.display(),
            free_bytes >> 20
        )));
    }
    progress(&format!("writing {} MiB to {} ...", bytes >> 20, folder.display()));
    let mut file =
        tempfile::Builder::new().prefix("bmoe-iobench-").tempfile_in(folder).map_err(failed)?;
    let mut random = SplitMix(1);
    let mut block = vec![0u8; BLOCK_BYTES];
    let mut left = bytes as usize;
    while left > 0 {
        if let Some(e) = EngineError::interrupted(stop.load(Ordering::Relaxed)) {
            return Err(e);
        }
        for word in block.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next().to_le_bytes());
        }
        let part = left.min(BLOCK_BYTES);
        file.write_all(&block[..part]).map_err(failed)?;
        left -= part;
    }
    file.as_file().sync_all().map_err(failed)?;
    Ok(file)
}

/// Numbers without a pattern; the same ones each time, so that two measurements read the same places.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_comes_once_before_one_comes_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![1; 100_000]).unwrap();
        let mut source = Source::of_file(&path, &[4096, 5000, 100_000], None).unwrap();
        let counts: Vec<usize> = source.sizes.iter().map(|s| s.pieces.len()).collect();
        assert_eq!(counts, [24, 12, 1]);
        let pieces = &mut source.sizes[1];
        let mut seen: Vec<u64> = (0..12).map(|_| pieces.next().offset).collect();
        assert!(pieces.at_start());
        assert!(!seen.is_sorted());
        seen.sort_unstable();
        assert_eq!(seen, (0..12).map(|i| i * 8192).collect::<Vec<u64>>());
        let error = Source::of_file(&path, &[200_000], None).unwrap_err().to_string();
        assert!(error.contains("195 KiB") && error.contains("--sizes"), "{error}");
    }

    #[test]
    fn a_scratch_file_that_does_not_fit_is_refused_and_one_that_fits_goes_away() {
        let dir = tempfile::tempdir().unwrap();
        let stop = AtomicUsize::new(0);
        let error = write_scratch(dir.path(), 1 << 60, &stop, &mut |_| {}).unwrap_err();
        assert_eq!(error.exit_code(), 3);
        assert!(error.to_string().contains("MiB free"), "{error}");
        let file = write_scratch(dir.path(), 5_000_000, &stop, &mut |_| {}).unwrap();
        assert_eq!(std::fs::metadata(file.path()).unwrap().len(), 5_000_000);
        drop(file);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        stop.store(2, Ordering::Relaxed);
        assert_eq!(
            write_scratch(dir.path(), 5_000_000, &stop, &mut |_| {}).unwrap_err().exit_code(),
            130
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
