//! Read lanes: a few threads that read slices into the arena.
//!
//! When reads overlap with computation every lane is a thread of its own. When they don't, compute threads
//! have nothing to do while the graph waits for flash, so they are the first lanes: the one that asks
//! ([`Lanes::help_with_demand`]) and those that wait for it ([`Lanes::help_until`]); threads of our own are
//! started only for lanes beyond them.
//!
//! With io_uring the lanes are slots of a ring that one thread serves (`uring`); compute threads only wait.
#![expect(unsafe_code, reason = "reads go straight into raw memory of the arena")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use bmoe_trace::config::IoEngine;
use bmoe_trace::record::IoEngineUsed;

use super::file::SliceFiles;
use super::queue::{QueuedRead, ReadError, ReadQueue, SliceRead};
use super::window::{Window, read_window};

/// Most lanes that make sense on one flash device.
pub const MAX_LANES: u32 = 8;

/// How lanes are set up.
#[derive(Debug, Clone, Copy)]
pub struct LaneOptions {
    /// Reads in flight at once.
    pub lanes: u32,
    /// Compute threads that read while they wait; they are the first lanes (`pread` only).
    pub helpers: u32,
    /// How reads are handed to the kernel. Without io_uring the lanes are threads that use `pread`.
    pub engine: IoEngine,
    /// Slices are numbered from 0 to here.
    pub slices: usize,
    /// Keep a record of every read.
    pub record: bool,
}

/// What the lanes and those who wait for them share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) files: SliceFiles,
    pub(super) queue: ReadQueue,
}

/// The lanes of one model.
#[derive(Debug)]
pub struct Lanes {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// The first so many compute threads read while they wait.
    readers: usize,
    engine: IoEngineUsed,
}

impl Lanes {
    /// Starts the lanes.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn new(files: SliceFiles, options: LaneOptions) -> io::Result<Self> {
        let queue = ReadQueue::new(options.slices, options.record);
        let mut this = Self {
            shared: Arc::new(Shared { files, queue }),
            threads: Vec::new(),
            readers: 0,
            engine: IoEngineUsed::Pread,
        };
        if options.engine == IoEngine::Uring {
            match start_uring(&this.shared, options.lanes) {
                Ok(thread) => {
                    this.threads.push(thread);
                    this.engine = IoEngineUsed::Uring;
                    return Ok(this);
                }
                Err(reason) => this.engine = IoEngineUsed::UringUnavailable { reason },
            }
        }
        this.readers = options.helpers.min(options.lanes) as usize;
        for lane in options.helpers..options.lanes {
            let shared = Arc::clone(&this.shared);
            let thread = std::thread::Builder::new()
                .name(format!("bmoe-lane-{lane}"))
                .spawn(move || shared.serve(lane as usize))?;
            this.threads.push(thread);
        }
        Ok(this)
    }

    /// What hands the reads to the kernel.
    #[must_use]
    pub fn engine(&self) -> &IoEngineUsed {
        &self.engine
    }

    /// Hands reads to the lanes, in this order, and returns at once.
    ///
    /// # Safety
    /// Every `frame` must be a 4096-aligned piece of memory that is valid for the slice's aligned
    /// window, and that nobody else uses before the slice's state says that its read is over.
    pub unsafe fn submit(&self, reads: &[SliceRead]) {
        self.shared.queue.submit(reads);
    }

    /// Reads on the calling thread, which is lane 0 where compute threads read, until nothing that layers need
    /// waits for a lane. Reads that other lanes have begun may still run.
    pub fn help_with_demand(&self) {
        while self.readers > 0
            && let Some(read) = self.shared.queue.try_next_demand()
        {
            self.shared.carry_out(read, 0);
        }
    }

    /// Blocks until no read is waiting or running, reading on the calling thread too.
    pub fn drain(&self) {
        let help = |read| self.shared.carry_out(read, 0);
        let help: &dyn Fn(QueuedRead) = &help;
        self.shared.queue.wait_idle((self.readers > 0).then_some(help));
    }

    /// Waits on compute thread `thread` until `turns` reaches `turn`, and reads in the meantime if the
    /// thread is one of the lanes.
    pub fn help_until(&self, turns: &AtomicUsize, turn: usize, thread: usize) {
        let help = |read| self.shared.carry_out(read, thread);
        let help: &dyn Fn(QueuedRead) = &help;
        let over = || turns.load(Ordering::SeqCst) >= turn;
        self.shared.queue.wait_until(over, (thread < self.readers).then_some(help));
    }

    /// Ends a turn: what the other compute threads wait for has come.
    pub fn turn_over(&self, turns: &AtomicUsize) {
        turns.fetch_add(1, Ordering::SeqCst);
        self.shared.queue.wake();
    }

    /// The queue: states of slices, and the numbers.
    #[must_use]
    pub fn queue(&self) -> &ReadQueue {
        &self.shared.queue
    }

    /// The files that the lanes read.
    #[must_use]
    pub fn files(&self) -> &SliceFiles {
        &self.shared.files
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.shared.queue.close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn serve(&self, lane: usize) {
        while let Some(read) = self.queue.next() {
            self.carry_out(read, lane);
        }
    }

    fn carry_out(&self, queued: QueuedRead, lane: usize) {
        let started = Instant::now();
        let result = self.read_slice(&queued.read);
        self.finish(queued, lane, started, result);
    }

    /// Reads one slice; returns the bytes transferred.
    fn read_slice(&self, read: &SliceRead) -> io::Result<u64> {
        let window = Window::of(read, self.files.direct());
        // SAFETY: `Lanes::submit`'s caller promised memory for the aligned window that this read alone uses;
        // anonymous memory is initialised.
        let buffer = unsafe { std::slice::from_raw_parts_mut(window.base, window.bytes) };
        read_window(buffer, window.needed, window.align, |part, done| {
            self.files.read_at(read.file, part, window.offset + done as u64)
        })
    }

    /// A lane is done with a read.
    pub(super) fn finish(
        &self,
        queued: QueuedRead,
        lane: usize,
        started: Instant,
        result: io::Result<u64>,
    ) {
        let read = &queued.read;
        let result = result.map_err(|e| ReadError {
            path: self.files.path(read.file).to_owned(),
            offset: read.offset,
            bytes: read.bytes,
            message: e.to_string(),
        });
        self.queue.finish(queued, lane, started, result);
    }
}

