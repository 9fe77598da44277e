//! The screen `Compare`.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::Paragraph;

use super::{Reply, Screen, ScreenId};
use crate::view::keys::Action;
use crate::view::theme::Theme;
use crate::view::world::World;

/// Its state.
#[derive(Debug, Default)]
pub struct CompareScreen {}

impl Screen for CompareScreen {
    fn id(&self) -> ScreenId {
        ScreenId::Compare
    }

    fn on_action(&mut self, _action: Action, _world: &mut World) -> Reply {
        Reply::Passed
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, _world: &World, _theme: Theme) {
        frame.render_widget(Paragraph::new("Compare"), area);
    }
}
