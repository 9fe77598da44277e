//! A session of the engine, as a process.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bmoe_trace::command::Command as Asked;
use bmoe_trace::line::Line;

use crate::error::Error;
use crate::runner::lines::{LINE_BYTES, read_line};

/// What the engine refuses with, the command line or what it says; see `bmoe-engine --help`.
const REFUSED: [i32; 2] = [2, 3];

/// What an engine says.
#[derive(Debug)]
pub enum Said {
    /// A line of the protocol.
    Line(Line),
    /// A word to the user.
    Warning(String),
}

/// A running session. Dropping it ends it.
#[derive(Debug)]
pub struct Connection {
    engine: Child,
    input: Option<ChildStdin>,
    said: mpsc::Receiver<Said>,
    /// The engine's own reason for its end.
    reason: Option<String>,
    /// The last `error: ` of its standard error.
    error: Arc<Mutex<Option<String>>>,
}

impl Connection {
    /// Starts `command`, which is to become a session of the engine.
    ///
    /// # Errors
    /// It doesn't start.
    pub fn start(command: &mut Command) -> Result<Self, Error> {
        let what = format!("{} does not start", command.get_program().display());
        let failed = |source| Error::Refused(format!("cannot run the engine: {what}: {source}"));
        let started = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: Ctrl-C reaches this program alone.
            .process_group(0)
            .spawn();
        let mut engine = started.map_err(failed)?;
        let (sender, said) = mpsc::channel();
        let error = Arc::<Mutex<Option<String>>>::default();
        let input = engine.stdin.take();
        if let (Some(output), Some(messages)) = (engine.stdout.take(), engine.stderr.take()) {
            let warnings = sender.clone();
            std::thread::spawn(move || {
                follow(output, &sender, |text| Line::parse(text).map(Said::Line));
            });
            // The reason of a failure is in the protocol, too, unless the command line is what is wrong.
            let error = Arc::clone(&error);
            std::thread::spawn(move || {
                follow(messages, &warnings, |text| {
                    let text = text.trim_end();
                    match text.strip_prefix("error: ") {
                        None => Some(Said::Warning(text.to_owned())),
                        Some(reason) => {
                            let mut last = error.lock().unwrap_or_else(PoisonError::into_inner);
                            *last = Some(reason.to_owned());
                            None
                        }
                    }
                });
            });
        }
        Ok(Self { engine, input, said, reason: None, error })
    }

    /// Asks for something. An engine that has ended is noticed by [`Self::next`].
    ///
    /// # Errors
    /// None at present: what can't be sent has nobody to answer it.
    pub fn send(&mut self, asked: &Asked) -> Result<(), Error> {
        let line = serde_json::to_string(asked).unwrap_or_default();
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        }
        Ok(())
    }

    /// What the engine says next.
    ///
    /// # Errors
    /// Nothing came in time, or it has ended.
    pub fn next(&mut self, patience: Duration) -> Result<Said, RecvTimeoutError> {
        self.said.recv_timeout(patience)
    }

    /// Remembers why the engine is about to end.
    pub fn failed(&mut self, reason: String) {
        self.reason = Some(reason);
    }

    /// Why the engine ended by itself.
    pub fn end(&mut self) -> Error {
        self.input.take();
        let status = self.engine.wait();
        let code = status.as_ref().ok().and_then(std::process::ExitStatus::code);
        let how = match status {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        // Whatever it still says is on its way; the channel closes when all of it is here.
        while self.said.recv_timeout(Duration::from_secs(1)).is_ok() {}
        let said = || self.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        let reason = self.reason.take().or_else(said);
        let reason = reason.unwrap_or_else(|| format!("the engine ended: {how}"));
        if code.is_some_and(|code| REFUSED.contains(&code)) {
            Error::Refused(reason)
        } else {
            Error::Engine(reason)
        }
    }

    /// Ends the session in order.
    ///
    /// # Errors
    /// The engine's end can't be waited for.
    pub fn close(mut self) -> Result<(), Error> {
        self.send(&Asked::Close)?;
        self.input.take();
        self.engine
            .wait()
            .map_err(|source| Error::Engine(format!("the engine's end is unknown: {source}")))?;
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if matches!(self.engine.try_wait(), Ok(None) | Err(_)) {
            let _ = self.engine.kill();
            let _ = self.engine.wait();
        }
    }
}

/// Hands over what is made of each line, to the end of the output.
fn follow(output: impl io::Read, sender: &mpsc::Sender<Said>, said: impl Fn(&str) -> Option<Said>) {
    let mut reader = BufReader::new(output);
    let mut bytes = Vec::new();
    while matches!(read_line(&mut reader, &mut bytes, LINE_BYTES), Ok(true)) {
        let text = String::from_utf8_lossy(&bytes);
        if said(&text).is_some_and(|said| sender.send(said).is_err()) {
            // What comes now is for nobody, but the engine must not block on it.
            while matches!(reader.fill_buf(), Ok(rest) if !rest.is_empty()) {
                let length = reader.buffer().len();
                reader.consume(length);
            }
            return;
        }
    }
}
