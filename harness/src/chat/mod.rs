//! A conversation with a model in a terminal.
//!
//! * [`connection`]: the engine's session as a process, here or wherever a command line reaches.
//! * [`talk`]: the conversation over it, whoever shows it.
//! * [`typed`]: what a person can type, and what it means.
//! * [`screen`]: plain lines; this module's [`run`] goes through a conversation with them. The screen `Chat` is in
//!   [`crate::view`].

pub mod connection;
pub mod screen;
pub mod talk;
pub mod typed;

use std::io::{self, BufRead, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use bmoe_trace::line::Line;
use signal_hook::consts::SIGINT;

use self::screen::Screen;
use self::talk::{Event, Talk};
use self::typed::Typed;
use crate::error::Error;

/// How often signals are looked at.
const TICK: Duration = Duration::from_millis(50);

/// Signals since they were last asked for.
pub trait Signals {
    /// Ctrl-C was pressed.
    fn take_interrupt(&mut self) -> bool;

    /// The number of a signal that asks to leave.
    fn leave(&self) -> Option<i32>;
}

/// A chat in plain lines.
struct Chat<'a, W: Write> {
    talk: Talk,
    screen: Screen<W>,
    signals: &'a mut dyn Signals,
    /// The last question that got no answer, as the engine put it.
    refused: Option<String>,
}

/// Why a wait ended.
enum Waited<T> {
    Came(T),
    /// Ctrl-C.
    Interrupted,
    Ended,
}

/// Talks in plain lines until `input` ends or the user leaves.
///
/// # Errors
/// The engine refuses or fails, or a signal asks to leave.
pub fn run(
    talk: Talk,
    screen: Screen<impl Write>,
    input: impl BufRead + Send + 'static,
    signals: &mut dyn Signals,
) -> Result<(), Error> {
    let mut chat = Chat { talk, screen, signals, refused: None };
    chat.begin()?;
    let typed = follow(input);
    while let Some(line) = chat.prompt(&typed)? {
        match Typed::read(&line, chat.talk.settings) {
            Typed::Nothing => {}
            Typed::Quit => break,
            Typed::Clear => {
                chat.talk.forget();
                chat.screen.note("the conversation is forgotten")?;
            }
            Typed::Stats => chat.screen.note(&chat.talk.stats())?,
            Typed::Help => chat.screen.note(&typed::help())?,
            Typed::Set(settings, said) => {
                let before = std::mem::replace(&mut chat.talk.settings, settings);
                chat.screen.note(&said)?;
                if before.think != settings.think {
                    chat.say_of_thinking()?;
                }
            }
            Typed::Wrong(said) => chat.screen.note(&said)?,
            Typed::Message(message) => chat.ask(&message)?,
        }
    }
    chat.talk.close()?;
    // Whoever typed has read it; a program that wrote the questions goes by the exit code.
    match chat.refused {
        Some(message) if !chat.screen.prompts() => {
            Err(Error::Told(Box::new(Error::Engine(message))))
        }
        _ => Ok(()),
    }
}

/// Left by Ctrl-C, which is no failure to speak of.
#[must_use]
pub fn left() -> Error {
    Error::Told(Box::new(Error::Interrupted { signal: SIGINT, what: String::new() }))
}

/// Reads lines on a thread of its own.
fn follow(input: impl BufRead + Send + 'static) -> mpsc::Receiver<io::Result<String>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in input.lines() {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

impl<W: Write> Chat<'_, W> {
    /// Waits for something while looking at signals.
    fn wait<T>(
        &mut self,
        mut next: impl FnMut(&mut Self) -> Result<T, RecvTimeoutError>,
    ) -> Result<Waited<T>, Error> {
        loop {
            if let Some(signal) = self.signals.leave() {
                return Err(Error::Interrupted { signal, what: String::new() });
            }
            if self.signals.take_interrupt() {
                return Ok(Waited::Interrupted);
            }
            match next(self) {
                Ok(came) => return Ok(Waited::Came(came)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(Waited::Ended),
            }
        }
    }

    fn say_of_thinking(&mut self) -> Result<(), Error> {
        match self.talk.thinking_ignored() {
            Some(said) => self.screen.note(said),
            None => Ok(()),
        }
    }

    /// Waits for the model.
    fn begin(&mut self) -> Result<(), Error> {
        loop {
            match self.wait(|chat| chat.talk.next(TICK))? {
                Waited::Interrupted => return Err(left()),
                Waited::Ended => return Err(self.talk.end()),
                Waited::Came(Event::Warning(warning)) => self.screen.note(&warning)?,
                Waited::Came(_) => {
                    if let Some(ready) = self.talk.ready().cloned() {
                        self.say_of_thinking()?;
                        return self.screen.begin(&ready);
                    }
                }
            }
        }
    }

    /// What the user types next; nothing at the end of input.
    fn prompt(
        &mut self,
        typed: &mpsc::Receiver<io::Result<String>>,
    ) -> Result<Option<String>, Error> {
        self.screen.prompt()?;
        let mut warned = false;
        loop {
            match self.wait(|_| typed.recv_timeout(TICK))? {
                Waited::Came(Ok(line)) => return Ok(Some(line)),
                Waited::Came(Err(error)) => {
                    self.screen.note(&format!("that line can't be read: {error}"))?;
                    return Ok(Some(String::new()));
                }
                Waited::Ended => {
                    self.screen.end()?;
                    return Ok(None);
                }
                Waited::Interrupted if warned => {
                    self.screen.end()?;
                    return Err(left());
                }
                Waited::Interrupted => {
                    warned = true;
                    self.screen.note("Ctrl-C again leaves, and so does /quit")?;
                    self.screen.prompt()?;
                }
            }
        }
    }

    /// Has a message answered.
    fn ask(&mut self, message: &str) -> Result<(), Error> {
        self.talk.ask(message)?;
        loop {
            match self.wait(|chat| chat.talk.next(TICK))? {
                Waited::Interrupted if self.talk.cancelled() => return Err(left()),
                Waited::Interrupted => self.talk.cancel()?,
                Waited::Ended => return Err(self.talk.end()),
                Waited::Came(Event::Warning(warning)) => self.screen.note(&warning)?,
                Waited::Came(Event::Line(Line::Progress(progress))) => {
                    self.screen.delta(&progress, self.talk.settings.thoughts)?;
                }
                Waited::Came(Event::Line(_) | Event::Ready) => {}
                Waited::Came(Event::Done(done)) => return self.screen.done(&done),
                Waited::Came(Event::Refused(message)) => {
                    self.screen.note(&message)?;
                    self.refused = Some(message);
                    return Ok(());
                }
            }
        }
    }
}
