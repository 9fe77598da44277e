//! The drawing of the screen `Chat`.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

use super::{ChatScreen, ChatState, Entry};
use crate::chat::typed::KNOBS;
use crate::view::figures::{UNKNOWN, number, three};
use crate::view::screens::run::Means;
use crate::view::theme::{Role, Theme};
use crate::view::world::World;
use crate::view::wrap::wrap;

/// Columns of figures and settings.
const BESIDE: u16 = 30;
/// Rows of the figures, their border included.
const FIGURES: u16 = 11;

pub(super) fn chat(
    frame: &mut Frame<'_>,
    area: Rect,
    screen: &ChatScreen,
    world: &World,
    theme: Theme,
) {
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(BESIDE)]).areas(area);
    let [said, typed] = Layout::vertical([Constraint::Fill(1), Constraint::Length(3)]).areas(left);
    let [figures, knobs] =
        Layout::vertical([Constraint::Length(FIGURES), Constraint::Fill(1)]).areas(right);
    draw_conversation(frame, said, screen, theme);
    draw_input(frame, typed, screen, theme);
    draw_figures(frame, figures, screen, world, theme);
    draw_knobs(frame, knobs, &screen.chat(), theme);
}

fn panel<'a>(title: impl Into<Line<'a>>, theme: Theme) -> Block<'a> {
    Block::bordered().title(title).border_style(theme.style(Role::Border))
}

/// The lines of an entry; marks and not colours tell who speaks.
fn lines(entry: &Entry, thoughts_shown: bool, width: u16, theme: Theme) -> Vec<Line<'static>> {
    let part = |mark: &'static str, text: &str, role: Role| -> Vec<Line<'static>> {
        wrap(text, width.saturating_sub(2))
            .into_iter()
            .enumerate()
            .map(|(index, line)| {
                // A thought is marked all along, others where they begin.
                let mark = if index == 0 || mark == "┊ " { mark } else { "  " };
                Line::styled(format!("{mark}{line}"), theme.style(role))
            })
            .collect()
    };
    match entry {
        Entry::Message(text) => {
            let mut lines = vec![Line::default()];
            lines.extend(part("› ", text, Role::Person));
            lines
        }
        Entry::Note(text) => part("– ", text, Role::Dim),
        Entry::Trouble(text) => part("! ", text, Role::Bad),
        Entry::Answer { thoughts, text, over } => {
            let mut lines = Vec::new();
            if !thoughts.is_empty() {
                let (count, text) = match thoughts_shown {
                    true => (0, thoughts.trim_end()),
                    false => (thoughts.chars().count(), ""),
                };
                if count == 0 {
                    lines.extend(part("┊ ", text, Role::Thought));
                } else {
                    let hidden = format!("thoughts of {count} letters");
                    lines.extend(part("┊ ", &hidden, Role::Thought));
                }
            }
            if !text.is_empty() {
                lines.extend(part("  ", text.trim_end_matches('\n'), Role::Text));
            } else if !over && thoughts.is_empty() {
                lines.extend(part("  ", "…", Role::Dim));
            }
            lines
        }
    }
}

fn draw_conversation(frame: &mut Frame<'_>, area: Rect, screen: &ChatScreen, theme: Theme) {
    let chat = screen.chat();
    let inner = Block::bordered().inner(area);
    let room = usize::from(inner.height);
    // From the end backwards, only as far as it is shown.
    let mut shown: Vec<Line<'static>> = Vec::new();
    for entry in chat.entries.iter().rev() {
        let mut of_entry = lines(entry, chat.settings.thoughts, inner.width, theme);
        of_entry.extend(std::mem::take(&mut shown));
        shown = of_entry;
        if shown.len() >= room + screen.scrolled {
            break;
        }
    }
    let below = screen.scrolled.min(shown.len().saturating_sub(room));
    let end = shown.len() - below;
    let mut title = match &chat.ready {
        _ if chat.end.is_some() => "the engine has ended".to_owned(),
        Some(ready) => format!("{}, top-{}", ready.arch, ready.n_expert_used),
        None => "the model is being loaded".to_owned(),
    };
    if below > 0 {
        title.push_str(&format!("; {below} lines below"));
    }
    let mut visible: Vec<Line<'static>> = shown.drain(end.saturating_sub(room)..end).collect();
    if chat.entries.is_empty() && chat.ready.is_some() {
        visible.push(Line::styled(
            "Say something; /help says what can be done.",
            theme.style(Role::Dim),
        ));
    }
    frame.render_widget(Paragraph::new(visible).block(panel(title, theme)), area);
}

