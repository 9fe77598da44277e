//! Reads that are waiting, running and done.
//!
//! The graph's thread 0 submits reads; lanes take them, layers' needs first and speculation only when
//! nothing else waits; compute threads look at a slice's state and sleep until it has landed. A thread
//! that waits sleeps: if it spun, like at ggml's barriers, it would hold the core that a lane needs.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bmoe_trace::record::ReadPurpose;

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
    /// Number of the slice: where its state is kept.
    pub slice: u32,
    /// Why it is read. [`ReadPurpose::Demand`] goes before everything else.
    pub purpose: ReadPurpose,
    /// Micro-batch that was running when it was asked for.
    pub ubatch: u32,
}

// SAFETY: the pointer is to a frame of the arena that belongs to this read alone until it is done.
#[expect(unsafe_code, reason = "reads carry the address that they fill")]
unsafe impl Send for SliceRead {}

/// Where a slice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SliceState {
    /// Nobody has asked for it.
    Absent,
    /// Its read waits or runs.
    Pending,
    /// In memory.
    Ready,
    /// Its read failed; see [`ReadQueue::take_error`].
    Failed,
}

impl SliceState {
    fn of(byte: u8) -> Self {
        [Self::Absent, Self::Pending, Self::Ready, Self::Failed][usize::from(byte)]
    }
}

/// What reads cost since the numbers were last taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadStats {
    /// Read operations.
    pub reads: u64,
    /// Bytes transferred, alignment included.
    pub device_bytes: u64,
    /// Sum over the lanes of the time spent in reads.
    pub lane_busy_ns: u64,
    /// Time during which at least one read was waiting or running.
    pub active_ns: u64,
}

/// A read that failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("reading {bytes} bytes at offset {offset} of {} failed: {message}", path.display())]
pub struct ReadError {
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) message: String,
}

/// One finished read, when reads are recorded.
#[derive(Debug, Clone, Copy)]
pub struct CompletedRead {
    /// What was read.
    pub read: SliceRead,
    /// Who read it.
    pub lane: u8,
    /// Bytes transferred.
    pub device_bytes: u64,
    /// When it was asked for.
    pub queued: Instant,
    /// How long it waited for a lane.
    pub wait: Duration,
    /// How long the lane took.
    pub service: Duration,
}

/// A read on its way to a lane.
#[derive(Debug, Clone, Copy)]
pub struct QueuedRead {
    /// What to read.
    pub read: SliceRead,
    queued: Instant,
}

/// What a thread finds that must not sleep here because it waits for the kernel, too.
#[derive(Debug)]
pub(super) enum Polled {
    /// A read for it.
    Read(QueuedRead),
    /// Nothing now; the next read will write to the waker.
    Empty,
    /// Nothing any more.
    Closed,
}

#[derive(Debug, Default)]
struct Inner {
    demand: VecDeque<QueuedRead>,
    ahead: VecDeque<QueuedRead>,
    stats: ReadStats,
    active_since: Option<Instant>,
    error: Option<ReadError>,
    completed: Vec<CompletedRead>,
    idle_lanes: usize,
    /// Someone was told [`Polled::Empty`] and has not been woken since.
    waker_armed: bool,
    closing: bool,
}

impl Inner {
    fn pop(&mut self) -> Option<QueuedRead> {
        self.demand.pop_front().or_else(|| self.ahead.pop_front())
    }
}

/// The queue between the store and the lanes.
#[derive(Debug)]
pub struct ReadQueue {
    inner: Mutex<Inner>,
    /// Wakes lanes.
    work: Condvar,
    /// An event descriptor that wakes a thread that [polls](Self::poll).
    waker: OnceLock<File>,
    /// Wakes everyone else.
    waiters: Condvar,
    /// Threads that sleep at `waiters`, or are about to.
    sleepers: AtomicUsize,
    /// Reads submitted and not finished.
    outstanding: AtomicUsize,
    states: Box<[AtomicU8]>,
    record: bool,
}

