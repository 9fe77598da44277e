//! A chat: what the screen asks goes to the engine, what the engine says comes to the screen, and each answer is a run
//! of its own.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use bmoe_trace::line::Line;

use super::Source;
use super::records::Taker;
use crate::chat::talk::{Event, Talk};
use crate::view::screens::chat::{Asked, SharedChat};
use crate::view::world::{Mode, RunData, World};

/// Things that are taken between two drawings at most.
const AT_ONCE: usize = 4096;

/// The engine's side of a chat.
#[derive(Debug)]
pub struct ChatSource {
    /// `None` = it has ended.
    talk: Option<Talk>,
    chat: SharedChat,
    model: String,
    taker: Taker,
    answers: usize,
}

impl ChatSource {
    /// Over a conversation, with the model's name.
    #[must_use]
    pub fn new(talk: Talk, chat: SharedChat, model: String) -> (Self, World) {
        let world = World { name: model.clone(), mode: Mode::Live, ..World::default() };
        (Self { talk: Some(talk), chat, model, taker: Taker::default(), answers: 0 }, world)
    }

    /// Does what the screen asks for.
    fn follow(&mut self, asked: Asked, world: &mut World) {
        let Some(talk) = &mut self.talk else { return };
        let sent = match asked {
            Asked::Answer(message, settings) => {
                talk.settings = settings;
                self.answers += 1;
                self.taker = Taker::default();
                world.add_run(RunData {
                    name: format!("answer {}", self.answers),
                    model: self.model.clone(),
                    n_predict: Some(settings.n_predict),
                    ..RunData::default()
                });
                talk.ask(&message)
            }
            Asked::Cancel => talk.cancel(),
            Asked::Forget => {
                talk.forget();
                Ok(())
            }
            Asked::Stats => {
                self.chat.borrow_mut().note(&talk.stats());
                Ok(())
            }
            Asked::Check(settings) => {
                talk.settings = settings;
                if let Some(said) = talk.thinking_ignored() {
                    self.chat.borrow_mut().note(said);
                }
                Ok(())
            }
        };
        if let Err(error) = sent {
            self.chat.borrow_mut().refused(error.to_string());
        }
    }

    fn event(&mut self, event: Event, world: &mut World) {
        let mut chat = self.chat.borrow_mut();
        match event {
            Event::Ready => {
                let Some(talk) = &self.talk else { return };
                chat.ready = talk.ready().cloned();
                if let Some(said) = talk.thinking_ignored() {
                    chat.note(said);
                }
            }
            Event::Warning(warning) => chat.note(&warning),
            Event::Line(line) => {
                if let Some(run) = world.runs.last_mut() {
                    self.taker.line(run, &line);
                }
                if let Line::Progress(progress) = &line {
                    chat.progress(progress);
                }
            }
            Event::Done(done) => {
                over(world, None);
                chat.done(done);
            }
            Event::Refused(why) => {
                over(world, Some(why.clone()));
                chat.refused(why);
            }
        }
    }
}

/// The last answer says no more.
fn over(world: &mut World, trouble: Option<String>) {
    if let Some(run) = world.runs.last_mut() {
        run.over = true;
        run.trouble = trouble;
    }
}

impl Source for ChatSource {
    fn poll(&mut self, world: &mut World) {
        let asked = std::mem::take(&mut self.chat.borrow_mut().asked);
        for asked in asked {
            self.follow(asked, world);
        }
        for _ in 0..AT_ONCE {
            let Some(talk) = &mut self.talk else { return };
            match talk.next(Duration::ZERO) {
                Ok(event) => self.event(event, world),
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => {
                    let error = talk.end();
                    self.talk = None;
                    over(world, Some(error.to_string()));
                    self.chat.borrow_mut().ended(error);
                }
            }
        }
    }

    /// An engine that could not even load leaves nothing to look at.
    fn is_over(&self) -> bool {
        self.talk.is_none() && self.chat.borrow().ready.is_none()
    }
}

impl Drop for ChatSource {
    fn drop(&mut self) {
        // An engine that computes is not waited for.
        if let Some(talk) =
            self.talk.take().filter(|talk| talk.ready().is_some() && !talk.answering())
        {
            let _ = talk.close();
        }
    }
}
