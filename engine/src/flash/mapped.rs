//! Pieces of the model's files, mapped read-only: dense weights that the kernel may drop and bring back.
//!
//! Only the pages of the wanted ranges are mapped, so that no fault ever maps a page of experts. When a
//! page that was dropped is used again, the kernel reads around it as the device's readahead says; that
//! may bring in pages of the experts next to it. Bringing pages in ahead of use ([`MappedPieces::warm`]) reads
//! exactly the ranges.
#![expect(unsafe_code, reason = "maps files, and hands out addresses in the maps")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::ptr::NonNull;

use rustix::fs::{Access, Advice, access, fadvise};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::window::read_window;

/// A piece of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Index of the file.
    pub file: usize,
    /// Which of its bytes.
    pub bytes: Range<u64>,
}

/// A mapped stretch of whole pages.
#[derive(Debug)]
struct Stretch {
    file: usize,
    start: u64,
    length: usize,
    base: NonNull<u8>,
}

/// The maps. Addresses in them are valid as long as this lives. If a file is truncated meanwhile, using
/// what is gone is a SIGBUS, as with any map; see [`exit_when_cut_off`].
#[derive(Debug)]
pub struct MappedPieces {
    paths: Vec<PathBuf>,
    files: Vec<File>,
    stretches: Vec<Stretch>,
    page_bytes: u64,
}

// SAFETY: read-only memory owned by this value.
unsafe impl Send for MappedPieces {}
// SAFETY: as above.
unsafe impl Sync for MappedPieces {}

impl MappedPieces {
    /// Maps the pieces; no byte is read.
    ///
    /// # Errors
    /// A file can't be opened or mapped.
    pub fn new(paths: &[PathBuf], pieces: &[Piece]) -> io::Result<Self> {
        let page_bytes = rustix::param::page_size() as u64;
        let files = paths.iter().map(File::open).collect::<io::Result<Vec<_>>>()?;
        let mut this = Self { paths: paths.to_vec(), files, stretches: Vec::new(), page_bytes };
        for Piece { file, bytes } in whole_pages(pieces, page_bytes) {
            let length = usize::try_from(bytes.end - bytes.start)
                .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            // SAFETY: a new read-only map at an address of the kernel's choice touches no other memory.
            let base = unsafe {
                mmap(
                    std::ptr::null_mut(),
                    length,
                    ProtFlags::READ,
                    MapFlags::SHARED,
                    &this.files[file],
                    bytes.start,
                )
            }?;
            let base = NonNull::new(base.cast()).expect("a map is never at address 0");
            this.stretches.push(Stretch { file, start: bytes.start, length, base });
        }
        Ok(this)
    }

    /// The address of a byte of a file; `None` when it is in no piece.
    #[must_use]
    pub fn at(&self, file: usize, offset: u64) -> Option<NonNull<u8>> {
        let stretch = self
            .stretches
            .iter()
            .find(|s| s.file == file && (s.start..s.start + s.length as u64).contains(&offset))?;
        // SAFETY: inside the stretch.
        Some(unsafe { stretch.base.add((offset - stretch.start) as usize) })
    }

    /// Reads all pieces into the page cache and maps their pages. Returns early, with the pages so far, when
    /// `cancelled` says so.
    ///
    /// # Errors
    /// A read failed.
    pub fn warm(&self, cancelled: &dyn Fn() -> bool) -> io::Result<()> {
        const PART_BYTES: usize = 1 << 20;
        let mut part = vec![0; PART_BYTES];
        for file in &self.files {
            // Otherwise the kernel reads on behind each piece, into the experts.
            let _ = fadvise(file, 0, None, Advice::Random);
        }
        for stretch in &self.stretches {
            let file = &self.files[stretch.file];
            let end = file.metadata()?.len().min(stretch.start + stretch.length as u64);
            let mut at = stretch.start;
            while at < end {
                if cancelled() {
                    return Ok(());
                }
                let wanted = (end - at).min(PART_BYTES as u64) as usize;
                read_window(&mut part[..wanted], wanted, 1, |rest, done| {
                    file.read_at(rest, at + done as u64)
                })?;
                for page in (0..wanted).step_by(self.page_bytes as usize) {
                    let inside = (at - stretch.start) as usize + page;
                    // SAFETY: inside the stretch and before the end of the file. Volatile: the read is
                    // made for the page that it maps.
                    unsafe { stretch.base.add(inside).read_volatile() };
                }
                at += wanted as u64;
            }
        }
        Ok(())
    }

