//! Lanes that are slots of an io_uring: one thread keeps as many reads in flight as there are lanes.
//!
//! The thread sleeps in the kernel, where completions wake it. While a slot is free it must also wake for
//! a new read, so the queue's waker, an event descriptor, is polled in the ring.
//!
//! The arena is not registered with the ring: that would pin it, which takes a limit that few users have
//! raised, and fault all of it in while the model loads.
#![expect(unsafe_code, reason = "the kernel writes into frames of the arena")]

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use io_uring::squeue::Entry;
use io_uring::{IoUring, Probe, opcode, types};
use rustix::event::{EventfdFlags, eventfd};

use super::fault::Fault;
use super::lanes::Shared;
use super::queue::{Polled, QueuedRead};
use super::window::{Progress, Window};

/// Marks the completion of the waker's poll; slots are numbered from 0.
const WAKER: u64 = u64::MAX;

/// Most bytes of one request; longer windows come in parts, like after short reads.
const MAX_REQUEST_BYTES: usize = 1 << 30;

/// Starts the ring's thread.
///
/// # Errors
/// Why there is no ring here.
pub(super) fn start(shared: &Arc<Shared>, lanes: u32) -> Result<JoinHandle<()>, String> {
    let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|e| format!("no event descriptor: {e}"))?;
    let waker = File::from(waker);
    let queue_end = waker.try_clone().map_err(|e| format!("no event descriptor: {e}"))?;
    let (shared, lanes) = (Arc::clone(shared), lanes as usize);
    let (say, hear) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("bmoe-uring".into())
        .spawn(move || match set_up(&shared, lanes) {
            Err(reason) => {
                let _ = say.send(Err(reason));
            }
            Ok(ring) => {
                shared.queue.set_waker(queue_end);
                let _ = say.send(Ok(()));
                let slots = (0..lanes).map(|_| None).collect();
                Ring { ring, shared: &shared, waker, slots, in_flight: 0, polled: false }.serve();
            }
        })
        .map_err(|e| format!("no thread: {e}"))?;
    match hear.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(reason)) => Err(reason),
        Err(_) => Err("its thread ended".into()),
    }
}

/// Makes a ring on the thread that will use it.
fn set_up(shared: &Shared, lanes: usize) -> Result<IoUring, String> {
    let ring = IoUring::new(lanes as u32 + 1).map_err(|e| {
        let hint = match e.raw_os_error() {
            // ENOSYS, EPERM, EACCES
            Some(38) => " (the kernel has none)",
            Some(1 | 13) => " (the system or its sandbox forbids it)",
            _ => "",
        };
        format!("io_uring_setup: {e}{hint}")
    })?;
    let mut probe = Probe::new();
    let known = ring.submitter().register_probe(&mut probe).is_ok()
        && [opcode::Read::CODE, opcode::PollAdd::CODE, opcode::Nop::CODE]
            .into_iter()
            .all(|code| probe.is_supported(code));
    if !known {
        return Err("the kernel's io_uring can't read (it needs Linux 5.6)".into());
    }
    let files: Vec<RawFd> = shared.files.all().map(AsRawFd::as_raw_fd).collect();
    ring.submitter().register_files(&files).map_err(|e| format!("registering the files: {e}"))?;
    Ok(ring)
}

/// A read in flight.
struct Slot {
    queued: QueuedRead,
    window: Window,
    progress: Progress,
    started: Instant,
    /// What a planned fault makes of the attempt.
    injected: Option<i32>,
}

struct Ring<'a> {
    ring: IoUring,
    shared: &'a Shared,
    waker: File,
    slots: Box<[Option<Slot>]>,
    in_flight: usize,
    /// The waker's poll is in the ring.
    polled: bool,
}

