//! The screens. Each keeps its state (a cursor, what is expanded, what was worked out) apart from its drawing, so
//! that keys can be tested without a terminal and drawings without keys.

pub mod chat;
pub mod compare;
pub mod experts;
pub mod matrix;
pub mod run;

use std::fmt::Debug;

use ratatui::Frame;
use ratatui::crossterm::event::{KeyEvent, MouseEvent};
use ratatui::layout::Rect;

use super::keys::Action;
use super::theme::Theme;
use super::world::World;

/// Which screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScreenId {
    /// One run.
    Run,
    /// All cells.
    Matrix,
    /// The experts of one run.
    Experts,
    /// Two runs.
    Compare,
    /// A conversation.
    Chat,
}

impl ScreenId {
    /// Every screen, in their order.
    pub const ALL: [Self; 5] = [Self::Run, Self::Matrix, Self::Experts, Self::Compare, Self::Chat];

    /// The key that shows it.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Run => 1,
            Self::Matrix => 2,
            Self::Experts => 3,
            Self::Compare => 4,
            Self::Chat => 5,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Run => "Run",
            Self::Matrix => "Matrix",
            Self::Experts => "Experts",
            Self::Compare => "Compare",
            Self::Chat => "Chat",
        }
    }

    /// Whether letters are text there.
    #[must_use]
    pub const fn is_typed(self) -> bool {
        matches!(self, Self::Chat)
    }

    /// Whether it shows runs up to the playhead.
    #[must_use]
    pub const fn is_played(self) -> bool {
        matches!(self, Self::Run | Self::Experts | Self::Compare)
    }
}

/// What a screen made of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reply {
    /// Nothing: the frame may do something with it.
    #[default]
    Passed,
    /// What it was meant for.
    Done,
    /// Show another screen.
    Show(ScreenId),
    /// Leave the viewer.
    Quit,
}

/// A screen.
pub trait Screen: Debug {
    /// Which one.
    fn id(&self) -> ScreenId;

    /// Brings what was worked out up to date with the world; before every drawing of this screen, and cheap when
    /// nothing changed.
    fn update(&mut self, world: &World) {
        let _ = world;
    }

    /// A key of the table. What is [`Reply::Passed`] means what it means everywhere: playing, changing screens.
    fn on_action(&mut self, action: Action, world: &mut World) -> Reply;

    /// Whether keys are typed text now: then they come to [`Self::on_key`] instead of the table.
    fn types(&self) -> bool {
        false
    }

    /// A key while text is typed. Passed ones are looked up in the table.
    fn on_key(&mut self, key: &KeyEvent, world: &mut World) -> Reply {
        let _ = (key, world);
        Reply::Passed
    }

    /// The mouse, with the area that the screen was drawn into.
    fn on_mouse(&mut self, mouse: &MouseEvent, area: Rect, world: &mut World) -> Reply {
        let _ = (mouse, area, world);
        Reply::Passed
    }

    /// SIGINT, or Ctrl-C where keys are typed: `Passed` leaves the viewer.
    fn on_interrupt(&mut self) -> Reply {
        Reply::Passed
    }

    /// Draws it; the area is at least 80 x 21.
    fn draw(&self, frame: &mut Frame<'_>, area: Rect, world: &World, theme: Theme);
}
