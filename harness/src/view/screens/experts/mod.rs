//! The screen `Experts`: which experts the tokens use, which of them are in memory, which had to be read.

mod draw;
mod field;
mod history;
mod over_time;
mod tally;

use ratatui::Frame;
use ratatui::crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

pub use self::history::History;
use self::over_time::OverTime;
pub use self::tally::{HALF_LIFE, Known, Tally, Use};
use super::{Reply, Screen, ScreenId};
use crate::view::keys::Action;
use crate::view::theme::Theme;
use crate::view::world::{RunData, World};

/// Look-ups between two drawings, so that a jump through 100,000 tokens leaves the viewer alive: about a twentieth of
/// a second.
const LOOK_UPS: u64 = 1 << 20;
/// Experts and layers that a page key goes.
const PAGE: usize = 8;

/// Which uses count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Counting {
    /// All of them.
    #[default]
    All,
    /// Those of the last tokens.
    Last(usize),
    /// All, half as much after [`HALF_LIFE`] tokens.
    Decayed,
}

impl Counting {
    fn next(self) -> Self {
        match self {
            Self::All => Self::Last(64),
            Self::Last(64) => Self::Last(8),
            Self::Last(_) => Self::Decayed,
            Self::Decayed => Self::All,
        }
    }

    /// In words.
    #[must_use]
    pub fn describe(self) -> String {
        match self {
            Self::All => "all tokens".to_owned(),
            Self::Last(tokens) => format!("last {tokens} tokens"),
            Self::Decayed => format!("decayed, half after {HALF_LIFE} tokens"),
        }
    }
}

/// How experts are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Look {
    /// As many as possible: a dot an expert, unless there is room for a letter each.
    #[default]
    Overview,
    /// A letter each, around the cursor.
    CloseUp,
    /// The cursor's layer, token by token.
    OverTime,
}

/// What a dot of the overview means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dots {
    /// A use that counts.
    #[default]
    Used,
    /// Residency.
    Resident,
}

/// Its state.
#[derive(Debug, Default)]
pub struct ExpertsScreen {
    layer: usize,
    expert: usize,
    counting: Counting,
    look: Look,
    dots: Dots,
    history: History,
    /// The tally is where the playhead is.
    there: bool,
    over_time: OverTime,
    /// Uses of the last tokens, when these are what counts: layer-major.
    recent: Vec<u32>,
}

impl ExpertsScreen {
    /// Layer (among those with routes) and expert under the cursor, from 0.
    #[must_use]
    pub fn cursor(&self) -> (usize, usize) {
        (self.layer, self.expert)
    }

    /// Which uses count.
    #[must_use]
    pub fn counting(&self) -> Counting {
        self.counting
    }

    /// How experts are drawn.
    #[must_use]
    pub fn look(&self) -> Look {
        self.look
    }

    /// What is known of the experts; `None` without routes.
    #[must_use]
    pub fn tally(&self) -> Option<&Tally> {
        self.history.tally()
    }

    /// The uses that count of an expert.
    #[must_use]
    pub fn uses(&self, run: &RunData, layer: usize, expert: usize) -> f64 {
        let Some(tally) = self.tally() else { return 0.0 };
        match self.counting {
            Counting::All => f64::from(tally.of(layer, expert).count),
            Counting::Decayed => f64::from(tally.decayed(layer, expert)),
            Counting::Last(_) => {
                let at = layer * run.routes.trace().n_expert as usize + expert;
                f64::from(self.recent.get(at).copied().unwrap_or(0))
            }
        }
    }

    fn count_recent(&mut self, run: &RunData) {
        let (Counting::Last(tokens), Some(tally)) = (self.counting, self.history.tally()) else {
            return;
        };
        let trace = run.routes.trace();
        let n_expert = trace.n_expert as usize;
        self.recent.clear();
        self.recent.resize(trace.layers.len() * n_expert, 0);
        let end = tally.tokens();
        let events = run.routes.tokens_in(end.saturating_sub(tokens)..end);
        for event in events.filter(|e| e.phase == bmoe_trace::record::Phase::Decode) {
            for expert in event.experts {
                self.recent[event.layer * n_expert + usize::from(*expert)] += 1;
            }
        }
    }
}

