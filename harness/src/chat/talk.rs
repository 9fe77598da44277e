//! A conversation over a session of the engine: what is asked, and what comes back. It neither waits longer than it is
//! told to nor shows anything, so that plain lines and the screen of the viewer have the same one.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use bmoe_trace::command::{Command, Generate};
use bmoe_trace::config::Think;
use bmoe_trace::line::{Done, Line, Ready};
use serde_json::Value;

use super::connection::{Connection, Said};
use super::typed::Settings;
use crate::error::Error;

/// What came from the engine.
#[derive(Debug)]
pub enum Event {
    /// The model is loaded.
    Ready,
    /// A word to the user.
    Warning(String),
    /// A line of the answer that is being written: `Progress`, or what comes before it.
    Line(Line),
    /// The answer is whole, or cancelled.
    Done(Box<Done>),
    /// The question got no answer; everything is as before.
    Refused(String),
}

/// A conversation.
#[derive(Debug)]
pub struct Talk {
    connection: Connection,
    /// What the next request is to be like.
    pub settings: Settings,
    ready: Option<Ready>,
    last: Option<Box<Done>>,
    requests: u32,
    clear: bool,
    answering: bool,
    cancelled: bool,
}

impl Talk {
    /// Over a session that has been started.
    #[must_use]
    pub fn new(connection: Connection, settings: Settings) -> Self {
        let (ready, last) = (None, None);
        let (requests, clear, answering, cancelled) = (0, false, false, false);
        Self { connection, settings, ready, last, requests, clear, answering, cancelled }
    }

    /// What the engine said of itself; `None` while it loads.
    #[must_use]
    pub fn ready(&self) -> Option<&Ready> {
        self.ready.as_ref()
    }

    /// The end of the last answer.
    #[must_use]
    pub fn last(&self) -> Option<&Done> {
        self.last.as_deref()
    }

    /// Whether a question waits for the end of its answer.
    #[must_use]
    pub fn answering(&self) -> bool {
        self.answering
    }

    /// Whether that end was asked for.
    #[must_use]
    pub fn cancelled(&self) -> bool {
        self.answering && self.cancelled
    }

    /// The next thing that comes.
    ///
    /// # Errors
    /// Nothing came in time, or the engine has ended: see [`Self::end`].
    pub fn next(&mut self, patience: Duration) -> Result<Event, RecvTimeoutError> {
        loop {
            let line = match self.connection.next(patience)? {
                Said::Warning(warning) => return Ok(Event::Warning(warning)),
                Said::Line(line) => line,
            };
            match line {
                Line::Ready(ready) => {
                    self.ready = Some(ready);
                    return Ok(Event::Ready);
                }
                Line::Done(done) => {
                    self.answering = false;
                    self.last = Some(done.clone());
                    return Ok(Event::Done(done));
                }
                Line::Error(error) if error.fatal || self.ready.is_none() => {
                    self.connection.failed(error.msg);
                }
                Line::Error(error) => {
                    self.answering = false;
                    return Ok(Event::Refused(error.msg));
                }
                line => return Ok(Event::Line(line)),
            }
        }
    }

    /// Asks for an answer.
    ///
    /// # Errors
    /// See [`Connection::send`].
    pub fn ask(&mut self, message: &str) -> Result<(), Error> {
        self.requests += 1;
        let think = match self.settings.think {
            Think::Default => None,
            think => Some(think),
        };
        let request = Generate {
            id: Value::from(self.requests),
            prompt: message.to_owned(),
            n_predict: Some(self.settings.n_predict),
            think,
            clear_kv: std::mem::take(&mut self.clear),
        };
        (self.answering, self.cancelled) = (true, false);
        self.connection.send(&Command::Generate(request))
    }

    /// Asks for the end of the answer.
    ///
    /// # Errors
    /// See [`Connection::send`].
    pub fn cancel(&mut self) -> Result<(), Error> {
        self.cancelled = true;
        self.connection.send(&Command::Cancel)
    }

    /// The next question begins a new conversation.
    pub fn forget(&mut self) {
        self.clear = true;
    }

    /// Why the engine ended by itself.
    pub fn end(&mut self) -> Error {
        self.answering = false;
        self.connection.end()
    }

    /// Ends the session in order.
    ///
    /// # Errors
    /// See [`Connection::close`].
    pub fn close(self) -> Result<(), Error> {
        self.connection.close()
    }

    /// Figures of the last answer.
    #[must_use]
    pub fn stats(&self) -> String {
        let Some((done, ready)) = self.last.as_ref().zip(self.ready.as_ref()) else {
            return "nothing was answered yet".to_owned();
        };
        let hits = if done.cache_hit_pct < 0.0 {
            "no cache".to_owned()
        } else {
            format!(
                "{:.1} % hits, {:.0} of {:.0} MiB",
                done.cache_hit_pct, done.cache_resident_mib, done.cache_budget_mib
            )
        };
        format!(
            "model    {}, top-{}, loaded in {:.1} s, peak {:.0} MiB\n\
             prompt   {} tokens in {:.2} s ({} kept)\n\
             answer   {} tokens, {:.2} tok/s ({})\n\
             context  {} of {} tokens\n\
             experts  {}",
            ready.arch,
            ready.n_expert_used,
            ready.load_s,
            done.peak_rss_mib,
            done.n_prompt,
            done.prefill_s,
            done.n_reused,
            done.tokens,
            done.tok_s,
            done.finish,
            done.n_past,
            ready.n_ctx,
            hits,
        )
    }

    /// What to say of an answer that did not end by itself.
    #[must_use]
    pub fn cut_off(finish: &str) -> Option<&'static str> {
        match finish {
            "cancelled" => Some("(cancelled: the conversation is as it was before)"),
            "length" => Some("(cut off after as many tokens as an answer may have: /tokens)"),
            "context" => Some("(the context is full: /clear begins anew, --ctx gives more)"),
            _ => None,
        }
    }

    /// What to say of a setting that the model can't follow.
    #[must_use]
    pub fn thinking_ignored(&self) -> Option<&'static str> {
        let none = self.ready.as_ref().is_some_and(|ready| ready.think_ctl == "none");
        (none && self.settings.think != Think::Default).then_some(
            "the model's chat template says nothing of thinking: --think and /think change nothing",
        )
    }
}
