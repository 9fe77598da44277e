//! Read lanes: a few threads that read slices into the arena.
//!
//! Compute threads have nothing to do while the graph waits for flash, so they are the first lanes: the
//! one that asks ([`Lanes::read`]) and those that wait for it ([`Lanes::help_until`]). Threads of our own
//! are started only for lanes beyond them. A compute thread that waits sleeps; if it spun, like at ggml's
//! barriers, it would hold the core that a lane needs.
#![expect(unsafe_code, reason = "reads go straight into raw memory of the arena")]

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use super::file::SliceFiles;
use super::layout::WINDOW_ALIGN;
use super::window::read_window;

/// Most lanes that make sense on one flash device.
pub const MAX_LANES: u32 = 8;

/// One slice to read.
#[derive(Debug, Clone, Copy)]
pub struct SliceRead {
    /// Index of the file.
    pub file: usize,
    /// Where the slice starts in the file.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Frame that receives it: the slice lands at `frame + offset % WINDOW_ALIGN`.
    pub frame: *mut u8,
}

// SAFETY: the pointer is to a frame of the arena that belongs to this read alone until it is done.
unsafe impl Send for SliceRead {}

/// What a batch of reads cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadStats {
    /// Read operations.
    pub reads: u64,
    /// Bytes transferred, alignment included.
    pub device_bytes: u64,
    /// Sum over the lanes of the time spent in reads.
    pub lane_busy_ns: u64,
}

/// A read that failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("reading {bytes} bytes at offset {offset} of {} failed: {message}", path.display())]
pub struct ReadError {
    path: PathBuf,
    offset: u64,
    bytes: u64,
    message: String,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<SliceRead>,
    /// Reads of the current batch that are not finished.
    unfinished: usize,
    stats: ReadStats,
    error: Option<ReadError>,
    closing: bool,
}

#[derive(Debug)]
struct Shared {
    files: SliceFiles,
    queue: Mutex<Queue>,
    /// Wakes the threads of our own.
    work: Condvar,
    /// Wakes compute threads: reads to help with, or what they wait for has come.
    helpers: Condvar,
    /// Wakes the thread that asked.
    done: Condvar,
    /// Compute threads that sleep, or are about to.
    sleepers: AtomicUsize,
}

/// The lanes of one model.
#[derive(Debug)]
pub struct Lanes {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    count: usize,
}

