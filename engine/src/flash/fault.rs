//! Faults that tests put into reads, on the way to the kernel: the code that has to deal with them is the
//! code that runs.

use std::fmt;
use std::sync::Arc;

/// One attempt to read a piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Index of the file.
    pub file: usize,
    /// Where the piece starts in the file.
    pub offset: u64,
    /// Its length.
    pub bytes: usize,
}

/// What becomes of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The kernel is asked for no more than so many bytes.
    Short(usize),
    /// The attempt fails with this error number and reads nothing.
    Error(i32),
}

type Plan = dyn Fn(Attempt) -> Option<Fault> + Send + Sync;

/// Decides about every attempt; by default all go through.
#[derive(Clone, Default)]
pub struct Faults(Option<Arc<Plan>>);

impl Faults {
    /// Asks `plan` about every attempt. It is called on the threads that read, in the order of their reads.
    #[must_use]
    pub fn new(plan: impl Fn(Attempt) -> Option<Fault> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(plan)))
    }

    /// What becomes of an attempt.
    pub(super) fn of(&self, attempt: Attempt) -> Option<Fault> {
        self.0.as_ref()?(attempt)
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Faults(planned)" } else { "Faults(none)" })
    }
}
