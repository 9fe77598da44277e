//! Reading at full speed: the engine's lanes with nobody who computes.
#![expect(unsafe_code, reason = "hands frames of the arena to the read lanes")]

use std::time::Duration;

use bmoe_trace::record::{IoEngineUsed, ReadPurpose};

use super::arena::Arena;
use super::file::SliceFiles;
use super::lanes::{LaneOptions, Lanes};
use super::layout::WINDOW_ALIGN;
use super::queue::{ReadError, SliceRead};

/// Frames for each lane: enough that no lane ever waits for the next read.
const FRAMES_PER_LANE: u32 = 4;

/// A piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Index of the file.
    pub file: usize,
    /// Where it starts.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

/// What one stretch of reading came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Bytes transferred, alignment included.
    pub device_bytes: u64,
    /// Time during which reads were outstanding.
    pub active_ns: u64,
    /// How long each read took once a lane had it.
    pub service: Vec<Duration>,
}

/// Lanes, frames, and what is in them.
#[derive(Debug)]
pub struct ReadLoop {
    /// Closed before the arena that they read into is dropped.
    lanes: Lanes,
    arena: Arena,
    frame_bytes: u64,
    /// What was read into each frame last.
    frames: Vec<Option<Piece>>,
}

impl ReadLoop {
    /// Memory that it takes with so many lanes for pieces of so many bytes.
    #[must_use]
    pub fn arena_bytes(lanes: u32, piece_bytes: u64) -> u64 {
        u64::from(lanes * FRAMES_PER_LANE) * frame_bytes(piece_bytes)
    }

    /// Starts lanes that read pieces of at most `piece_bytes` into the arena. The number of slices is set
    /// here.
    ///
    /// # Errors
    /// A thread can't be started.
    ///
    /// # Panics
    /// If the arena is smaller than [`Self::arena_bytes`].
    pub fn new(
        files: SliceFiles,
        options: LaneOptions,
        piece_bytes: u64,
        arena: Arena,
    ) -> std::io::Result<Self> {
        assert!(arena.bytes() >= Self::arena_bytes(options.lanes, piece_bytes));
        let frames = vec![None; (options.lanes * FRAMES_PER_LANE) as usize];
        let options = LaneOptions { slices: frames.len(), record: true, helpers: 0, ..options };
        let lanes = Lanes::new(files, options)?;
        Ok(Self { lanes, arena, frame_bytes: frame_bytes(piece_bytes), frames })
    }

    /// What hands the reads to the kernel.
    #[must_use]
    pub fn engine(&self) -> &IoEngineUsed {
        self.lanes.engine()
    }

    /// Lets the system forget what it has cached of the files.
    pub fn drop_cached(&self) {
        self.lanes.files().drop_cached();
    }

    /// Reads what `next` names, one piece after the other, with all lanes busy, until it names none and
    /// everything has come.
    ///
    /// # Errors
    /// The first read that failed.
    ///
    /// # Panics
    /// If a piece is longer than was said.
    pub fn run(&mut self, mut next: impl FnMut() -> Option<Piece>) -> Result<Stretch, ReadError> {
        let queue = self.lanes.queue();
        let _ = (queue.take_stats(), queue.take_completed());
        let mut at = 0;
        while let Some(piece) = next() {
            assert!(frame_bytes(piece.bytes) <= self.frame_bytes, "{piece:?}");
            if self.frames[at].is_some() && !queue.wait_for(at as u32) {
                break;
            }
            self.frames[at] = Some(piece);
            let read = SliceRead {
                file: piece.file,
                offset: piece.offset,
                bytes: piece.bytes,
                frame: self.arena.at(at as u64 * self.frame_bytes),
                slice: at as u32,
                purpose: ReadPurpose::Demand,
                ubatch: 0,
            };
            // SAFETY: the frame is aligned like the arena, long enough for any window of the piece, and
            // nothing else uses it: its last read is over, and `landed` borrows the loop.
            unsafe { self.lanes.submit(&[read]) };
            at = (at + 1) % self.frames.len();
        }
        self.lanes.drain();
        if let Some(error) = self.lanes.queue().take_error() {
            return Err(error);
        }
        let stats = queue.take_stats();
        let service = queue.take_completed().iter().map(|c| c.service).collect();
        Ok(Stretch { device_bytes: stats.device_bytes, active_ns: stats.active_ns, service })
    }

