//! What a journal means: which runs are done, which attempt is open, what comes next.

use std::collections::HashMap;
use std::path::PathBuf;

use bmoe_analysis::result_set::{CellRecord, State, Verdict};

use super::journal::{JournalEvent, Past, Started};

/// A run of a cell: its id and the repetition.
pub(super) type Key = (String, u32);

/// The attempts so far.
#[derive(Debug, Default)]
pub(super) struct History {
    last: HashMap<Key, Last>,
    /// The next attempt's place in the order.
    pub(super) next_order: u32,
    /// The target before the first run.
    pub(super) baseline: Option<State>,
    /// Attempts without an end, the first one first.
    pub(super) open: Vec<Started>,
    /// Places of attempts that were given up while their target was away: they may still run.
    pub(super) strays: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    attempt: u32,
    verdict: Verdict,
    /// Attempts that a retry may follow.
    unlucky: u32,
}

impl History {
    pub(super) fn new(past: &Past) -> Self {
        let mut history = Self::default();
        for event in &past.events {
            match event {
                JournalEvent::Begun { .. } => {}
                JournalEvent::Baseline { state, .. } => history.baseline = Some(state.clone()),
                JournalEvent::Started(started) => {
                    history.next_order = history.next_order.max(started.order + 1);
                    history.open.push((**started).clone());
                }
            }
        }
        for record in &past.records {
            history.ended(record);
        }
        history
    }

    /// An attempt ended.
    pub(super) fn ended(&mut self, record: &CellRecord) {
        let is_it = |started: &Started| {
            (&started.id, started.repetition, started.attempt)
                == (&record.id, record.repetition, record.attempt)
        };
        if let Some(at) = self.open.iter().position(is_it) {
            let started = self.open.remove(at);
            if record.verdict == Verdict::Lost {
                self.strays.push(started.place);
            }
        }
        self.next_order = self.next_order.max(record.order + 1);
        let key = (record.id.clone(), record.repetition);
        let unlucky = self.last.get(&key).map_or(0, |last| last.unlucky);
        let last = Last {
            attempt: record.attempt,
            verdict: record.verdict,
            unlucky: unlucky + u32::from(is_unlucky(record.verdict)),
        };
        self.last.insert(key, last);
    }

    /// The number of the attempt that a run needs; `None` = it needs none.
    pub(super) fn needs(&self, key: &Key, retries: u32) -> Option<u32> {
        match self.last.get(key) {
            None => Some(1),
            Some(last) if last.verdict == Verdict::Interrupted => Some(last.attempt + 1),
            Some(last) if is_unlucky(last.verdict) && last.unlucky <= retries => {
                Some(last.attempt + 1)
            }
            Some(_) => None,
        }
    }

    /// The attempt that follows the last one, whatever came of it.
    pub(super) fn following(&self, key: &Key) -> u32 {
        self.last.get(key).map_or(1, |last| last.attempt + 1)
    }

    /// What came of the last attempt.
    pub(super) fn verdict(&self, key: &Key) -> Option<Verdict> {
        self.last.get(key).map(|last| last.verdict)
    }
}

/// Something from outside ended it: it may go well the next time.
fn is_unlucky(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Lost | Verdict::Killed | Verdict::OutOfMemory | Verdict::TimedOut)
}
