//! What stands around every screen: the title with the screens, the bar of the playhead, the keys, the help.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::{SMALLEST, row};
use crate::view::figures::number;
use crate::view::keys::{self, Action};
use crate::view::screens::ScreenId;
use crate::view::theme::{Role, Theme};
use crate::view::world::{Mode, World};

/// Where things were drawn.
#[derive(Debug, Clone, Default)]
pub(super) struct Chrome {
    /// The screen's own area.
    pub(super) body: Rect,
    tabs: Vec<(Rect, ScreenId)>,
    bar: Rect,
}

impl Chrome {
    pub(super) fn screen_at(&self, at: Position) -> Option<ScreenId> {
        self.tabs.iter().find(|(area, _)| area.contains(at)).map(|(_, id)| *id)
    }

    /// How far along the playhead's bar, 0 to 1.
    pub(super) fn share_at(&self, at: Position) -> Option<f64> {
        let wide = f64::from(self.bar.width.saturating_sub(1).max(1));
        self.bar.contains(at).then(|| f64::from(at.x - self.bar.x) / wide)
    }
}

pub(super) fn too_small(frame: &mut Frame<'_>, area: Rect) {
    let (width, height) = SMALLEST;
    let text = format!(
        "The terminal is too small: {} x {}, and the viewer needs {width} x {height}. Enlarge it, or press q.",
        area.width, area.height
    );
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
}

