//! One stretch of anonymous memory for all slices.
//!
//! It is mapped once and asks for huge pages, which more than double O_DIRECT throughput. A fresh page
//! costs several times the copy into it, so a thread of lowest priority brings pages in while the model
//! loads. Loading doesn't wait for it, and it ends with loading, since beside spinning compute threads it
//! would cost more than it brings. The other pages come with the first read into them, on the lanes.
#![expect(
    unsafe_code,
    reason = "raw memory that reads and kernels write and read through pointers"
)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::regions::Move;

/// Huge page on all platforms that the engine runs on.
const HUGE_PAGE_BYTES: usize = 2 << 20;
const PAGE_BYTES: usize = 4096;

/// What frees of poisoned arenas leave behind: as F32 or F16 a NaN, as a quantised block an absurd one.
const POISON: u8 = 0xFF;

/// Anonymous memory, 2 MiB aligned.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    bytes: usize,
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    populating: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

// SAFETY: the arena is plain memory owned by this value. Who writes where and when is settled by the
// store: a frame has one writer until its read is done, and only readers from then on.
unsafe impl Send for Arena {}
// SAFETY: as above; shared access hands out raw pointers only.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps `bytes` and starts bringing their pages in.
    ///
    /// # Errors
    /// The system has no room for the mapping.
    pub fn new(bytes: u64) -> std::io::Result<Self> {
        let bytes = usize::try_from(bytes)
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?
            .max(PAGE_BYTES)
            .next_multiple_of(PAGE_BYTES);
        let mapping_bytes = bytes + HUGE_PAGE_BYTES;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no other memory.
        let mapping = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                mapping_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let mapping = NonNull::new(mapping.cast::<u8>()).expect("a mapping is never at address 0");
        let shift = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: `shift` < 2 MiB and the mapping is 2 MiB longer than `bytes`.
        let base = unsafe { mapping.add(shift) };
        // SAFETY: the range lies within the mapping. Advice may be refused (no huge pages): that costs
        // speed only, and the environment record says which mode the system is in.
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        let stop = Arc::new(AtomicBool::new(false));
        let populating = {
            let (stop, address) = (Arc::clone(&stop), base.as_ptr() as usize);
            std::thread::Builder::new()
                .name("bmoe-pages".into())
                .spawn(move || populate(address, bytes, &stop))?
        };
        Ok(Self { base, bytes, mapping, mapping_bytes, populating: Some(populating), stop })
    }

    /// Leaves the pages that are not there yet to their first use. The thread ends by itself; waiting
    /// here for one of lowest priority could take long on a busy machine.
    pub fn stop_populating(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// The address of an offset.
    ///
    /// # Panics
    /// If it is outside.
    #[must_use]
    pub fn at(&self, offset: u64) -> *mut u8 {
        let offset = usize::try_from(offset).expect("offsets are within the arena");
        assert!(offset < self.bytes, "offset {offset} of {} bytes", self.bytes);
        // SAFETY: checked to be inside.
        unsafe { self.base.add(offset) }.as_ptr()
    }

    /// Copies one moved frame. No read may be in flight into either place.
    pub fn apply(&mut self, moved: Move) {
        let end = moved.from.max(moved.to) + moved.bytes;
        assert!(end <= self.bytes(), "move {moved:?} of {} bytes", self.bytes);
        assert!(moved.from.abs_diff(moved.to) >= moved.bytes, "overlapping move {moved:?}");
        // SAFETY: both ranges are inside and don't overlap (checked above); `&mut self` and the store's
        // rule that it moves only between reads leave no other user.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.at(moved.from),
                self.at(moved.to),
                moved.bytes as usize,
            );
        }
    }

    /// Overwrites a freed frame, so that a stale read gives absurd numbers instead of plausible ones.
    pub fn poison(&mut self, offset: u64, bytes: u64) {
        assert!(offset + bytes <= self.bytes());
        // SAFETY: inside (checked above), and `&mut self` excludes other users.
        unsafe { std::ptr::write_bytes(self.at(offset), POISON, bytes as usize) };
    }
}

/// Brings pages in without changing what they hold, so that it may run beside reads into them.
fn populate(address: usize, bytes: usize, stop: &AtomicBool) {
    const LOWEST_PRIORITY: i32 = 19;
    // Linux takes a thread id here and changes that thread alone. Refused: then it costs some speed.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), LOWEST_PRIORITY);
    for offset in (0..bytes).step_by(HUGE_PAGE_BYTES) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let length = HUGE_PAGE_BYTES.min(bytes - offset);
        // SAFETY: within the mapping, which outlives this thread (`drop` joins it); populating reads
        // and writes no byte of a page that is there.
        let done =
            unsafe { madvise((address + offset) as *mut _, length, Advice::LinuxPopulateWrite) };
        if done.is_err() {
            // Older kernels don't know it; pages then come with their first use.
            return;
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.stop_populating();
        if let Some(populating) = self.populating.take() {
            let _ = populating.join();
        }
        // SAFETY: exactly the range that was mapped; the pointers handed out end with their owners,
        // which the store drops before its arena.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapping_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_keeps_its_bytes_while_pages_come_in() {
        let mut arena = Arena::new(3 << 20).unwrap();
        assert_eq!(arena.at(0) as usize % HUGE_PAGE_BYTES, 0);
        arena.poison(0, 4096);
        arena.apply(Move { from: 0, to: 8192, bytes: 4096 });
        if let Some(populating) = arena.populating.take() {
            populating.join().unwrap();
        }
        // SAFETY: inside the arena, nothing else uses it.
        let (moved, untouched) = unsafe { (*arena.at(8192 + 4095), *arena.at(4096)) };
        assert_eq!((moved, untouched), (POISON, 0));
    }
}