fn draw_input(frame: &mut Frame<'_>, area: Rect, screen: &ChatScreen, theme: Theme) {
    let chat = screen.chat();
    let title = match (chat.answering(), chat.cancelled) {
        (true, true) => "ending the answer",
        (true, false) => "answering; esc ends it",
        (false, _) => "your message",
    };
    let block = panel(title, theme);
    let inner = block.inner(area);
    let (text, cursor) = screen.input.shown(inner.width);
    frame.render_widget(Paragraph::new(text.to_owned()).block(block), area);
    frame.set_cursor_position(Position::new(inner.x + cursor, inner.y));
}

fn draw_figures(
    frame: &mut Frame<'_>,
    area: Rect,
    screen: &ChatScreen,
    world: &World,
    theme: Theme,
) {
    let chat = screen.chat();
    let (now, mean) = (&screen.summary.now, &screen.summary.mean);
    let run = world.runs.last();
    let row = |label: &'static str, of: fn(&Means) -> Option<f64>, scale: f64| {
        let figure = |means: &Means| three(of(means).map(|v| v * scale));
        Line::from(vec![
            Span::styled(format!("{label:<12}"), theme.style(Role::Dim)),
            Span::styled(format!("{:>8}", figure(now)), theme.style(Role::Strong)),
            Span::raw(format!("{:>8}", figure(mean))),
        ])
    };
    let one = |label: &'static str, value: String| {
        Line::from(vec![
            Span::styled(format!("{label:<12}"), theme.style(Role::Dim)),
            Span::raw(format!("{value:>16}")),
        ])
    };
    let steps = run.map_or(0, |run| run.steps().len());
    let most = run.and_then(|run| run.n_predict).map_or(UNKNOWN.to_owned(), |n| n.to_string());
    let last = chat.last.as_ref();
    let context = match (last, &chat.ready) {
        (Some(done), Some(ready)) => format!("{} of {}", done.n_past, ready.n_ctx),
        (None, Some(ready)) => format!("0 of {}", ready.n_ctx),
        _ => UNKNOWN.to_owned(),
    };
    let hits = run.and_then(|run| run.steps().last()).and_then(|step| step.cumulative_hit_rate);
    let cache = last.filter(|done| done.cache_budget_mib > 0.0).map_or(UNKNOWN.to_owned(), |d| {
        format!("{:.0} of {:.0} MiB", d.cache_resident_mib, d.cache_budget_mib)
    });
    let lines = vec![
        row("tok/s", |m| m.tok_s, 1.0),
        row("compute, ms", |m| m.compute_ns, 1e-6),
        row("I/O, ms", |m| m.io_wait_ns, 1e-6),
        row("MiB read", |m| m.read_bytes, 1.0 / 1024.0 / 1024.0),
        one("hit %, all", number(hits.map(|h| h * 100.0), 1)),
        one("cache", cache),
        one("tokens", format!("{steps} of {most}")),
        one(
            "prompt",
            last.map_or(UNKNOWN.to_owned(), |d| format!("{} new, {} kept", d.n_prompt, d.n_reused)),
        ),
        one("context", context),
    ];
    let title = "answer: now, mean";
    frame.render_widget(Paragraph::new(lines).block(panel(title, theme)), area);
}

fn draw_knobs(frame: &mut Frame<'_>, area: Rect, chat: &ChatState, theme: Theme) {
    let settings = chat.settings;
    let values = [
        settings.think.to_string(),
        settings.n_predict.to_string(),
        if settings.thoughts { "on" } else { "off" }.to_owned(),
    ];
    let mut lines = Vec::new();
    for (knob, value) in KNOBS.iter().zip(values) {
        let command = knob.typed.split(' ').next().unwrap_or_default();
        lines.push(Line::from(vec![
            Span::styled(format!("{command} "), theme.style(Role::Strong)),
            Span::raw(value),
        ]));
        for line in wrap(knob.does, area.width.saturating_sub(4)) {
            lines.push(Line::styled(format!("  {line}"), theme.style(Role::Dim)));
        }
    }
    frame.render_widget(Paragraph::new(lines).block(panel("for the next message", theme)), area);
}