impl ReadQueue {
    /// For slices `0..slices`; `record` keeps every finished read for [`Self::take_completed`].
    #[must_use]
    pub fn new(slices: usize, record: bool) -> Self {
        Self {
            inner: Mutex::default(),
            work: Condvar::new(),
            waker: OnceLock::new(),
            waiters: Condvar::new(),
            sleepers: AtomicUsize::new(0),
            outstanding: AtomicUsize::new(0),
            states: (0..slices).map(|_| AtomicU8::new(SliceState::Absent as u8)).collect(),
            record,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a slice is. A slice seen as ready is seen whole.
    #[must_use]
    pub fn state(&self, slice: u32) -> SliceState {
        SliceState::of(self.states[slice as usize].load(Ordering::SeqCst))
    }

    /// Forgets a slice whose frame is given to another one. Its read must not be running.
    pub fn forget(&self, slice: u32) {
        debug_assert_ne!(self.state(slice), SliceState::Pending, "slice {slice}");
        self.states[slice as usize].store(SliceState::Absent as u8, Ordering::SeqCst);
    }

    /// Hands reads to the lanes, in this order.
    pub fn submit(&self, reads: &[SliceRead]) {
        if reads.is_empty() {
            return;
        }
        let queued = Instant::now();
        let mut inner = self.lock();
        if self.outstanding.fetch_add(reads.len(), Ordering::SeqCst) == 0 {
            inner.active_since = Some(queued);
        }
        for &read in reads {
            self.states[read.slice as usize].store(SliceState::Pending as u8, Ordering::SeqCst);
            let queue = match read.purpose {
                ReadPurpose::Demand => &mut inner.demand,
                _ => &mut inner.ahead,
            };
            queue.push_back(QueuedRead { read, queued });
        }
        let wake = reads.len().min(inner.idle_lanes);
        let armed = std::mem::take(&mut inner.waker_armed);
        drop(inner);
        for _ in 0..wake {
            self.work.notify_one();
        }
        if armed {
            self.ring();
        }
        self.wake();
    }

    /// A layer needs a slice that is being read ahead: its read goes before the others.
    pub fn promote(&self, slice: u32) {
        let mut inner = self.lock();
        if let Some(at) = inner.ahead.iter().position(|q| q.read.slice == slice) {
            let queued = inner.ahead.remove(at).expect("the position was just found");
            inner.demand.push_back(queued);
        }
    }

    /// Takes a speculative read back, or waits until it is over when a lane has it already.
    pub fn withdraw(&self, slice: u32) {
        let mut inner = self.lock();
        let before = inner.ahead.len();
        inner.ahead.retain(|q| q.read.slice != slice);
        let removed = before - inner.ahead.len();
        if removed > 0 {
            self.states[slice as usize].store(SliceState::Absent as u8, Ordering::SeqCst);
            self.finished(&mut inner, removed, Instant::now());
        }
        drop(inner);
        self.wait_until(|| self.state(slice) != SliceState::Pending, None);
    }

    /// The next read for a lane; sleeps while there is none. `None` when the queue is closed and empty.
    pub fn next(&self) -> Option<QueuedRead> {
        let mut inner = self.lock();
        loop {
            if let Some(read) = inner.pop() {
                return Some(read);
            }
            if inner.closing {
                return None;
            }
            inner.idle_lanes += 1;
            inner = self.work.wait(inner).unwrap_or_else(PoisonError::into_inner);
            inner.idle_lanes -= 1;
        }
    }

    /// Sets the descriptor that wakes the thread that polls; there is one such thread at most.
    pub(super) fn set_waker(&self, waker: File) {
        self.waker.set(waker).expect("one thread polls a queue");
    }

    /// The next read for a thread that waits at the waker.
    pub(super) fn poll(&self) -> Polled {
        let mut inner = self.lock();
        match inner.pop() {
            Some(read) => Polled::Read(read),
            None if inner.closing => Polled::Closed,
            None => {
                inner.waker_armed = true;
                Polled::Empty
            }
        }
    }

    fn ring(&self) {
        if let Some(mut waker) = self.waker.get() {
            // It holds a counter that one write can't overflow, so this neither blocks nor fails.
            let _ = waker.write(&1u64.to_ne_bytes());
        }
    }

    /// The next read that a layer needs, if one waits.
    #[must_use]
    pub fn try_next_demand(&self) -> Option<QueuedRead> {
        self.lock().demand.pop_front()
    }

    /// A lane is done with a read: with the bytes that it transferred, or an error.
    pub fn finish(
        &self,
        done: QueuedRead,
        lane: usize,
        started: Instant,
        result: Result<u64, ReadError>,
    ) {
        let now = Instant::now();
        let service = now - started;
        let mut inner = self.lock();
        inner.stats.reads += 1;
        inner.stats.lane_busy_ns += service.as_nanos() as u64;
        let state = match result {
            Ok(device_bytes) => {
                inner.stats.device_bytes += device_bytes;
                if self.record {
                    inner.completed.push(CompletedRead {
                        read: done.read,
                        lane: lane as u8,
                        device_bytes,
                        queued: done.queued,
                        wait: started - done.queued,
                        service,
                    });
                }
                SliceState::Ready
            }
            Err(error) => {
                inner.error.get_or_insert(error);
                SliceState::Failed
            }
        };
        self.states[done.read.slice as usize].store(state as u8, Ordering::SeqCst);
        self.finished(&mut inner, 1, now);
        drop(inner);
        self.wake();
    }

    fn finished(&self, inner: &mut Inner, reads: usize, now: Instant) {
        if self.outstanding.fetch_sub(reads, Ordering::SeqCst) == reads
            && let Some(since) = inner.active_since.take()
        {
            inner.stats.active_ns += (now - since).as_nanos() as u64;
        }
    }

    /// Wakes threads that wait for something that this thread has just made true.
    pub fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // A sleeper holds the lock from its announcement until it waits.
            drop(self.lock());
            self.waiters.notify_all();
        }
    }