impl Ring<'_> {
    fn serve(mut self) {
        let mut open = true;
        loop {
            open = open && self.fill();
            if !open && self.in_flight == 0 {
                return;
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(e) if is_passing(&e) => {}
                Err(e) => return self.give_up(&e),
            }
            self.reap();
        }
    }

    /// Starts reads while slots are free; false when there will be no more.
    fn fill(&mut self) -> bool {
        while self.in_flight < self.slots.len() {
            match self.shared.queue.poll() {
                Polled::Read(queued) => self.begin(queued),
                Polled::Closed => return false,
                Polled::Empty => {
                    if !self.polled {
                        const READABLE: u32 = 1; // POLLIN
                        let fd = types::Fd(self.waker.as_raw_fd());
                        let poll = opcode::PollAdd::new(fd, READABLE).build().user_data(WAKER);
                        self.push(&poll);
                        self.polled = true;
                    }
                    return true;
                }
            }
        }
        true
    }

    fn begin(&mut self, queued: QueuedRead) {
        let at = self.slots.iter().position(Option::is_none).expect("a slot is free");
        let window = Window::of(&queued.read, self.shared.files.direct());
        let progress = Progress::new(window.needed, window.align);
        let started = Instant::now();
        self.slots[at] = Some(Slot { queued, window, progress, started, injected: None });
        self.in_flight += 1;
        self.attempt(at);
    }

    /// Asks the kernel for what a slot's window lacks.
    fn attempt(&mut self, at: usize) {
        let slot = self.slots[at].as_mut().expect("the slot is in use");
        let from = slot.progress.from();
        let file = slot.queued.read.file;
        let offset = slot.window.offset + from as u64;
        let mut bytes = (slot.window.bytes - from).min(MAX_REQUEST_BYTES);
        slot.injected = None;
        match self.shared.files.fault(file, offset, bytes) {
            None => {}
            Some(Fault::Short(most)) => bytes = bytes.min(most),
            Some(Fault::Error(number)) => slot.injected = Some(number),
        }
        let entry = if slot.injected.is_some() {
            opcode::Nop::new().build()
        } else {
            let to = slot.window.base.wrapping_add(from);
            opcode::Read::new(types::Fixed(file as u32), to, bytes as u32).offset(offset).build()
        };
        self.push(&entry.user_data(at as u64));
    }

    fn push(&mut self, entry: &Entry) {
        // SAFETY: a read's target is the rest of its window, memory that `Lanes::submit`'s caller promised to
        // nobody else until the read is over, which is said (`Shared::finish`) when its completion has
        // come. The other operations use no memory.
        let pushed = unsafe { self.ring.submission().push(entry) };
        // Each slot and the waker have one entry at a time, and the ring was made with as many.
        pushed.expect("the ring has an entry for every slot and the waker");
    }

    /// Takes the completions that are there.
    fn reap(&mut self) {
        loop {
            let Some(completion) = self.ring.completion().next() else { return };
            if completion.user_data() == WAKER {
                self.polled = false;
                // Empties the counter; it need not hold anything.
                let _ = (&self.waker).read(&mut [0; 8]);
                continue;
            }
            let at = completion.user_data() as usize;
            let slot = self.slots[at].as_mut().expect("a completion belongs to a slot in use");
            let result = match (slot.injected, completion.result()) {
                (Some(number), _) => Err(io::Error::from_raw_os_error(number)),
                (None, result) => usize::try_from(result)
                    .map_err(|_| io::Error::from_raw_os_error(result.wrapping_neg())),
            };
            match slot.progress.take(result) {
                Ok(()) if slot.progress.is_over() => {
                    let transferred = slot.progress.transferred();
                    self.end(at, Ok(transferred));
                }
                Ok(()) => self.attempt(at),
                Err(e) => self.end(at, Err(e)),
            }
        }
    }

    fn end(&mut self, at: usize, result: io::Result<u64>) {
        let slot = self.slots[at].take().expect("the slot is in use");
        self.in_flight -= 1;
        self.shared.finish(slot.queued, at, slot.started, result);
    }

    /// The ring broke: nobody may wait for reads that never come.
    ///
    /// What is in flight may still be written to its frames, which the kernel has pinned. No token comes of
    /// it: the error ends the run even if nobody waits for the slice.
    fn give_up(mut self, error: &io::Error) {
        let again = || io::Error::new(error.kind(), format!("io_uring_enter: {error}"));
        for at in 0..self.slots.len() {
            if self.slots[at].is_some() {
                self.end(at, Err(again()));
            }
        }
        while let Some(queued) = self.shared.queue.next() {
            self.shared.finish(queued, 0, Instant::now(), Err(again()));
        }
    }
}

/// EINTR, and EAGAIN and EBUSY, which say that completions have to be taken first.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(4 | 11 | 16))
}