impl Lanes {
    /// Lanes of which `helpers` compute threads are the first; the thread that asks is one of them.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn new(files: SliceFiles, lanes: u32, helpers: u32) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            files,
            queue: Mutex::new(Queue::default()),
            work: Condvar::new(),
            helpers: Condvar::new(),
            done: Condvar::new(),
            sleepers: AtomicUsize::new(0),
        });
        let mut this = Self { shared, threads: Vec::new(), count: lanes as usize };
        for lane in helpers.max(1)..lanes {
            let shared = Arc::clone(&this.shared);
            let thread = std::thread::Builder::new()
                .name(format!("bmoe-lane-{lane}"))
                .spawn(move || shared.serve())?;
            this.threads.push(thread);
        }
        Ok(this)
    }

    /// Reads a batch and returns when all of it is there.
    ///
    /// # Errors
    /// The first read that failed; the frames' contents are then undefined.
    ///
    /// # Safety
    /// Every `frame` must be a 4096-aligned piece of memory that is valid for the slice's aligned
    /// window, that no other read of the batch shares, and that nobody else uses before the return.
    pub unsafe fn read(&self, batch: &[SliceRead]) -> Result<ReadStats, ReadError> {
        let shared = &*self.shared;
        {
            let mut queue = shared.lock();
            queue.stats = ReadStats::default();
            queue.error = None;
            queue.unfinished = batch.len();
            queue.waiting.extend(batch);
        }
        if batch.len() > 1 {
            shared.wake_helpers();
            for _ in 0..(batch.len() - 1).min(self.threads.len()) {
                shared.work.notify_one();
            }
        }
        while let Some(read) = { shared.lock().waiting.pop_front() } {
            shared.carry_out(read);
        }
        let mut queue = shared.lock();
        while queue.unfinished > 0 {
            queue = shared.done.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        match queue.error.take() {
            Some(error) => Err(error),
            None => Ok(queue.stats),
        }
    }

    /// Waits on a compute thread until `turns` reaches `turn`, and reads in the meantime if `as_lane`.
    ///
    /// Short waits (everything was in the cache) are spun through, long ones slept through.
    pub fn help_until(&self, turns: &AtomicUsize, turn: usize, as_lane: bool) {
        const SPINS: u32 = 200;
        let shared = &*self.shared;
        let over = || turns.load(Ordering::SeqCst) >= turn;
        for _ in 0..SPINS {
            if over() {
                return;
            }
            std::hint::spin_loop();
        }
        let mut queue = shared.lock();
        // Announced before the last look at `turns`: `turn_over` either sees the sleeper or was seen.
        shared.sleepers.fetch_add(1, Ordering::SeqCst);
        while !over() {
            if let Some(read) = if as_lane { queue.waiting.pop_front() } else { None } {
                drop(queue);
                shared.carry_out(read);
                queue = shared.lock();
            } else {
                queue = shared.helpers.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
        shared.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Ends a turn: what the other compute threads wait for has come.
    pub fn turn_over(&self, turns: &AtomicUsize) {
        turns.fetch_add(1, Ordering::SeqCst);
        self.shared.wake_helpers();
    }

    /// Number of lanes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The files that the lanes read.
    #[must_use]
    pub fn files(&self) -> &SliceFiles {
        &self.shared.files
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_helpers(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // A sleeper holds the lock from its announcement until it waits.
            drop(self.lock());
            self.helpers.notify_all();
        }
    }

    fn serve(&self) {
        loop {
            let read = {
                let mut queue = self.lock();
                loop {
                    if let Some(read) = queue.waiting.pop_front() {
                        break read;
                    }
                    if queue.closing {
                        return;
                    }
                    queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
            };
            self.carry_out(read);
        }
    }

    fn carry_out(&self, read: SliceRead) {
        let start = Instant::now();
        let result = self.read_slice(read);
        let busy_ns = start.elapsed().as_nanos() as u64;
        let mut queue = self.lock();
        queue.stats.reads += 1;
        queue.stats.lane_busy_ns += busy_ns;
        match result {
            Ok(bytes) => queue.stats.device_bytes += bytes,
            Err(e) => {
                let error = ReadError {
                    path: self.files.path(read.file).to_owned(),
                    offset: read.offset,
                    bytes: read.bytes,
                    message: e.to_string(),
                };
                queue.error.get_or_insert(error);
            }
        }
        queue.unfinished -= 1;
        if queue.unfinished == 0 {
            self.done.notify_all();
        }
    }

    /// Reads one slice; returns the bytes transferred.
    fn read_slice(&self, read: SliceRead) -> io::Result<u64> {
        let lead = read.offset % WINDOW_ALIGN;
        let file = self.files.file(read.file);
        let needed = (lead + read.bytes) as usize;
        if self.files.direct() {
            let window = (needed as u64).next_multiple_of(WINDOW_ALIGN) as usize;
            // SAFETY: `Lanes::read`'s caller promised memory for the aligned window that this read
            // alone uses; anonymous memory is initialised.
            let buffer = unsafe { std::slice::from_raw_parts_mut(read.frame, window) };
            read_window(buffer, needed, WINDOW_ALIGN as usize, |part, done| {
                file.read_at(part, read.offset - lead + done as u64)
            })
        } else {
            // SAFETY: as above; the slice lies within the window.
            let buffer = unsafe {
                std::slice::from_raw_parts_mut(read.frame.add(lead as usize), read.bytes as usize)
            };
            let needed = buffer.len();
            read_window(buffer, needed, 1, |part, done| {
                file.read_at(part, read.offset + done as u64)
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::arena::Arena;

    fn check(want_direct: bool, lanes: u32) {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("slices");
        let content: Vec<u8> = (0..100_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let (files, how) = SliceFiles::open(&[path], want_direct, 4096).unwrap();
        eprintln!("reads: {how:?}, {lanes} lanes");
        let lanes = Lanes::new(files, lanes, 1).unwrap();
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
            })
            .collect();
        // SAFETY: frames are 16 KiB apart and no window is longer than 12 KiB.
        let stats = unsafe { lanes.read(&batch) }.unwrap();
        assert_eq!(stats.reads, 16);
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
        let beyond = SliceRead { file: 0, offset: 99_000, bytes: 2000, frame: arena.at(0) };
        // SAFETY: as above.
        let error = unsafe { lanes.read(&[beyond]) }.unwrap_err().to_string();
        assert!(error.contains("slices") && error.contains("ends 1000 bytes early"), "{error}");
    }

    #[test]
    fn slices_arrive_whole_on_every_path() {
        for lanes in [1, 4] {
            check(true, lanes);
            check(false, lanes);
        }
    }

    #[test]
    fn compute_threads_wait_for_turns_and_read_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("slices");
        std::fs::write(&path, vec![9; 1 << 20]).unwrap();
        let (files, _) = SliceFiles::open(&[path], false, 0).unwrap();
        // Three lanes, all of them compute threads, and a compute thread that is none.
        let lanes = Lanes::new(files, 3, 3).unwrap();
        assert!(lanes.threads.is_empty());
        let arena = Arena::new(1 << 20).unwrap();
        let turns = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 1..4 {
                let (lanes, turns) = (&lanes, &turns);
                scope.spawn(move || {
                    for turn in 1..=300 {
                        lanes.help_until(turns, turn, thread < 3);
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
                    })
                    .collect();
                // SAFETY: frames of one page each.
                let stats = unsafe { lanes.read(&batch) }.unwrap();
                assert_eq!(stats.reads, turn % 5);
                lanes.turn_over(&turns);
            }
        });
    }
}
