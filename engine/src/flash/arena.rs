//! One stretch of anonymous memory for all slices.
//!
//! It is mapped once and asks for huge pages, which more than double O_DIRECT throughput. A fresh page
//! costs several times the copy into it, so frames are reused, and memory goes back to the system only when
//! the whole store becomes smaller. Pages come
//! with the first read into them, on the lanes: bringing them in ahead would only move the time from
//! there to loading, and a thread that does it beside the loader slows that down (both want the
//! process's map of memory).
#![expect(
    unsafe_code,
    reason = "raw memory that reads and kernels write and read through pointers"
)]

use std::ptr::NonNull;

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
}

// SAFETY: the arena is plain memory owned by this value. Who writes where and when is settled by the
// store: a frame has one writer until its read is done, and only readers from then on.
unsafe impl Send for Arena {}
// SAFETY: as above; shared access hands out raw pointers only.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps `bytes`.
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
        Ok(Self { base, bytes, mapping, mapping_bytes })
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

    /// Gives the memory from an offset on back to the system. It can be used again, and is then zero.
    pub fn release(&mut self, from: u64) {
        let from = (from as usize).next_multiple_of(rustix::param::page_size());
        if from >= self.bytes {
            return;
        }
        // SAFETY: the range is inside; `&mut self` and the store's rule that no frame is there leave no
        // other user.
        let _ = unsafe {
            let start = self.base.add(from).as_ptr();
            madvise(start.cast(), self.bytes - from, Advice::LinuxDontNeed)
        };
    }

    /// Overwrites a freed frame, so that a stale read gives absurd numbers instead of plausible ones.
    pub fn poison(&mut self, offset: u64, bytes: u64) {
        assert!(offset + bytes <= self.bytes());
        // SAFETY: inside (checked above), and `&mut self` excludes other users.
        unsafe { std::ptr::write_bytes(self.at(offset), POISON, bytes as usize) };
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped; the pointers handed out end with their owners,
        // which the store drops before its arena.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapping_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_moves() {
        let mut arena = Arena::new(3 << 20).unwrap();
        assert_eq!(arena.at(0) as usize % HUGE_PAGE_BYTES, 0);
        arena.poison(0, 4096);
        arena.apply(Move { from: 0, to: 8192, bytes: 4096 });
        // SAFETY: inside the arena, nothing else uses it.
        let (moved, untouched) = unsafe { (*arena.at(8192 + 4095), *arena.at(4096)) };
        assert_eq!((moved, untouched), (POISON, 0));
        arena.poison(12288, 8192);
        arena.release(12289);
        // SAFETY: as above.
        let (kept, released) = unsafe { (*arena.at(12288), *arena.at(16384)) };
        assert_eq!((kept, released), (POISON, 0));
    }
}