#[cfg(target_os = "linux")]
use super::uring::start as start_uring;

#[cfg(not(target_os = "linux"))]
fn start_uring(_: &Arc<Shared>, _: u32) -> Result<JoinHandle<()>, String> {
    Err("only builds for Linux (not Android, which forbids it to programs) have it".into())
}

#[cfg(test)]
mod tests {
    use bmoe_trace::record::ReadPurpose;

    use super::*;
    use crate::flash::arena::Arena;
    use crate::flash::layout::WINDOW_ALIGN;
    use crate::flash::queue::SliceState;

    fn check(want_direct: bool, lanes: u32, engine: IoEngine) {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("slices");
        let content: Vec<u8> = (0..100_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let (files, how) = SliceFiles::open(&[path], want_direct, &[]).unwrap();
        eprintln!("reads: {how:?}, {lanes} lanes, {engine}");
        let options = LaneOptions { lanes, helpers: 1, engine, slices: 16, record: true };
        let lanes = Lanes::new(files, options).unwrap();
        let arena = Arena::new(16 * 16384).unwrap();
        // The last slice ends with the file, in the middle of a block.
        let slices: Vec<(u64, u64)> =
            (0..15).map(|i| (i * 6661, 6661 + i)).chain([(100_000 - 5000, 5000)]).collect();
        let batch: Vec<SliceRead> = slices
            .iter()
            .enumerate()
            .map(|(i, &(offset, bytes))| SliceRead {
                file: 0,
                offset,
                bytes,
                frame: arena.at(i as u64 * 16384),
                slice: i as u32,
                purpose: ReadPurpose::Demand,
                ubatch: 0,
            })
            .collect();
        // SAFETY: frames are 16 KiB apart and no window is longer than 12 KiB.
        unsafe { lanes.submit(&batch) };
        lanes.drain();
        assert!(lanes.queue().take_error().is_none());
        let stats = lanes.queue().take_stats();
        assert_eq!(stats.reads, 16);
        assert!(stats.active_ns > 0 && stats.lane_busy_ns > 0);
        let completed = lanes.queue().take_completed();
        assert_eq!(completed.iter().map(|c| c.device_bytes).sum::<u64>(), stats.device_bytes);
        for (read, &(offset, bytes)) in batch.iter().zip(&slices) {
            // SAFETY: the read is done.
            let got = unsafe {
                std::slice::from_raw_parts(
                    read.frame.add((offset % WINDOW_ALIGN) as usize),
                    bytes as usize,
                )
            };
            assert_eq!(got, &content[offset as usize..(offset + bytes) as usize]);
        }
        let beyond = SliceRead { offset: 99_000, bytes: 2000, ..batch[0] };
        // SAFETY: as above.
        unsafe { lanes.submit(&[beyond]) };
        lanes.drain();
        let error = lanes.queue().take_error().unwrap().to_string();
        assert_eq!(lanes.queue().state(0), SliceState::Failed);
        assert!(error.contains("slices") && error.contains("ends 1000 bytes early"), "{error}");
    }

    #[test]
    fn slices_arrive_whole_on_every_path() {
        for lanes in [1, 4] {
            for engine in [IoEngine::Pread, IoEngine::Uring] {
                check(true, lanes, engine);
                check(false, lanes, engine);
            }
        }
    }

    #[test]
    fn compute_threads_wait_for_turns_and_read_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("slices");
        std::fs::write(&path, vec![9; 1 << 20]).unwrap();
        let (files, _) = SliceFiles::open(&[path], false, &[]).unwrap();
        // Three lanes, all of them compute threads, and a compute thread that is none.
        let engine = IoEngine::Pread;
        let options = LaneOptions { lanes: 3, helpers: 3, engine, slices: 4, record: false };
        let lanes = Lanes::new(files, options).unwrap();
        assert!(lanes.threads.is_empty());
        let arena = Arena::new(1 << 20).unwrap();
        let turns = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 1..4 {
                let (lanes, turns) = (&lanes, &turns);
                scope.spawn(move || {
                    for turn in 1..=300 {
                        lanes.help_until(turns, turn, thread);
                        assert!(turns.load(Ordering::SeqCst) >= turn);
                    }
                });
            }
            for turn in 0..300u64 {
                let batch: Vec<SliceRead> = (0..turn % 5)
                    .map(|i| SliceRead {
                        file: 0,
                        offset: i * 4096,
                        bytes: 4096,
                        frame: arena.at(i * 4096),
                        slice: i as u32,
                        purpose: ReadPurpose::Demand,
                        ubatch: 0,
                    })
                    .collect();
                // SAFETY: frames of one page each.
                unsafe { lanes.submit(&batch) };
                lanes.help_with_demand();
                assert!((0..turn as u32 % 5).all(|slice| lanes.queue().wait_for(slice)));
                assert_eq!(lanes.queue().take_stats().reads, turn % 5);
                lanes.turn_over(&turns);
            }
        });
    }

    /// Reads come while the ring is idle, busy and full; each must be noticed.
    #[test]
    fn the_ring_notices_every_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("slices");
        std::fs::write(&path, vec![9; 1 << 20]).unwrap();
        let (files, _) = SliceFiles::open(&[path], false, &[]).unwrap();
        let engine = IoEngine::Uring;
        let options = LaneOptions { lanes: 3, helpers: 0, engine, slices: 8, record: false };
        let lanes = Lanes::new(files, options).unwrap();
        let arena = Arena::new(8 * 65_536).unwrap();
        let queue = lanes.queue();
        for i in 0..4000u32 {
            let slice = i % 8;
            if queue.state(slice) != SliceState::Absent {
                assert!(queue.wait_for(slice));
                queue.forget(slice);
            }
            let read = SliceRead {
                file: 0,
                offset: u64::from(slice),
                bytes: 1 + u64::from(i % 60_000),
                frame: arena.at(u64::from(slice) * 65_536),
                slice,
                purpose: ReadPurpose::Demand,
                ubatch: 0,
            };
            // SAFETY: each slice has 64 KiB of its own, and its last read is over.
            unsafe { lanes.submit(&[read]) };
            if i % 7 == 0 {
                lanes.drain();
            }
        }
        lanes.drain();
        assert_eq!(queue.take_stats().reads, 4000);
        assert!(queue.take_error().is_none());
    }
}