pub(super) fn draw(
    frame: &mut Frame<'_>,
    world: &World,
    screens: &[ScreenId],
    shown: ScreenId,
    theme: Theme,
) -> Chrome {
    let played = shown.is_played();
    let [title, body, bar, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(u16::from(played)),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let tabs = self::title(frame, title, world, screens, shown, theme);
    let bar = if played { self::playhead(frame, bar, world, theme) } else { Rect::default() };
    self::footer(frame, footer, world, shown, theme);
    Chrome { body, tabs, bar }
}

/// The screens, then what is looked at.
fn title(
    frame: &mut Frame<'_>,
    area: Rect,
    world: &World,
    screens: &[ScreenId],
    shown: ScreenId,
    theme: Theme,
) -> Vec<(Rect, ScreenId)> {
    let mut spans = vec![Span::styled("bmoe ", theme.style(Role::Strong))];
    let mut x = area.x + 5;
    let mut tabs = Vec::new();
    for id in screens {
        let text = match screens.len() {
            1 => format!(" {} ", id.name()),
            _ => format!(" {} {} ", id.number(), id.name()),
        };
        let wide = text.len() as u16;
        tabs.push((Rect { x, width: wide, ..row(area, 0) }, *id));
        x += wide;
        let role = if *id == shown { Role::Cursor } else { Role::Dim };
        spans.push(Span::styled(text, theme.style(role)));
    }
    frame.render_widget(Line::from(spans), area);
    let rest =
        Rect { x: (x + 1).min(area.right()), width: area.right().saturating_sub(x + 1), ..area };
    let mode = match world.mode {
        Mode::Live => Span::styled(" ● live", theme.style(Role::Good)),
        Mode::Replay => Span::styled(" replay", theme.style(Role::Dim)),
    };
    let line = Line::from(vec![Span::styled(world.name.as_str(), theme.style(Role::Text)), mode]);
    // What does not fit is cut at its beginning: the end of a path says more.
    frame.render_widget(Paragraph::new(line).alignment(Alignment::Right), rest);
    tabs
}

/// `▶ 1x ━━━━━●───── token 12 of 40, 1.2 of 4.0 s`; returns where the bar is.
fn playhead(frame: &mut Frame<'_>, area: Rect, world: &World, theme: Theme) -> Rect {
    let Some(run) = world.run() else {
        let text = "nothing has begun yet";
        frame.render_widget(Span::styled(text, theme.style(Role::Dim)), area);
        return Rect::default();
    };
    let head = &world.playhead;
    let state = match (head.follows(), head.moves(), run.over) {
        (true, _, false) => "● live  ".to_owned(),
        (_, true, _) => format!("▶ {:<6}", format!("{}x", head.speed())),
        _ => format!("‖ {:<6}", format!("{}x", head.speed())),
    };
    let (at, of) = (head.tokens(run), run.steps().len());
    let seconds = |ns: u64| number(Some(ns as f64 / 1e9), 1);
    let time = if run.untimed() {
        "times not recorded".to_owned()
    } else {
        format!("{} of {} s", seconds(head.at_ns(run)), seconds(run.decode_ns()))
    };
    let asked = run.n_predict.filter(|n| !run.over && *n as usize > of);
    let asked = asked.map(|n| format!(" ({n} asked for)")).unwrap_or_default();
    let figures = format!(" token {at} of {of}{asked}, {time}");
    let wide = area.width.saturating_sub((state.chars().count() + figures.chars().count()) as u16);
    let done = if run.decode_ns() == 0 {
        0
    } else {
        (u128::from(head.at_ns(run)) * u128::from(wide.saturating_sub(1))
            / u128::from(run.decode_ns())) as usize
    };
    let bar: (String, String) =
        ("━".repeat(done), "─".repeat((wide as usize).saturating_sub(done + 1)));
    let line = Line::from(vec![
        Span::styled(state.clone(), theme.style(Role::Strong)),
        Span::styled(bar.0, theme.style(Role::Compute)),
        Span::styled("●", theme.style(Role::Strong)),
        Span::styled(bar.1, theme.style(Role::Border)),
        Span::styled(figures, theme.style(Role::Dim)),
    ]);
    frame.render_widget(line, area);
    Rect { x: area.x + state.chars().count() as u16, width: wide, ..area }
}

/// The keys that matter most, or what a person should know.
fn footer(frame: &mut Frame<'_>, area: Rect, world: &World, shown: ScreenId, theme: Theme) {
    let mut spans = Vec::new();
    for key in keys::of(shown).filter(|key| !key.footer.is_empty()) {
        spans.push(Span::styled(key.label, theme.style(Role::Strong)));
        spans.push(Span::styled(format!(" {}  ", key.footer), theme.style(Role::Dim)));
    }
    let line = Line::from(spans);
    let wide = line.width() as u16;
    frame.render_widget(line, area);
    if let Some(notice) = &world.notice {
        let x = (area.x + wide).min(area.right());
        let rest = Rect { x, width: area.right() - x, ..area };
        frame.render_widget(Span::styled(notice.as_str(), theme.style(Role::Warn)), rest);
    }
}

/// All keys of the screen, scrolled as far as there are more than fit.
pub(super) fn help(
    frame: &mut Frame<'_>,
    area: Rect,
    screens: &[ScreenId],
    shown: ScreenId,
    scrolled: &mut u16,
    theme: Theme,
) {
    let there = |action: Action| match action {
        Action::Show(id) => screens.len() > 1 && screens.contains(&id),
        Action::NextScreen | Action::PreviousScreen => screens.len() > 1,
        _ => true,
    };
    let lines: Vec<Line<'_>> = keys::of(shown)
        .filter(|key| there(key.action))
        .map(|key| {
            Line::from(vec![
                Span::styled(format!("{:>10}  ", key.label), theme.style(Role::Strong)),
                Span::raw(key.help),
            ])
        })
        .collect();
    let height = (lines.len() as u16 + 2).min(area.height);
    let width = 72.min(area.width);
    let window = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let hidden = (lines.len() as u16).saturating_sub(height - 2);
    *scrolled = (*scrolled).min(hidden);
    let closes = if shown.is_typed() { "esc" } else { "?" };
    let more = if hidden > 0 { ", ↓ ↑ show more" } else { "" };
    let bottom = format!(" {closes} closes{more} ");
    let block = Block::bordered()
        .title(format!(" {}: keys ", shown.name()))
        .title_bottom(bottom)
        .border_style(theme.style(Role::Border));
    frame.render_widget(Clear, window);
    frame.render_widget(
        Paragraph::new(lines).block(block).scroll((*scrolled, 0)).style(Style::new()),
        window,
    );
}
