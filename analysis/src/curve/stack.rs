//! The recency stack, with the bytes from the top down to any entry.

/// Slots summed up in one word of the level above.
const FAN: usize = 32;

/// Entries in the order of their last use, in numbered slots: the higher, the more recent. A slot holds its entry's
/// bytes, or 0 when the entry has moved on, and two levels of sums over it make the bytes above an entry a matter of
/// three short runs of additions. When the slots are used up they are numbered anew.
#[derive(Debug)]
pub(crate) struct Stack {
    /// Bytes per slot, per [`FAN`] slots, and per [`FAN`] of those.
    levels: [Vec<u64>; 3],
    /// The entry of every slot that was used.
    keys: Vec<u32>,
    /// Slot of every entry plus 1; 0 = not in the stack.
    slot_of: Vec<u32>,
}

impl Stack {
    pub(crate) fn new(entries: usize) -> Self {
        let slots = (entries * 4).next_multiple_of(FAN * FAN).max(FAN * FAN);
        Self {
            levels: [vec![0; slots], vec![0; slots / FAN], vec![0; slots / FAN / FAN]],
            keys: Vec::with_capacity(slots),
            slot_of: vec![0; entries],
        }
    }

    /// Bytes of the entry and all above it; `None` when it is not in the stack.
    #[inline]
    pub(crate) fn bytes_down_to(&self, key: usize) -> Option<u64> {
        let slot = self.slot_of[key].checked_sub(1)? as usize;
        let [slots, blocks, superblocks] = &self.levels;
        let rest = |level: &[u64], from: usize| -> u64 {
            let end = from.next_multiple_of(FAN).min(level.len());
            level[from..end].iter().sum()
        };
        let block = slot / FAN + 1;
        let superblock = block.div_ceil(FAN);
        // `slot` itself counts, so the run begins there even at the start of a block.
        let own: u64 = slots[slot..block * FAN].iter().sum();
        Some(own + rest(blocks, block) + superblocks[superblock..].iter().sum::<u64>())
    }

    /// The entry becomes the most recent one.
    #[inline]
    pub(crate) fn renew(&mut self, key: usize, bytes: u64) {
        if self.keys.len() == self.levels[0].len() {
            self.renumber();
        }
        if let Some(slot) = self.slot_of[key].checked_sub(1) {
            self.subtract(slot as usize, bytes);
        }
        let slot = self.keys.len();
        self.keys.push(key as u32);
        self.slot_of[key] = slot as u32 + 1;
        self.add(slot, bytes);
    }

    #[inline]
    fn add(&mut self, slot: usize, bytes: u64) {
        let [slots, blocks, superblocks] = &mut self.levels;
        slots[slot] += bytes;
        blocks[slot / FAN] += bytes;
        superblocks[slot / FAN / FAN] += bytes;
    }

    #[inline]
    fn subtract(&mut self, slot: usize, bytes: u64) {
        let [slots, blocks, superblocks] = &mut self.levels;
        slots[slot] -= bytes;
        blocks[slot / FAN] -= bytes;
        superblocks[slot / FAN / FAN] -= bytes;
    }

    /// Closes the gaps.
    fn renumber(&mut self) {
        let old = std::mem::take(&mut self.keys);
        let bytes = std::mem::take(&mut self.levels[0]);
        self.levels[0] = vec![0; bytes.len()];
        self.levels[1].fill(0);
        self.levels[2].fill(0);
        self.keys.reserve(bytes.len());
        for (slot, key) in old.into_iter().enumerate() {
            if self.slot_of[key as usize] as usize == slot + 1 {
                self.slot_of[key as usize] = self.keys.len() as u32 + 1;
                self.add(self.keys.len(), bytes[slot]);
                self.keys.push(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_a_plain_list() {
        let (entries, mut state) = (700_usize, 7_u64);
        let mut stack = Stack::new(entries);
        let mut plain: Vec<usize> = Vec::new();
        let bytes = |key: usize| 1 + (key as u64 * 31) % 97;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            let key = (state >> 33) as usize % entries;
            let at = plain.iter().position(|k| *k == key);
            let want = at.map(|at| plain[at..].iter().map(|k| bytes(*k)).sum::<u64>());
            assert_eq!(stack.bytes_down_to(key), want);
            if let Some(at) = at {
                plain.remove(at);
            }
            plain.push(key);
            stack.renew(key, bytes(key));
        }
    }
}
