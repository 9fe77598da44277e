//! The screen `Matrix`: all cells with what came of them.

mod draw;

use ratatui::Frame;
use ratatui::crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::{Reply, Screen, ScreenId};
use crate::view::keys::Action;
use crate::view::theme::Theme;
use crate::view::world::{CellView, World};

/// Rows that a page key goes.
const PAGE: usize = 10;

/// Its state.
#[derive(Debug, Default)]
pub struct MatrixScreen {
    cursor: usize,
    /// The cell's attempts are shown.
    details: bool,
}

impl MatrixScreen {
    /// The cell under the cursor, from 0.
    #[must_use]
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// Whether the attempts of the cell are shown.
    #[must_use]
    pub fn shows_details(&self) -> bool {
        self.details
    }

    fn cell<'a>(&self, world: &'a World) -> Option<&'a CellView> {
        world.cells.get(self.cursor)
    }

    /// Shows the last run of the cell.
    fn show_run(&self, world: &mut World) -> Reply {
        let Some(id) = self.cell(world).map(|cell| cell.id.clone()) else { return Reply::Done };
        match world.runs.iter().rposition(|run| run.key.cell == id) {
            Some(index) => {
                world.select(index);
                Reply::Show(ScreenId::Run)
            }
            None => Reply::Done,
        }
    }
}

impl Screen for MatrixScreen {
    fn id(&self) -> ScreenId {
        ScreenId::Matrix
    }

    fn update(&mut self, world: &World) {
        self.cursor = self.cursor.min(world.cells.len().saturating_sub(1));
    }

    fn on_action(&mut self, action: Action, world: &mut World) -> Reply {
        let last = world.cells.len().saturating_sub(1);
        match action {
            Action::Up => self.cursor = self.cursor.saturating_sub(1),
            Action::Down => self.cursor = (self.cursor + 1).min(last),
            Action::PageUp => self.cursor = self.cursor.saturating_sub(PAGE),
            Action::PageDown => self.cursor = (self.cursor + PAGE).min(last),
            Action::First => self.cursor = 0,
            Action::Last => self.cursor = last,
            Action::Open if self.details => return self.show_run(world),
            Action::Open => self.details = !world.cells.is_empty(),
            Action::Back if self.details => self.details = false,
            _ => return Reply::Passed,
        }
        Reply::Done
    }

    fn on_mouse(&mut self, mouse: &MouseEvent, area: Rect, world: &mut World) -> Reply {
        let at = Position::new(mouse.column, mouse.row);
        if mouse.kind != MouseEventKind::Down(MouseButton::Left) {
            return Reply::Passed;
        }
        match draw::cell_at(area, at, self, world) {
            Some(cell) if cell == self.cursor => self.details = !self.details,
            Some(cell) => self.cursor = cell,
            None => {}
        }
        Reply::Done
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, world: &World, theme: Theme) {
        draw::matrix(frame, area, self, world, theme);
    }
}
