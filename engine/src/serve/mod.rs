//! A session over lines: requests on standard input, the published protocol on standard output.
//!
//! Lines are read on a thread of their own, so that `cancel` reaches a request that is running. Requests
//! are done one after the other, in the order in which they came.

mod inbox;

use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bmoe_trace::command::{Command, Generate};

use self::inbox::{Inbox, Item};
use crate::error::{CANCEL, EngineError};
use crate::run::{Engine, Request};

/// Longest line of a request. A prompt of that many bytes fits no context.
const LINE_BYTES: u64 = 16 << 20;

/// Answers the lines of `input` until it says `close` or ends; what was asked for before is done first.
///
/// The engine's sinks see everything: with [`Lines`](crate::run::Lines) among them, the protocol's lines.
///
/// # Errors
/// The engine failed, a sink can't write, or a signal came. Rejected requests are no errors: the sinks hear
/// of them.
pub fn serve(
    engine: &mut Engine<'_>,
    input: impl Read + Send + 'static,
    stop: &Arc<AtomicUsize>,
) -> Result<(), EngineError> {
    let inbox = Arc::new(Inbox::new(engine.canceller()));
    let reader = Arc::clone(&inbox);
    // It ends with the input. Should the engine fail before that, it is left behind.
    thread::Builder::new()
        .name("bmoe-commands".into())
        .spawn(move || read_lines(BufReader::new(input), &reader))
        .map_err(|e| {
            EngineError::Config(format!("cannot start the thread that reads input: {e}"))
        })?;
    let (n_predict, think) = (engine.config().n_predict, engine.config().think);
    let mut session = engine.session();
    loop {
        let signal = stop.load(Ordering::SeqCst);
        if signal != CANCEL
            && let Some(error) = EngineError::interrupted(signal)
        {
            return Err(error);
        }
        let (id, outcome) = match inbox.next() {
            None => continue,
            Some(Item::Close) => return Ok(()),
            Some(Item::Rejected { id, message }) => (id, Err(EngineError::Request(message))),
            Some(Item::Generate { generate, cancelled }) => {
                let Generate { id, prompt, n_predict: asked, think: wanted, clear_kv } = generate;
                let request = Request {
                    id: inbox::name(&id),
                    prompt,
                    n_predict: asked.unwrap_or(n_predict),
                    think: wanted.unwrap_or(think),
                    clear: clear_kv,
                };
                if cancelled {
                    session.engine().canceller().cancel();
                }
                let outcome = session.ask(&request, &mut |_| ControlFlow::Continue(()));
                inbox.done();
                (request.id, outcome.map(drop))
            }
        };
        match outcome {
            Ok(()) => {}
            Err(EngineError::Request(message)) => session.reject(&id, &message)?,
            Err(error) => return Err(error),
        }
    }
}

/// Puts every line into the inbox.
fn read_lines(mut input: impl BufRead, inbox: &Inbox) {
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return inbox.put(Item::Close),
            Ok(n) if n as u64 == LINE_BYTES && line.last() != Some(&b'\n') => {
                inbox.put(rejected(&format!("a line has more than {} MiB", LINE_BYTES >> 20)));
                if input.skip_until(b'\n').is_err() {
                    return inbox.put(Item::Close);
                }
            }
            Ok(_) if line.trim_ascii().is_empty() => {}
            Ok(_) => match serde_json::from_slice(&line) {
                Ok(Command::Generate(generate)) => {
                    inbox.put(Item::Generate { generate, cancelled: false });
                }
                Ok(Command::Cancel) => inbox.cancel(),
                Ok(Command::Close) => return inbox.put(Item::Close),
                Err(e) => inbox.put(unreadable(&line, &e)),
            },
        }
    }
}

/// A line that is no command, with its name if it has one.
fn unreadable(line: &[u8], error: &serde_json::Error) -> Item {
    let id = serde_json::from_slice::<serde_json::Value>(line)
        .ok()
        .and_then(|value| Some(inbox::name(value.get("id")?)))
        .unwrap_or_default();
    let message = format!(
        "the line is no command ({error}); send {{\"cmd\":\"generate\",\"id\":1,\"prompt\":\"...\"}}, \
         {{\"cmd\":\"cancel\"}} or {{\"cmd\":\"close\"}}"
    );
    Item::Rejected { id, message }
}

fn rejected(message: &str) -> Item {
    Item::Rejected { id: String::new(), message: message.to_owned() }
}
