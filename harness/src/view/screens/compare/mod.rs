//! The screen `Compare`: two runs side by side, token by token.

mod draw;

use ratatui::Frame;
use ratatui::layout::Rect;

use super::run::{Means, NOW_TOKENS};
use super::{Reply, Screen, ScreenId};
use crate::view::keys::Action;
use crate::view::theme::Theme;
use crate::view::world::{RunData, Step, World};

/// Which tokens the figures are means of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Span {
    /// All tokens up to the playhead.
    #[default]
    All,
    /// The last few.
    Now,
    /// The token at the playhead alone.
    One,
}

/// Whether both runs wrote the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Texts {
    /// It is not known of both.
    #[default]
    NotKnown,
    /// They are the same up to the playhead.
    Same,
    /// They are the same as a whole; which token wrote what is not known.
    SameWhole,
    /// They differ, first by what this token (from 1) wrote; `None` = it is not known which.
    Differ(Option<usize>),
}

/// Both runs over the tokens that both have.
#[derive(Debug, Default)]
pub struct Pair {
    /// Tokens that are compared: up to the playhead of the first run, as far as the second one goes.
    pub tokens: usize,
    /// Means of the first run.
    pub a: Means,
    /// Means of the second.
    pub b: Means,
    /// Their texts.
    pub texts: Texts,
}

impl Pair {
    /// Of the first `tokens` tokens of both, or what there is of them.
    #[must_use]
    pub fn of(a: &RunData, b: &RunData, tokens: usize, span: Span) -> Self {
        let tokens = tokens.min(a.steps().len()).min(b.steps().len());
        let counted = match span {
            Span::All => tokens,
            Span::Now => NOW_TOKENS,
            Span::One => 1,
        };
        let part = |steps: &[Step]| Means::of(&steps[tokens.saturating_sub(counted)..tokens]);
        Self { tokens, a: part(a.steps()), b: part(b.steps()), texts: texts(a, b, tokens) }
    }
}

fn texts(a: &RunData, b: &RunData, tokens: usize) -> Texts {
    let ((text_a, known_a), (text_b, known_b)) = (a.text(tokens), b.text(tokens));
    if !known_a && !known_b {
        return if text_a == text_b { Texts::SameWhole } else { Texts::Differ(None) };
    }
    // Known by token it is said of a whole run, too.
    if !known_a || !known_b {
        let whole = |run: &RunData| run.over && run.steps().len() == tokens;
        return match whole(if known_a { a } else { b }) {
            true if text_a == text_b => Texts::SameWhole,
            true => Texts::Differ(None),
            false => Texts::NotKnown,
        };
    }
    if text_a == text_b {
        return if text_a.is_empty() { Texts::NotKnown } else { Texts::Same };
    }
    // Texts that differ once stay different.
    let (mut same, mut differ) = (0, tokens);
    while differ - same > 1 {
        let middle = same + (differ - same) / 2;
        if a.text(middle).0 == b.text(middle).0 { same = middle } else { differ = middle }
    }
    Texts::Differ(Some(differ))
}

/// Its state. The first run is the selected one, whose playhead counts.
#[derive(Debug, Default)]
pub struct CompareScreen {
    /// The second run; `None` = the first one that isn't selected.
    other: Option<usize>,
    span: Span,
    pair: Pair,
    /// What the pair is of.
    of: Option<(usize, usize, usize, usize, Span)>,
}

impl CompareScreen {
    /// The second run.
    #[must_use]
    pub fn other(&self, world: &World) -> Option<usize> {
        let first = (0..world.runs.len()).find(|index| *index != world.selected());
        self.other.filter(|index| *index < world.runs.len()).or(first)
    }

    /// What is compared.
    #[must_use]
    pub fn pair(&self) -> &Pair {
        &self.pair
    }

    /// Which tokens the figures are means of.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }
}

impl Screen for CompareScreen {
    fn id(&self) -> ScreenId {
        ScreenId::Compare
    }

    fn update(&mut self, world: &World) {
        let (Some(a), Some(other)) = (world.run(), self.other(world)) else { return };
        let Some(b) = world.runs.get(other) else { return };
        let (tokens, all) = (world.shown_tokens(), b.steps().len());
        let of = Some((world.selected(), other, tokens, all, self.span));
        if self.of != of {
            self.pair = Pair::of(a, b, tokens, self.span);
            self.of = of;
        }
    }

    fn on_action(&mut self, action: Action, world: &mut World) -> Reply {
        let count = world.runs.len();
        match action {
            Action::PickA if count > 0 => world.select((world.selected() + 1) % count),
            Action::PickB if count > 0 => {
                self.other = self.other(world).map(|index| (index + 1) % count);
            }
            Action::Mode => {
                self.span = match self.span {
                    Span::All => Span::Now,
                    Span::Now => Span::One,
                    Span::One => Span::All,
                };
            }
            _ => return Reply::Passed,
        }
        Reply::Done
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, world: &World, theme: Theme) {
        let other = self.other(world).and_then(|index| Some((index, world.runs.get(index)?)));
        match (world.run(), other) {
            (Some(a), Some((index, b))) => draw::pair(
                frame,
                area,
                self,
                [(world.selected(), a), (index, b)],
                (world.runs.len(), world.shown_tokens()),
                theme,
            ),
            _ => draw::nothing(frame, area, world, theme),
        }
    }
}
