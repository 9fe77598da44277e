//! The screen `Chat`: a conversation with a model, with what it costs beside it.

mod draw;
mod input;
mod state;

use std::cell::{Ref, RefCell};
use std::rc::Rc;

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseEvent, MouseEventKind};
use ratatui::layout::Rect;

pub use self::input::Input;
pub use self::state::{Asked, ChatState, Entry};
use super::run::Summary;
use super::{Reply, Screen, ScreenId};
use crate::view::keys::Action;
use crate::view::theme::Theme;
use crate::view::world::World;

/// Lines that a page key and a turn of the wheel go.
const PAGE: usize = 8;
const WHEEL: usize = 3;

/// A chat as the screen and its source share it.
pub type SharedChat = Rc<RefCell<ChatState>>;

/// Its state.
#[derive(Debug)]
pub struct ChatScreen {
    chat: SharedChat,
    input: Input,
    /// Lines between the end of the conversation and the last one shown.
    scrolled: usize,
    /// Ctrl-C was pressed while there was nothing to end.
    warned: bool,
    summary: Summary,
    /// What the summary is of: the answer and its tokens.
    of: Option<(usize, usize)>,
}

impl ChatScreen {
    /// Of a chat.
    #[must_use]
    pub fn new(chat: SharedChat) -> Self {
        let (input, summary) = (Input::default(), Summary::default());
        Self { chat, input, scrolled: 0, warned: false, summary, of: None }
    }

    fn chat(&self) -> Ref<'_, ChatState> {
        self.chat.borrow()
    }

    fn send(&mut self) -> Reply {
        let (taken, leave) = self.chat.borrow_mut().typed(self.input.text());
        if taken {
            self.input.sent();
            self.scrolled = 0;
        }
        if leave { Reply::Quit } else { Reply::Done }
    }

    fn scroll(&mut self, up: bool, lines: usize) -> Reply {
        self.scrolled =
            if up { self.scrolled + lines } else { self.scrolled.saturating_sub(lines) };
        Reply::Done
    }
}

impl Screen for ChatScreen {
    fn id(&self) -> ScreenId {
        ScreenId::Chat
    }

    fn update(&mut self, world: &World) {
        let Some(run) = world.runs.last() else { return };
        let of = Some((world.runs.len(), run.steps().len()));
        if self.of != of {
            self.summary = Summary::of(run.steps());
            self.of = of;
        }
    }

    fn types(&self) -> bool {
        true
    }

    fn on_key(&mut self, key: &KeyEvent, _world: &mut World) -> Reply {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if !(control && key.code == KeyCode::Char('c')) {
            self.warned = false;
        }
        if control && key.code == KeyCode::Char('d') && self.input.text().is_empty() {
            return Reply::Quit;
        }
        if self.input.on_key(key) { Reply::Done } else { Reply::Passed }
    }

    fn on_action(&mut self, action: Action, _world: &mut World) -> Reply {
        match action {
            Action::Send => return self.send(),
            Action::Back if self.chat.borrow_mut().cancel() => {}
            Action::Back if self.scrolled > 0 => self.scrolled = 0,
            Action::Back => self.input.clear(),
            Action::PageUp => return self.scroll(true, PAGE),
            Action::PageDown => return self.scroll(false, PAGE),
            _ => return Reply::Passed,
        }
        Reply::Done
    }

    fn on_mouse(&mut self, mouse: &MouseEvent, _area: Rect, _world: &mut World) -> Reply {
        match mouse.kind {
            MouseEventKind::ScrollUp => self.scroll(true, WHEEL),
            MouseEventKind::ScrollDown => self.scroll(false, WHEEL),
            _ => Reply::Passed,
        }
    }

    fn on_interrupt(&mut self) -> Reply {
        let mut chat = self.chat.borrow_mut();
        if chat.cancel() {
            return Reply::Done;
        }
        if self.warned || chat.answering() || chat.ready.is_none() || chat.end.is_some() {
            chat.interrupted = true;
            return Reply::Quit;
        }
        self.warned = true;
        chat.note("Ctrl-C again leaves, and so does /quit");
        Reply::Done
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, world: &World, theme: Theme) {
        draw::chat(frame, area, self, world, theme);
    }
}
