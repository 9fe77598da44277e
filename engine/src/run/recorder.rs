//! Sends records to the sinks, and keeps what the last one needs.

use bmoe_trace::record::{Outcome, Record, RunEnd};
use sha2::{Digest, Sha256};

use super::process::rss;
use super::sinks::{Event, RecordSink};
use crate::error::EngineError;

/// The sinks of a run, and its totals.
pub(super) struct Recorder<'s> {
    sinks: Vec<&'s mut dyn RecordSink>,
    tokens: u32,
    decode_ns: u64,
    text: String,
    hash: Option<Sha256>,
}

impl<'s> Recorder<'s> {
    pub(super) fn new(sinks: Vec<&'s mut dyn RecordSink>, hash_logits: bool) -> Self {
        Self {
            sinks,
            tokens: 0,
            decode_ns: 0,
            text: String::new(),
            hash: hash_logits.then(Sha256::new),
        }
    }

    pub(super) fn wants_routes(&self) -> bool {
        self.sinks.iter().any(|s| s.wants_routes())
    }

    pub(super) fn emit(&mut self, record: &Record) -> Result<(), EngineError> {
        if let Record::Token(token) = record {
            self.tokens += 1;
            self.decode_ns += token.cost.wall_ns;
        }
        self.give_all(|sink| sink.record(record))
    }

    pub(super) fn event(&mut self, event: &Event<'_>) -> Result<(), EngineError> {
        self.give_all(|sink| sink.event(event))
    }

    /// Gives something to every sink: one that fails doesn't keep it from the others.
    fn give_all(
        &mut self,
        mut give: impl FnMut(&mut dyn RecordSink) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let mut result = Ok(());
        for sink in &mut self.sinks {
            let given = give(&mut **sink);
            result = result.and(given);
        }
        result
    }

    /// Adds generated text, thoughts included.
    pub(super) fn add_text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Adds logits to the run's hash.
    pub(super) fn add_logits(&mut self, bytes: &[u8]) {
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
    }

    /// The last record. `peaks` are the highest bytes of cache and event.
    pub(super) fn end(
        &mut self,
        outcome: Outcome,
        peaks: (u64, u64),
    ) -> Result<RunEnd, EngineError> {
        let end = RunEnd {
            outcome,
            tokens: self.tokens,
            decode_ns: self.decode_ns,
            peak_rss_bytes: rss().1,
            peak_cache_bytes: peaks.0,
            peak_event_bytes: peaks.1,
            text: std::mem::take(&mut self.text),
            logits_sha256: self.hash.take().map(|h| hex(&h.finalize())),
        };
        self.emit(&Record::End(Box::new(end.clone())))?;
        Ok(end)
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
