//! What the threads of an operation share.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A (token, slot) pair routed to an expert.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Row {
    pub(super) slot: u32,
    pub(super) token: u32,
}

/// A share of one expert's product.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub(super) weights: *const u8,
    /// The slice to wait for, when it was not in memory as the round began.
    pub(super) pending: Option<u32>,
    pub(super) expert: u16,
    pub(super) first_out: u32,
    pub(super) n_out: u32,
}

/// What the threads of an operation share; see [`super::shared::Shared`] for who
/// may touch it when.
pub(super) struct Work {
    /// Rows of expert `e`: `rows[row_start[e]..row_start[e + 1]]`, token-major as in ggml.
    row_start: Vec<u32>,
    rows: Vec<Row>,
    pub(super) items: Vec<Item>,
    /// The round is the projection's last one.
    pub(super) last_round: bool,
}

impl Work {
    pub(super) fn new(n_expert: usize) -> Self {
        Self {
            row_start: vec![0; n_expert + 1],
            rows: Vec::new(),
            items: Vec::new(),
            last_round: true,
        }
    }

    /// Sorts the event's accesses by expert.
    pub(super) fn sort_rows(&mut self, experts: &[u16], top_k: usize) {
        self.row_start.fill(0);
        for &expert in experts {
            self.row_start[usize::from(expert) + 1] += 1;
        }
        for e in 1..self.row_start.len() {
            self.row_start[e] += self.row_start[e - 1];
        }
        let mut next = self.row_start.clone();
        self.rows.resize(experts.len(), Row::default());
        for (i, &expert) in experts.iter().enumerate() {
            let at = &mut next[usize::from(expert)];
            self.rows[*at as usize] = Row { slot: (i % top_k) as u32, token: (i / top_k) as u32 };
            *at += 1;
        }
    }

    pub(super) fn rows_of(&self, expert: u16) -> &[Row] {
        let e = usize::from(expert);
        &self.rows[self.row_start[e] as usize..self.row_start[e + 1] as usize]
    }
}

/// Activations in the type that the kernels want. The buffer is sized by [`super::fetch`]; its bytes are
/// written by all threads of an operation, each its own, before the operation's first barrier.
pub(super) struct Activations {
    buffer: UnsafeCell<Vec<u64>>,
    /// What was converted last in this event: the tensor's address and the type. Gate and up share one
    /// conversion. 0 = nothing.
    pub(super) source: AtomicUsize,
}

impl Activations {
    pub(super) fn new() -> Self {
        Self { buffer: UnsafeCell::new(Vec::new()), source: AtomicUsize::new(0) }
    }

    /// # Safety
    /// Only while no operation that uses activations runs.
    pub(super) unsafe fn reserve(&self, bytes: usize) {
        // SAFETY: the caller's promise.
        let buffer = unsafe { &mut *self.buffer.get() };
        if buffer.len() * 8 < bytes {
            buffer.resize(bytes.div_ceil(8), 0);
        }
        self.source.store(0, Ordering::Relaxed);
    }

    pub(super) fn bytes(&self) -> *mut u8 {
        // SAFETY: the vector itself changes only in `reserve`, when nobody else is here.
        unsafe { (*self.buffer.get()).as_ptr().cast_mut().cast() }
    }
}

/// Lets all threads of an operation wait for each other. They are all inside the operation at once,
/// and ggml's own barriers spin too.
#[derive(Debug, Default)]
pub(super) struct Barrier {
    arrived: AtomicUsize,
    generation: AtomicUsize,
}

impl Barrier {
    pub(super) fn wait(&self, threads: usize) {
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.store(generation.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut spins = 0u32;
        while self.generation.load(Ordering::Acquire) == generation {
            spins += 1;
            if spins < 10_000 {
                std::hint::spin_loop();
            } else {
                // The thread that is late has lost its core.
                std::thread::yield_now();
            }
        }
    }
}
