use crate::{Key, Policy};

/// Residents whose estimates are compared at a time, one per lane of a vector register or several.
const LANES: usize = 16;

/// Residents that are left out together when the highest estimate is not among them.
const BLOCK: usize = 64;

/// Two estimates closer than this (relative) are compared exactly: each is off by less than 2e-7.
const MARGIN: f32 = 1e-6;

/// No token: a resident of the block was used, came or went since.
const CHANGED: i32 = -1;

/// Least frequently and recently used: the lowest `touches / (tokens since the last use + 1)` goes first,
/// among equals the smallest key. Counts outlive eviction.
///
/// All values fall from token to token, each at its own rate, so no order can be kept: an eviction
/// looks at all residents. It does so with an estimate in single precision, several at a time, and
/// compares exactly (in integers) what is within the estimate's error of the best. Between two evictions
/// only the estimates of blocks in which something changed are made anew.
#[derive(Debug, Clone)]
pub struct Lfru {
    /// Touches ever of every entry.
    touches: Vec<u32>,
    token: i32,
    residents: Residents,
    /// Protected residents whose `inverse` is taken away during one eviction.
    aside: Vec<usize>,
}

/// The residents, in parallel arrays without gaps.
#[derive(Debug, Clone, Default)]
struct Residents {
    keys: Vec<u32>,
    /// Token of the last use.
    last: Vec<i32>,
    /// 1 / touches; 0 when the entry isn't eligible.
    inverse: Vec<f32>,
    /// Where each entry is in the arrays.
    position: Vec<u32>,
    /// Highest estimate of every [`BLOCK`] residents, and the token that it holds for.
    block_max: Vec<f32>,
    block_token: Vec<i32>,
}

impl Residents {
    /// Brings the highest `(tokens since the last use + 1) / touches` of every block up to date.
    fn estimate_blocks(&mut self, token: i32) {
        let blocks = self.keys.len().div_ceil(BLOCK);
        self.block_max.resize(blocks, 0.0);
        self.block_token.resize(blocks, CHANGED);
        for (block, (last, inverse)) in
            self.last.chunks(BLOCK).zip(self.inverse.chunks(BLOCK)).enumerate()
        {
            if self.block_token[block] != token {
                self.block_token[block] = token;
                self.block_max[block] = highest_estimate(token, last, inverse);
            }
        }
    }

    /// Sets when a resident was used and how often.
    #[inline]
    fn set(&mut self, at: usize, token: i32, inverse: f32) {
        self.last[at] = token;
        self.inverse[at] = inverse;
        self.changed(at);
    }

    #[inline]
    fn changed(&mut self, at: usize) {
        if let Some(token) = self.block_token.get_mut(at / BLOCK) {
            *token = CHANGED;
        }
    }
}

fn highest_estimate(token: i32, last: &[i32], inverse: &[f32]) -> f32 {
    let mut max = [0.0_f32; LANES];
    let (last, last_rest) = last.as_chunks::<LANES>();
    let (inverse, inverse_rest) = inverse.as_chunks::<LANES>();
    for (last, inverse) in last.iter().zip(inverse) {
        for lane in 0..LANES {
            let estimate = estimate(token, last[lane], inverse[lane]);
            max[lane] = if estimate > max[lane] { estimate } else { max[lane] };
        }
    }
    for (last, inverse) in last_rest.iter().zip(inverse_rest) {
        max[0] = max[0].max(estimate(token, *last, *inverse));
    }
    max.into_iter().fold(0.0, f32::max)
}

/// Wrapping, since a check for overflow would keep this from being done on several at a time; tokens
/// don't reach 2^31.
#[inline]
fn estimate(token: i32, last: i32, inverse: f32) -> f32 {
    token.wrapping_sub(last).wrapping_add(1) as f32 * inverse
}

impl Lfru {
    /// For keys `0..entries`.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        Self {
            touches: vec![0; entries],
            token: 0,
            residents: Residents { position: vec![0; entries], ..Residents::default() },
            aside: Vec::new(),
        }
    }

    /// The exact best of the unprotected ones whose estimate is within the margin of the highest.
    fn best(&self, floor: f32, protected: &impl Fn(Key) -> bool) -> Option<usize> {
        let residents = &self.residents;
        let mut best: Option<(usize, u64, u64)> = None;
        let blocks = residents.block_max.iter().enumerate().filter(|(_, max)| **max >= floor);
        for at in blocks
            .flat_map(|(block, _)| block * BLOCK..((block + 1) * BLOCK).min(residents.keys.len()))
        {
            let (key, last) = (residents.keys[at], residents.last[at]);
            if estimate(self.token, last, residents.inverse[at]) < floor || protected(Key(key)) {
                continue;
            }
            let touches = u64::from(self.touches[key as usize]);
            let age = (self.token - last) as u64 + 1;
            let better = best.is_none_or(|(best_at, best_touches, best_age)| {
                // touches / age < best_touches / best_age, then the smaller key.
                let (ours, theirs) = (touches * best_age, best_touches * age);
                ours < theirs || (ours == theirs && key < residents.keys[best_at])
            });
            if better {
                best = Some((at, touches, age));
            }
        }
        best.map(|(at, ..)| at)
    }

    fn remove(&mut self, at: usize) -> Key {
        let residents = &mut self.residents;
        residents.changed(at);
        residents.changed(residents.keys.len() - 1);
        let victim = residents.keys.swap_remove(at);
        residents.last.swap_remove(at);
        residents.inverse.swap_remove(at);
        if let Some(moved) = residents.keys.get(at) {
            residents.position[*moved as usize] = at as u32;
        }
        Key(victim)
    }
}

impl Policy for Lfru {
    #[inline]
    fn begin_token(&mut self) {
        self.token += 1;
    }

    #[inline]
    fn insert(&mut self, key: Key) {
        let residents = &mut self.residents;
        residents.position[key.index()] = residents.keys.len() as u32;
        residents.keys.push(key.0);
        residents.last.push(0);
        residents.inverse.push(0.0);
        self.hit(key);
    }

    #[inline]
    fn hit(&mut self, key: Key) {
        let touches = &mut self.touches[key.index()];
        *touches = touches.saturating_add(1);
        let at = self.residents.position[key.index()] as usize;
        self.residents.set(at, self.token, 1.0 / *touches as f32);
    }

    #[inline]
    fn evict(&mut self, _layer: usize, protected: impl Fn(Key) -> bool) -> Option<Key> {
        let mut victim = None;
        // Twice when all that come into question are protected: then all protected ones step aside.
        for _ in 0..2 {
            self.residents.estimate_blocks(self.token);
            let max = self.residents.block_max.iter().copied().fold(0.0, f32::max);
            if max == 0.0 {
                break;
            }
            victim = self.best(max * (1.0 - MARGIN), &protected);
            if victim.is_some() {
                break;
            }
            for at in 0..self.residents.keys.len() {
                if protected(Key(self.residents.keys[at])) {
                    self.residents.inverse[at] = 0.0;
                    self.residents.changed(at);
                    self.aside.push(at);
                }
            }
        }
        for at in self.aside.drain(..) {
            let key = self.residents.keys[at];
            self.residents.inverse[at] = 1.0 / self.touches[key as usize] as f32;
            self.residents.changed(at);
        }
        victim.map(|at| self.remove(at))
    }
}
