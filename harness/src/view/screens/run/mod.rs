//! The screen `Run`: how fast, where the time goes, what is read, what memory is left, what is written.

mod draw;
mod summary;
pub(super) mod timeline;

use ratatui::Frame;
use ratatui::layout::Rect;

pub(super) use self::summary::NOW_TOKENS;
pub use self::summary::{Means, Summary};
use super::{Reply, Screen, ScreenId};
use crate::view::keys::Action;
use crate::view::theme::Theme;
use crate::view::world::World;

/// Its state: the figures of the steps that are shown.
#[derive(Debug, Default)]
pub struct RunScreen {
    summary: Summary,
    /// What the summary is of: the run, the steps that are shown, and all that were there.
    of: Option<(usize, usize, usize)>,
}

impl RunScreen {
    /// The figures.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }
}

impl Screen for RunScreen {
    fn id(&self) -> ScreenId {
        ScreenId::Run
    }

    fn update(&mut self, world: &World) {
        let all = world.run().map_or(0, |run| run.steps().len());
        let of = Some((world.selected(), world.shown_tokens(), all));
        if self.of != of {
            self.summary = Summary::of(world.shown());
            self.of = of;
        }
    }

    fn on_action(&mut self, _action: Action, _world: &mut World) -> Reply {
        Reply::Passed
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, world: &World, theme: Theme) {
        match world.run() {
            Some(run) => draw::run(frame, area, world, run, &self.summary, theme),
            None => draw::nothing(frame, area, world, theme),
        }
    }
}