    /// Waits until `over`, reading in the meantime when there is a `help`. Whoever makes `over` true calls
    /// [`Self::wake`] afterwards. Short waits are spun through, long ones slept through.
    pub fn wait_until(&self, over: impl Fn() -> bool, help: Option<&dyn Fn(QueuedRead)>) {
        const SPINS: u32 = 200;
        for _ in 0..SPINS {
            if over() {
                return;
            }
            std::hint::spin_loop();
        }
        let mut inner = self.lock();
        // Announced before the last look: `wake` either sees the sleeper or was seen.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !over() {
            match help.and_then(|help| Some((help, inner.pop()?))) {
                Some((help, read)) => {
                    drop(inner);
                    help(read);
                    inner = self.lock();
                }
                None => {
                    inner = self.waiters.wait(inner).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Waits until a slice has landed; false when its read failed.
    #[must_use]
    pub fn wait_for(&self, slice: u32) -> bool {
        self.wait_until(|| self.state(slice) != SliceState::Pending, None);
        self.state(slice) == SliceState::Ready
    }

    /// Waits until no read is waiting or running, reading in the meantime when there is a `help`.
    pub fn wait_idle(&self, help: Option<&dyn Fn(QueuedRead)>) {
        self.wait_until(|| self.outstanding.load(Ordering::SeqCst) == 0, help);
    }

    /// The first error since the last call.
    pub fn take_error(&self) -> Option<ReadError> {
        self.lock().error.take()
    }

    /// The numbers since the last call.
    pub fn take_stats(&self) -> ReadStats {
        let now = Instant::now();
        let mut inner = self.lock();
        let mut stats = std::mem::take(&mut inner.stats);
        if let Some(since) = &mut inner.active_since {
            stats.active_ns += (now - *since).as_nanos() as u64;
            *since = now;
        }
        stats
    }

    /// The reads that were finished since the last call, when they are recorded.
    pub fn take_completed(&self) -> Vec<CompletedRead> {
        std::mem::take(&mut self.lock().completed)
    }

    /// Lets the lanes end when everything is read.
    pub fn close(&self) {
        self.lock().closing = true;
        self.work.notify_all();
        self.ring();
    }
}
