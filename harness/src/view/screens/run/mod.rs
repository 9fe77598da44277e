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
    /// What the summary is of: the run, the steps that are shown, all that were there, and whether more will come.
    of: Option<(usize, usize, usize, bool)>,
    /// The steps that the spread is of.
    spread_of: usize,
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
        let over = world.run().is_none_or(|run| run.over);
        let (selected, shown) = (world.selected(), world.shown_tokens());
        let of = Some((selected, shown, all, over));
        if self.of == of {
            return;
        }
        let same_run = self.of.is_some_and(|(run, ..)| run == selected);
        // The spread follows a run in progress in steps of a sixty-fourth.
        let few = shown >= self.spread_of && shown - self.spread_of < shown.div_ceil(64);
        if same_run && !over && few {
            self.summary.go_on(world.shown());
        } else {
            self.summary = Summary::of(world.shown());
            self.spread_of = shown;
        }
        self.of = of;
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