    /// Length of the maps.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.stretches.iter().map(|s| s.length as u64).sum()
    }

    /// Bytes of the maps that are in the page cache now. `None` when the kernel doesn't tell: it tells only
    /// those who might write to a file.
    #[must_use]
    pub fn resident_bytes(&self) -> Option<u64> {
        if !self.paths.iter().all(|p| access(p, Access::WRITE_OK).is_ok()) {
            return None;
        }
        let mut pages = 0;
        let mut states = Vec::new();
        for stretch in &self.stretches {
            states.clear();
            states.resize(stretch.length.div_ceil(self.page_bytes as usize), 0);
            // SAFETY: the stretch is mapped, and `states` has a byte for each of its pages.
            let status = unsafe {
                libc::mincore(
                    stretch.base.as_ptr().cast::<c_void>(),
                    stretch.length,
                    states.as_mut_ptr(),
                )
            };
            if status != 0 {
                return None;
            }
            pages += states.iter().filter(|s| **s & 1 == 1).count() as u64;
        }
        Some((pages * self.page_bytes).min(self.bytes()))
    }
}

/// Has the process end with a message when a mapped file is cut off while it is used: the kernel then sends
/// SIGBUS, and there is nothing to go on with.
///
/// # Errors
/// The signal can't be caught.
pub fn exit_when_cut_off() -> io::Result<()> {
    const MESSAGE: &[u8] =
        b"error: a mapped file of the model was cut off while the run used it; run it again\n";
    // SAFETY: the action calls `write` and `_exit` only, which may be called in a signal handler.
    unsafe {
        signal_hook::low_level::register(signal_hook::consts::SIGBUS, || {
            libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len());
            libc::_exit(4);
        })
    }
    .map(drop)
}

impl Drop for MappedPieces {
    fn drop(&mut self) {
        for stretch in &self.stretches {
            // SAFETY: exactly what was mapped; addresses handed out end before (see the type).
            let _ = unsafe { munmap(stretch.base.as_ptr().cast(), stretch.length) };
        }
    }
}

/// The pages of the pieces, those that touch or overlap as one.
fn whole_pages(pieces: &[Piece], page_bytes: u64) -> Vec<Piece> {
    let mut pages: Vec<Piece> = pieces
        .iter()
        .filter(|p| !p.bytes.is_empty())
        .map(|p| Piece {
            file: p.file,
            bytes: p.bytes.start / page_bytes * page_bytes
                ..p.bytes.end.next_multiple_of(page_bytes),
        })
        .collect();
    pages.sort_by_key(|p| (p.file, p.bytes.start));
    pages.dedup_by(|next, last| {
        let joins = next.file == last.file && next.bytes.start <= last.bytes.end;
        if joins {
            last.bytes.end = last.bytes.end.max(next.bytes.end);
        }
        joins
    });
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_mapped_warmed_and_counted() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("weights");
        let page = rustix::param::page_size() as u64;
        let content: Vec<u8> = (0..40 * page + 100).map(|i| ((i * 31) >> 3) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let piece = |from, to| Piece { file: 0, bytes: from..to };
        let pieces = [
            piece(3 * page + 7, 4 * page),
            piece(10, 20),
            piece(4 * page, 5 * page + 1),
            piece(40 * page + 3, 40 * page + 100),
        ];
        let maps = MappedPieces::new(&[path], &pieces).unwrap();
        assert_eq!(maps.bytes(), 5 * page);
        assert!(maps.at(0, 2 * page).is_none() && maps.at(1, 0).is_none());
        maps.warm(&|| false).unwrap();
        for piece in &pieces {
            let start = maps.at(0, piece.bytes.start).unwrap();
            let length = (piece.bytes.end - piece.bytes.start) as usize;
            // SAFETY: mapped, since it is one of the pieces.
            let got = unsafe { std::slice::from_raw_parts(start.as_ptr(), length) };
            assert_eq!(got, &content[piece.bytes.start as usize..][..length]);
        }
        assert_eq!(maps.resident_bytes(), Some(5 * page));
    }

    #[test]
    fn only_whole_pages_of_the_pieces_are_taken() {
        let piece = |file, from, to| Piece { file, bytes: from..to };
        let pages = whole_pages(
            &[piece(1, 5000, 5001), piece(0, 8000, 8200), piece(0, 0, 0), piece(0, 12288, 12289)],
            4096,
        );
        assert_eq!(pages, [piece(0, 4096, 16384), piece(1, 4096, 8192)]);
    }
}