    /// The pieces that are in memory, with their bytes, after a [`Self::run`] that succeeded.
    pub fn landed(&self) -> impl Iterator<Item = (Piece, &[u8])> {
        self.frames.iter().enumerate().filter_map(|(at, piece)| {
            let piece = (*piece)?;
            let lead = piece.offset % WINDOW_ALIGN;
            let start = self.arena.at(at as u64 * self.frame_bytes + lead);
            // SAFETY: `run` waited for all reads; the piece lies within its frame, which nobody writes to
            // while the loop is borrowed.
            Some((piece, unsafe { std::slice::from_raw_parts(start, piece.bytes as usize) }))
        })
    }

    /// Gives the arena back, for the next loop: its pages are there.
    #[must_use]
    pub fn into_arena(self) -> Arena {
        let Self { lanes, arena, .. } = self;
        // A read that failed may have left others running.
        lanes.queue().wait_idle(None);
        drop(lanes);
        arena
    }
}

fn frame_bytes(piece_bytes: u64) -> u64 {
    (piece_bytes + WINDOW_ALIGN - 1).next_multiple_of(WINDOW_ALIGN)
}

#[cfg(test)]
mod tests {
    use bmoe_trace::config::IoEngine;

    use super::super::fault::{Fault, Faults};
    use super::*;

    fn read_loop(engine: IoEngine, faults: Faults) -> (tempfile::TempDir, ReadLoop, Vec<u8>) {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("pieces");
        let content: Vec<u8> =
            (0..1u32 << 20).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let (files, _) = SliceFiles::open(&[path], true, &[]).unwrap();
        let options = LaneOptions { lanes: 2, helpers: 0, engine, slices: 0, record: true };
        let arena = Arena::new(ReadLoop::arena_bytes(2, 10_000)).unwrap();
        (dir, ReadLoop::new(files.with_faults(faults), options, 10_000, arena).unwrap(), content)
    }

    #[test]
    fn pieces_are_read_and_counted() {
        for engine in [IoEngine::Pread, IoEngine::Uring] {
            let (_dir, mut read_loop, content) = read_loop(engine, Faults::default());
            let mut offsets = (0..100u64).map(|i| i * 10_007);
            let stretch = read_loop
                .run(|| Some(Piece { file: 0, offset: offsets.next()?, bytes: 10_000 }))
                .unwrap();
            assert_eq!(stretch.service.len(), 100);
            assert!(stretch.device_bytes >= 1_000_000 && stretch.active_ns > 0);
            let landed: Vec<_> = read_loop.landed().collect();
            assert_eq!(landed.len(), 8);
            for (piece, bytes) in landed {
                let at = piece.offset as usize;
                assert_eq!(bytes, &content[at..at + 10_000], "{engine} {at}");
            }
            // Less than there are frames: what was there before stays.
            let mut once = Some(Piece { file: 0, offset: 5, bytes: 7 });
            assert_eq!(read_loop.run(|| once.take()).unwrap().service.len(), 1);
            assert!(read_loop.landed().any(|(p, bytes)| p.bytes == 7 && bytes == &content[5..12]));
            let _ = read_loop.into_arena();
        }
    }

    #[test]
    fn a_read_that_fails_ends_the_loop() {
        for engine in [IoEngine::Pread, IoEngine::Uring] {
            let faults = Faults::new(|a| (a.offset == 40_960).then_some(Fault::Error(5)));
            let (_dir, mut read_loop, _) = read_loop(engine, faults);
            let mut offset = 0;
            let error = read_loop
                .run(|| {
                    offset = (offset + 4096) % (1 << 19);
                    Some(Piece { file: 0, offset, bytes: 4096 })
                })
                .unwrap_err()
                .to_string();
            assert!(error.contains("offset 40960") && error.contains("os error 5"), "{error}");
            let _ = read_loop.into_arena();
        }
    }
}
