//! A conversation with a model in a terminal.
//!
//! * [`connection`]: the engine's session as a process, here or wherever a command line reaches.
//! * [`screen`]: what a person sees.

pub mod connection;
pub mod screen;

use std::io::{self, BufRead, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use bmoe_trace::command::{Command, Generate};
use bmoe_trace::config::Think;
use bmoe_trace::line::{Done, Line, Ready};
use serde_json::Value;

use self::connection::{Connection, Said};
use self::screen::Screen;
use crate::error::Error;

/// How often signals are looked at.
const TICK: Duration = Duration::from_millis(50);

/// What to do at the prompt.
const HELP: &str = "\
/clear  forget the conversation      /stats  figures of the last answer
/quit   leave (or the end of input)  /help   this
Ctrl-C ends an answer; twice, it leaves.";

/// Signals since they were last asked for.
pub trait Signals {
    /// Ctrl-C was pressed.
    fn take_interrupt(&mut self) -> bool;

    /// The number of a signal that asks to leave.
    fn leave(&self) -> Option<i32>;
}

/// What all requests of a chat have in common.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Most tokens of an answer.
    pub n_predict: u32,
    /// Whether the model is to think.
    pub think: Think,
}

/// A chat that has begun.
struct Chat<'a, W: Write> {
    connection: Connection,
    screen: Screen<W>,
    signals: &'a mut dyn Signals,
    settings: Settings,
    ready: Ready,
    last: Option<Box<Done>>,
    requests: u32,
    clear: bool,
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

/// Talks until `input` ends or the user leaves.
///
/// # Errors
/// The engine refuses or fails, or a signal asks to leave.
pub fn run(
    connection: Connection,
    screen: Screen<impl Write>,
    input: impl BufRead + Send + 'static,
    signals: &mut dyn Signals,
    settings: Settings,
) -> Result<(), Error> {
    let ready = Ready {
        load_s: 0.0,
        arch: String::new(),
        n_ctx: 0,
        n_expert_used: 0,
        think_ctl: String::new(),
    };
    let mut chat = Chat {
        connection,
        screen,
        signals,
        settings,
        ready,
        last: None,
        requests: 0,
        clear: false,
        refused: None,
    };
    chat.begin()?;
    let typed = follow(input);
    while let Some(line) = chat.prompt(&typed)? {
        match line.trim() {
            "" => {}
            "/quit" | "/exit" => break,
            "/clear" => {
                chat.clear = true;
                chat.screen.note("the conversation is forgotten")?;
            }
            "/stats" => chat.stats()?,
            "/help" => chat.screen.note(HELP)?,
            command if command.starts_with('/') => {
                chat.screen.note(&format!("{command} is no command; /help lists them"))?;
            }
            _ => chat.ask(&line)?,
        }
    }
    chat.connection.close()?;
    // Whoever typed has read it; a program that wrote the questions goes by the exit code.
    match chat.refused {
        Some(message) if !chat.screen.prompts() => Err(Error::Engine(message)),
        _ => Ok(()),
    }
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

    /// Leaves because of Ctrl-C.
    fn left() -> Error {
        const SIGINT: i32 = 2;
        Error::Interrupted { signal: SIGINT, what: String::new() }
    }

    /// Waits for the model.
    fn begin(&mut self) -> Result<(), Error> {
        loop {
            match self.wait(|chat| chat.connection.next(TICK))? {
                Waited::Interrupted => return Err(Self::left()),
                Waited::Ended => return Err(self.connection.end()),
                Waited::Came(Said::Warning(warning)) => self.screen.note(&warning)?,
                Waited::Came(Said::Line(Line::Ready(ready))) => {
                    self.screen.begin(&ready, self.settings.think)?;
                    self.ready = ready;
                    return Ok(());
                }
                Waited::Came(Said::Line(Line::Error(error))) => self.connection.failed(error.msg),
                Waited::Came(Said::Line(_)) => {}
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
                Waited::Interrupted if warned => return Err(Self::left()),
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
        self.connection.send(&Command::Generate(request))?;
        let mut cancelled = false;
        loop {
            match self.wait(|chat| chat.connection.next(TICK))? {
                Waited::Interrupted if cancelled => return Err(Self::left()),
                Waited::Interrupted => {
                    cancelled = true;
                    self.connection.send(&Command::Cancel)?;
                }
                Waited::Ended => return Err(self.connection.end()),
                Waited::Came(Said::Warning(warning)) => self.screen.note(&warning)?,
                Waited::Came(Said::Line(line)) => match line {
                    Line::Progress(progress) => self.screen.delta(&progress)?,
                    Line::Done(done) => {
                        self.screen.done(&done)?;
                        self.last = Some(done);
                        return Ok(());
                    }
                    Line::Error(error) if error.fatal => self.connection.failed(error.msg),
                    Line::Error(error) => {
                        self.screen.note(&error.msg)?;
                        self.refused = Some(error.msg);
                        return Ok(());
                    }
                    Line::Ready(_) | Line::Begin(_) | Line::Prefill(_) | Line::Load(_) => {}
                },
            }
        }
    }

    fn stats(&mut self) -> Result<(), Error> {
        let Some(done) = &self.last else {
            return self.screen.note("nothing was answered yet");
        };
        let hits = if done.cache_hit_pct < 0.0 {
            "no cache".to_owned()
        } else {
            format!(
                "{:.1} % hits, {:.0} of {:.0} MiB",
                done.cache_hit_pct, done.cache_resident_mib, done.cache_budget_mib
            )
        };
        let text = format!(
            "model    {}, top-{}, loaded in {:.1} s, peak {:.0} MiB\n\
             prompt   {} tokens in {:.2} s ({} kept)\n\
             answer   {} tokens, {:.2} tok/s ({})\n\
             context  {} of {} tokens\n\
             experts  {}",
            self.ready.arch,
            self.ready.n_expert_used,
            self.ready.load_s,
            done.peak_rss_mib,
            done.n_prompt,
            done.prefill_s,
            done.n_reused,
            done.tokens,
            done.tok_s,
            done.finish,
            done.n_past,
            self.ready.n_ctx,
            hits,
        );
        self.screen.note(&text)
    }
}
