//! What was asked for and is not done yet.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bmoe_trace::command::Generate;
use serde_json::Value;

use crate::run::Canceller;

/// How long a wait for the next line lasts before signals are looked at.
const TICK: Duration = Duration::from_millis(50);

/// Something to do.
#[derive(Debug)]
pub(super) enum Item {
    /// A request.
    Generate {
        /// What was asked.
        generate: Generate,
        /// It was cancelled while it waited.
        cancelled: bool,
    },
    /// A line that can't be followed.
    Rejected {
        /// The request's name.
        id: String,
        /// Why.
        message: String,
    },
    /// The end.
    Close,
}

/// A queue between the thread that reads lines and the one that answers them.
#[derive(Debug)]
pub(super) struct Inbox {
    state: Mutex<State>,
    came: Condvar,
    canceller: Canceller,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Item>,
    /// A request was taken and is not done.
    running: bool,
}

impl Inbox {
    pub(super) fn new(canceller: Canceller) -> Self {
        Self { state: Mutex::default(), came: Condvar::new(), canceller }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, item: Item) {
        self.lock().items.push_back(item);
        self.came.notify_one();
    }

    /// Cancels the request that is running, and all that came before the cancel and wait.
    pub(super) fn cancel(&self) {
        let mut state = self.lock();
        for item in &mut state.items {
            if let Item::Generate { cancelled, .. } = item {
                *cancelled = true;
            }
        }
        // Under the lock: it can't hit a later request.
        if state.running {
            self.canceller.cancel();
        }
    }

    /// The next thing to do, if it comes soon. A request counts as running until [`Self::done`].
    pub(super) fn next(&self) -> Option<Item> {
        let state = self.lock();
        let nothing = |state: &mut State| state.items.is_empty();
        let waited = self.came.wait_timeout_while(state, TICK, nothing);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let item = state.items.pop_front()?;
        state.running = matches!(item, Item::Generate { .. });
        Some(item)
    }

    /// The request that was running is done: a cancel that came too late for it is void.
    pub(super) fn done(&self) {
        let mut state = self.lock();
        state.running = false;
        self.canceller.clear();
    }
}

/// A request's name as text: the JSON that it came as; nothing when it has none.
pub(super) fn name(id: &Value) -> String {
    if id.is_null() { String::new() } else { id.to_string() }
}
