//! Frames of several sizes in one stretch of memory, without fragmentation.
//!
//! Expert slices have few sizes (the mix of types in a model gives two to six), but which size is
//! needed changes with every eviction: a general allocator fragments, and a fixed share per size
//! wastes memory. So each size has a contiguous region of equal frames; regions stand in a fixed
//! order and grow and shrink at their edges. When a region needs a frame and its neighbours are in the
//! way, a neighbour *rotates*: its frame at one edge moves to the other edge, one copy a step. The
//! space that can't be used is less than one frame of each size, see [`Regions::slack_bytes`].
//!
//! Pure book-keeping: the caller copies the bytes of every [`Move`].

use std::collections::VecDeque;

/// A frame; stays the same when the frame moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameId(u32);

/// Bytes that the caller has to copy, in order, before the new frame is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Where the frame was.
    pub from: u64,
    /// Where it is now. The two never overlap.
    pub to: u64,
    /// Length.
    pub bytes: u64,
}

#[derive(Debug, Clone)]
struct Region {
    frame_bytes: u64,
    start: u64,
    /// Frames from left to right; `None` = free.
    frames: VecDeque<Option<FrameId>>,
    free: usize,
}

impl Region {
    fn end(&self) -> u64 {
        self.start + self.frames.len() as u64 * self.frame_bytes
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// The book-keeping of one stretch of memory.
#[derive(Debug, Clone)]
pub struct Regions {
    regions: Vec<Region>,
    /// All positions are multiples of this, so frames of whole blocks stay aligned to blocks.
    unit: u64,
    capacity: u64,
    /// Offset and region of each frame; `None` = the id is not in use.
    frames: Vec<Option<(u64, u32)>>,
    unused_ids: Vec<u32>,
    live_bytes: u64,
}

impl Regions {
    /// For frames of the given sizes in `capacity` bytes. A size that is given more often is expected to
    /// be needed more often: regions start where they would be if all of them filled up alike, so that
    /// they rarely get into each other's way.
    #[must_use]
    pub fn new(sizes: &[u64], capacity: u64) -> Self {
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        sizes.retain(|s| *s > 0);
        let expected_bytes = sizes.iter().sum::<u64>().max(1);
        let unit = sizes.iter().copied().fold(0, gcd).max(1);
        let capacity = capacity / unit * unit;
        let mut before = 0u64;
        let regions = sizes
            .chunk_by(|a, b| a == b)
            .map(|alike| {
                let share = u128::from(capacity) * u128::from(before) / u128::from(expected_bytes);
                before += alike.iter().sum::<u64>();
                Region {
                    frame_bytes: alike[0],
                    start: share as u64 / unit * unit,
                    frames: VecDeque::new(),
                    free: 0,
                }
            })
            .collect();
        Self { regions, unit, capacity, frames: Vec::new(), unused_ids: Vec::new(), live_bytes: 0 }
    }

    /// Capacity beyond the live frames that makes every allocation possible: one frame of each size,
    /// and one more of the largest.
    #[must_use]
    pub fn slack_bytes(sizes: &[u64]) -> u64 {
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        sizes.iter().sum::<u64>() + sizes.last().copied().unwrap_or(0)
    }

    /// Bytes from the beginning within which all frames are.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Changes the capacity. When it shrinks, frames move together; moves are appended to `moves`.
    ///
    /// # Panics
    /// If the live frames and [`Self::slack_bytes`] are more than the new capacity.
    pub fn set_capacity(&mut self, capacity: u64, moves: &mut Vec<Move>) {
        let capacity = capacity / self.unit * self.unit;
        if capacity < self.capacity {
            for r in 0..self.regions.len() {
                self.pack_left(r, moves);
            }
            let end = self.regions.last().map_or(0, Region::end);
            assert!(end <= capacity, "frames up to {end} in a capacity of {capacity}");
        }
        self.capacity = capacity;
    }

    /// Moves a region's frames together and towards the region before, as far as whole frames go.
    fn pack_left(&mut self, r: usize, moves: &mut Vec<Move>) {
        while self.regions[r].free > 0 {
            self.drop_edge(r, Side::Left, moves);
        }
        if self.regions[r].frames.is_empty() {
            self.regions[r].start -= self.gap(r, Side::Left);
            return;
        }
        while self.gap(r, Side::Left) >= self.regions[r].frame_bytes {
            self.push(r, Side::Left);
            self.regions[r].free += 1;
            self.drop_edge(r, Side::Left, moves);
        }
    }

    /// Bytes of all frames in use.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Where a frame is now.
    ///
    /// # Panics
    /// If the frame was freed.
    #[must_use]
    pub fn offset(&self, frame: FrameId) -> u64 {
        self.frames[frame.0 as usize].expect("the frame is in use").0
    }

    /// Takes a frame of one of the sizes given to [`Self::new`]; `None` when there is no room. Moves
    /// that were made are appended to `moves`, also when the answer is `None`.
    ///
    /// # Panics
    /// If the size is not one of them.
    pub fn allocate(&mut self, frame_bytes: u64, moves: &mut Vec<Move>) -> Option<FrameId> {
        let r = self
            .regions
            .iter()
            .position(|region| region.frame_bytes == frame_bytes)
            .expect("the size was given at the start");
        let at = if self.regions[r].free > 0 {
            let region = &mut self.regions[r];
            region.free -= 1;
            region.frames.iter().position(Option::is_none).expect("a free frame is there")
        } else if self.gap(r, Side::Right) >= frame_bytes {
            self.push(r, Side::Right)
        } else if self.gap(r, Side::Left) >= frame_bytes {
            self.push(r, Side::Left)
        } else if self.widen(r, Side::Right, frame_bytes, moves) {
            self.push(r, Side::Right)
        } else if self.widen(r, Side::Left, frame_bytes, moves) {
            self.push(r, Side::Left)
        } else {
            return None;
        };
        let id = self.unused_ids.pop().unwrap_or_else(|| {
            self.frames.push(None);
            self.frames.len() as u32 - 1
        });
        let region = &mut self.regions[r];
        region.frames[at] = Some(FrameId(id));
        self.frames[id as usize] = Some((region.start + at as u64 * frame_bytes, r as u32));
        self.live_bytes += frame_bytes;
        Some(FrameId(id))
    }

    /// Gives a frame back.
    ///
    /// # Panics
    /// If the frame was freed before.
    pub fn free(&mut self, frame: FrameId) {
        let (offset, r) = self.frames[frame.0 as usize].take().expect("the frame is in use");
        self.unused_ids.push(frame.0);
        let region = &mut self.regions[r as usize];
        let at = ((offset - region.start) / region.frame_bytes) as usize;
        region.frames[at] = None;
        region.free += 1;
        self.live_bytes -= region.frame_bytes;
    }

    /// Adds a free frame at an edge with room beside it; returns its index. The caller fills it.
    fn push(&mut self, r: usize, side: Side) -> usize {
        let region = &mut self.regions[r];
        match side {
            Side::Right => {
                region.frames.push_back(None);
                region.frames.len() - 1
            }
            Side::Left => {
                region.start -= region.frame_bytes;
                region.frames.push_front(None);
                0
            }
        }
    }

    /// Unused bytes beside a region.
    fn gap(&self, r: usize, side: Side) -> u64 {
        match side {
            Side::Right => {
                let limit = self.regions.get(r + 1).map_or(self.capacity, |next| next.start);
                limit - self.regions[r].end()
            }
            Side::Left => {
                let limit = r.checked_sub(1).map_or(0, |p| self.regions[p].end());
                self.regions[r].start - limit
            }
        }
    }

    /// Makes the gap beside region `r` at least `need` bytes by pushing the neighbours away.
    fn widen(&mut self, r: usize, side: Side, need: u64, moves: &mut Vec<Move>) -> bool {
        while self.gap(r, side) < need {
            let neighbour = match side {
                Side::Right if r + 1 < self.regions.len() => r + 1,
                Side::Left if r > 0 => r - 1,
                _ => return false,
            };
            if self.regions[neighbour].frames.is_empty() {
                // An empty region is nothing but a position: it steps aside.
                let room = self.gap(neighbour, side);
                if room == 0 && !self.widen(neighbour, side, 1, moves) {
                    return false;
                }
                let room = self.gap(neighbour, side);
                let region = &mut self.regions[neighbour];
                match side {
                    Side::Right => region.start += room,
                    Side::Left => region.start -= room,
                }
            } else if self.regions[neighbour].free > 0 {
                self.drop_edge(neighbour, side, moves);
            } else {
                let frame_bytes = self.regions[neighbour].frame_bytes;
                if self.gap(neighbour, side) < frame_bytes
                    && !self.widen(neighbour, side, frame_bytes, moves)
                {
                    return false;
                }
                // A free frame at the far edge, then the near edge moves into it.
                self.push(neighbour, side);
                self.regions[neighbour].free += 1;
                self.drop_edge(neighbour, side, moves);
            }
        }
        true
    }

    /// Shrinks a region that has a free frame by one frame at the edge towards `widen`'s caller.
    fn drop_edge(&mut self, r: usize, side: Side, moves: &mut Vec<Move>) {
        let region = &mut self.regions[r];
        let edge = match side {
            Side::Right => 0,
            Side::Left => region.frames.len() - 1,
        };
        if let Some(id) = region.frames[edge] {
            // From the far edge, so that a fresh far-edge frame is found at once.
            let hole = match side {
                Side::Right => region.frames.iter().rposition(Option::is_none),
                Side::Left => region.frames.iter().position(Option::is_none),
            }
            .expect("a free frame is there");
            let at = |i: usize| region.start + i as u64 * region.frame_bytes;
            let (from, to) = (at(edge), at(hole));
            moves.push(Move { from, to, bytes: region.frame_bytes });
            region.frames[hole] = Some(id);
            self.frames[id.0 as usize] = Some((to, r as u32));
        }
        match side {
            Side::Right => {
                region.frames.pop_front();
                region.start += region.frame_bytes;
            }
            Side::Left => {
                region.frames.pop_back();
            }
        }
        region.free -= 1;
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Applies moves to a model of the memory in which every frame is a stretch of its owner's number.
    fn apply(memory: &mut [u32], moves: &mut Vec<Move>) {
        for m in moves.drain(..) {
            let (from, to, bytes) = (m.from as usize, m.to as usize, m.bytes as usize);
            assert!(from + bytes <= to || to + bytes <= from, "overlapping move {m:?}");
            memory.copy_within(from..from + bytes, to);
        }
    }

    proptest! {
        #[test]
        fn frames_keep_their_bytes_and_room_is_always_found(
            sizes in prop::collection::vec(1u64..12, 1..5),
            budget in 1u64..200,
            steps in prop::collection::vec((0u8..9, any::<u16>(), 1u32..1_000_000), 1..300),
        ) {
            let slack = Regions::slack_bytes(&sizes);
            let capacity = budget + slack;
            let mut budget = budget;
            let mut regions = Regions::new(&sizes, capacity);
            let mut memory = vec![0u32; capacity as usize];
            let mut live: Vec<(FrameId, u64, u32)> = Vec::new();
            let mut moves = Vec::new();
            for (what, pick, mark) in steps {
                let size = sizes[pick as usize % sizes.len()];
                if what == 8 {
                    // Anything from what is in use to the whole memory.
                    let room = capacity - slack - regions.live_bytes();
                    budget = regions.live_bytes() + u64::from(pick) % (room + 1);
                    regions.set_capacity(budget + slack, &mut moves);
                    apply(&mut memory, &mut moves);
                    // What is behind the capacity is gone.
                    memory[regions.capacity() as usize..].fill(0);
                } else if what < 5 && regions.live_bytes() + size <= budget {
                    let frame = regions.allocate(size, &mut moves);
                    apply(&mut memory, &mut moves);
                    prop_assert!(frame.is_some(), "no room for {} at {} of {}",
                        size, regions.live_bytes(), budget);
                    let frame = frame.unwrap();
                    let at = regions.offset(frame) as usize;
                    prop_assert!(at + size as usize <= memory.len());
                    memory[at..at + size as usize].fill(mark);
                    live.push((frame, size, mark));
                } else if !live.is_empty() {
                    let (frame, ..) = live.swap_remove(pick as usize % live.len());
                    regions.free(frame);
                }
                prop_assert_eq!(regions.live_bytes(), live.iter().map(|l| l.1).sum::<u64>());
                for (frame, size, mark) in &live {
                    let at = regions.offset(*frame) as usize;
                    prop_assert!(memory[at..at + *size as usize].iter().all(|m| m == mark));
                }
            }
        }
    }
}
