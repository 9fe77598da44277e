//! What is known of a chat: what was said, what holds for the next message, and what the screen asks of the engine.

use bmoe_trace::line::{Done, Progress, Ready};

use crate::chat::talk::Talk;
use crate::chat::typed::{self, Settings, Typed};
use crate::error::Error;

/// Something in the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A person said it.
    Message(String),
    /// The model did.
    Answer {
        /// What it thought before.
        thoughts: String,
        /// What it said.
        text: String,
        /// It says no more.
        over: bool,
    },
    /// No part of the conversation.
    Note(String),
    /// Something failed.
    Trouble(String),
}

/// What the screen asks of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// An answer, under these settings.
    Answer(String, Settings),
    /// The end of the answer.
    Cancel,
    /// A new conversation.
    Forget,
    /// Figures of the last answer.
    Stats,
    /// Whether the model can follow these settings.
    Check(Settings),
}

/// A chat. The screen adds to `asked`, the source takes it and tells what came of it.
#[derive(Debug)]
pub struct ChatState {
    /// The conversation, the last thing last.
    pub entries: Vec<Entry>,
    /// What holds for the next message.
    pub settings: Settings,
    /// What the engine said of itself; `None` while it loads.
    pub ready: Option<Ready>,
    /// The end of the last answer.
    pub last: Option<Box<Done>>,
    /// What is asked of the engine, in this order.
    pub asked: Vec<Asked>,
    /// The end of the answer was asked for.
    pub cancelled: bool,
    /// The person left with Ctrl-C.
    pub interrupted: bool,
    /// Why the engine ended.
    pub end: Option<Error>,
}

impl ChatState {
    /// Before anything was said.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            entries: Vec::new(),
            settings,
            ready: None,
            last: None,
            asked: Vec::new(),
            cancelled: false,
            interrupted: false,
            end: None,
        }
    }

    /// Whether an answer is being written or waited for.
    #[must_use]
    pub fn answering(&self) -> bool {
        self.entries.iter().rev().any(|entry| matches!(entry, Entry::Answer { over: false, .. }))
    }

    /// A line was typed. Returns whether it was taken, and whether to leave.
    pub fn typed(&mut self, line: &str) -> (bool, bool) {
        match Typed::read(line, self.settings) {
            Typed::Nothing => {}
            Typed::Quit => return (true, true),
            Typed::Clear if self.answering() => return (self.busy(), false),
            Typed::Clear => {
                self.asked.push(Asked::Forget);
                self.entries.clear();
                self.note("the conversation is forgotten");
            }
            Typed::Stats => self.asked.push(Asked::Stats),
            Typed::Help => self.note(&typed::help()),
            Typed::Set(settings, said) => {
                let check = settings.think != self.settings.think;
                self.settings = settings;
                self.note(&said);
                if check {
                    self.asked.push(Asked::Check(settings));
                }
            }
            Typed::Wrong(said) => self.note(&said),
            Typed::Message(_) if self.answering() => return (self.busy(), false),
            Typed::Message(_) if self.ready.is_none() => {
                self.note("the model is still being loaded");
                return (false, false);
            }
            Typed::Message(_) if self.end.is_some() => {
                self.note("the engine has ended; /quit leaves");
                return (false, false);
            }
            Typed::Message(message) => {
                self.cancelled = false;
                self.entries.push(Entry::Message(message.clone()));
                let (thoughts, text) = (String::new(), String::new());
                self.entries.push(Entry::Answer { thoughts, text, over: false });
                self.asked.push(Asked::Answer(message, self.settings));
            }
        }
        (true, false)
    }

    fn busy(&mut self) -> bool {
        self.note("an answer is being written; esc ends it");
        false
    }

    /// Asks for the end of the answer; false when there is none, or it was asked for before.
    pub fn cancel(&mut self) -> bool {
        if !self.answering() || self.cancelled {
            return false;
        }
        self.cancelled = true;
        self.asked.push(Asked::Cancel);
        true
    }

    /// Something that is no part of the conversation. Said twice in a row it is shown once.
    pub fn note(&mut self, text: &str) {
        let note = Entry::Note(text.to_owned());
        if self.entries.last() != Some(&note) {
            self.entries.push(note);
        }
    }

    fn answer(&mut self) -> Option<(&mut String, &mut String, &mut bool)> {
        self.entries.iter_mut().rev().find_map(|entry| match entry {
            Entry::Answer { thoughts, text, over } if !*over => Some((thoughts, text, over)),
            _ => None,
        })
    }

    /// What came with a token.
    pub fn progress(&mut self, progress: &Progress) {
        let Some((thoughts, text, _)) = self.answer() else { return };
        if progress.reset != 0 {
            // What had looked like the answer were thoughts.
            thoughts.clear();
            text.clear();
        }
        thoughts.push_str(&progress.delta_reasoning);
        text.push_str(&progress.delta_text);
    }

    /// The end of the answer.
    pub fn done(&mut self, done: Box<Done>) {
        if let Some((_, _, over)) = self.answer() {
            *over = true;
        }
        if let Some(said) = Talk::cut_off(&done.finish) {
            self.note(said);
        }
        self.last = Some(done);
    }

    /// There is no answer.
    pub fn refused(&mut self, why: String) {
        if let Some((_, _, over)) = self.answer() {
            *over = true;
        }
        self.entries.push(Entry::Trouble(why));
    }

    /// The engine has ended.
    pub fn ended(&mut self, error: Error) {
        self.refused(error.to_string());
        self.end = Some(error);
    }
}