/// Layers and experts of the run.
fn size(world: &World) -> (usize, usize) {
    world.run().map_or((0, 0), |run| {
        let trace = run.routes.trace();
        (trace.layers.len(), trace.n_expert as usize)
    })
}

impl Screen for ExpertsScreen {
    fn id(&self) -> ScreenId {
        ScreenId::Experts
    }

    fn update(&mut self, world: &World) {
        let (layers, experts) = size(world);
        self.layer = self.layer.min(layers.saturating_sub(1));
        self.expert = self.expert.min(experts.saturating_sub(1));
        let Some(run) = world.run() else { return };
        let index = world.selected();
        self.there = self.history.go(index, run, world.shown_tokens(), LOOK_UPS);
        self.count_recent(run);
        if self.look == Look::OverTime
            && let Some(tally) = self.history.tally()
        {
            self.over_time.go(index, run, self.layer, tally.tokens(), LOOK_UPS);
        }
    }

    fn on_action(&mut self, action: Action, world: &mut World) -> Reply {
        let (layers, experts) = size(world);
        let (bottom, right) = (layers.saturating_sub(1), experts.saturating_sub(1));
        match action {
            Action::Up if self.look == Look::OverTime => {
                self.expert = self.expert.saturating_sub(1);
            }
            Action::Down if self.look == Look::OverTime => {
                self.expert = (self.expert + 1).min(right);
            }
            Action::PageUp if self.look == Look::OverTime => {
                self.expert = self.expert.saturating_sub(PAGE);
            }
            Action::PageDown if self.look == Look::OverTime => {
                self.expert = (self.expert + PAGE).min(right);
            }
            // Layers are beside each other there.
            Action::Left if self.look == Look::OverTime => {
                self.layer = self.layer.saturating_sub(1);
            }
            Action::Right if self.look == Look::OverTime => {
                self.layer = (self.layer + 1).min(bottom);
            }
            Action::Up => self.layer = self.layer.saturating_sub(1),
            Action::Down => self.layer = (self.layer + 1).min(bottom),
            Action::PageUp => self.layer = self.layer.saturating_sub(PAGE),
            Action::PageDown => self.layer = (self.layer + PAGE).min(bottom),
            Action::Left => self.expert = self.expert.saturating_sub(1),
            Action::Right => self.expert = (self.expert + 1).min(right),
            Action::Mode => self.counting = self.counting.next(),
            Action::Dots => {
                self.dots = match self.dots {
                    Dots::Used => Dots::Resident,
                    Dots::Resident => Dots::Used,
                };
            }
            Action::Open => {
                self.look = match self.look {
                    Look::Overview => Look::CloseUp,
                    Look::CloseUp | Look::OverTime => Look::Overview,
                };
            }
            Action::Expand => {
                self.look = match self.look {
                    Look::OverTime => Look::Overview,
                    Look::Overview | Look::CloseUp => Look::OverTime,
                };
            }
            Action::Back if self.look != Look::Overview => self.look = Look::Overview,
            _ => return Reply::Passed,
        }
        Reply::Done
    }

    fn on_mouse(&mut self, mouse: &MouseEvent, area: Rect, world: &mut World) -> Reply {
        let at = Position::new(mouse.column, mouse.row);
        let Some(run) = world.run() else { return Reply::Passed };
        if mouse.kind != MouseEventKind::Down(MouseButton::Left) {
            return Reply::Passed;
        }
        match draw::expert_at(area, at, self, run) {
            Some((layer, expert)) => {
                (self.layer, self.expert) = (layer, expert);
                Reply::Done
            }
            None => Reply::Passed,
        }
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, world: &World, theme: Theme) {
        draw::experts(frame, area, self, world, theme);
    }
}
