//! The drawing of the screen `Experts`.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

use super::field::{Field, LABELS, first};
use super::{Dots, ExpertsScreen, Known, Look, Tally};
use crate::view::figures::{bytes, number, percent};
use crate::view::theme::{Role, Theme};
use crate::view::world::{RunData, World};

/// Letters of the heat scale for experts that are in memory (or of which nobody knows), and for those that are not.
const IN_MEMORY: [char; 5] = ['_', '░', '▒', '▓', '█'];
const NOT_THERE: [char; 5] = [' ', '·', ':', '+', '#'];
const MISS: char = '!';

/// Rows of the panel of the cursor, its border included.
const DETAILS: u16 = 5;

struct Areas {
    head: Rect,
    panel: Rect,
    inside: Rect,
    details: Rect,
}

fn areas(area: Rect) -> Areas {
    let [head, panel, details] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(3), Constraint::Length(DETAILS)])
            .areas(area);
    Areas { head, panel, inside: Block::bordered().inner(panel), details }
}

fn field(inside: Rect, screen: &ExpertsScreen, run: &RunData) -> Field {
    let trace = run.routes.trace();
    let size = (trace.layers.len(), trace.n_expert as usize);
    Field::new(inside, screen.look, size, screen.cursor())
}

/// The layer and the expert at a place of the screen.
pub(super) fn expert_at(
    area: Rect,
    at: Position,
    screen: &ExpertsScreen,
    run: &RunData,
) -> Option<(usize, usize)> {
    let inside = areas(area).inside;
    if screen.look == Look::OverTime {
        let (first, shown) = rows(inside, screen, run);
        let row = usize::from(at.y.checked_sub(inside.y)?);
        return (inside.contains(at) && row < shown).then_some((screen.layer, first + row));
    }
    field(inside, screen, run).expert_at(at)
}

pub(super) fn experts(
    frame: &mut Frame<'_>,
    area: Rect,
    screen: &ExpertsScreen,
    world: &World,
    theme: Theme,
) {
    let dim = theme.style(Role::Dim);
    let Some(run) = world.run() else {
        let text = world.notice.as_deref().unwrap_or("there is no run yet");
        frame.render_widget(Paragraph::new(text).style(dim), area);
        return;
    };
    let areas = areas(area);
    let head = match &run.trouble {
        Some(trouble) => Span::styled(format!("  ! {trouble}"), theme.style(Role::Bad)),
        None => Span::styled(format!("  {}", run.model), dim),
    };
    let name = Span::styled(run.name.as_str(), theme.style(Role::Strong));
    frame.render_widget(Line::from(vec![name, head]), areas.head);
    let Some(tally) = screen.tally() else {
        let text = if run.over {
            "No routes were recorded of this run."
        } else {
            "No routes yet. Those of a run on a device come when it has ended."
        };
        let block = Block::bordered().border_style(theme.style(Role::Border));
        frame.render_widget(Paragraph::new(text).style(dim).block(block), areas.panel);
        return;
    };
    match screen.look {
        Look::OverTime => over_time(frame, areas.panel, screen, run, tally, theme),
        Look::Overview | Look::CloseUp => heat(frame, areas.panel, screen, run, tally, theme),
    }
    details(frame, areas.details, screen, world, run, tally, theme);
}

fn heat(
    frame: &mut Frame<'_>,
    panel: Rect,
    screen: &ExpertsScreen,
    run: &RunData,
    tally: &Tally,
    theme: Theme,
) {
    let field = field(Block::bordered().inner(panel), screen, run);
    let trace = run.routes.trace();
    let each =
        || (0..trace.layers.len()).flat_map(|l| (0..trace.n_expert as usize).map(move |e| (l, e)));
    let most = each().map(|(l, e)| screen.uses(run, l, e)).fold(0.0, f64::max);
    let mut title = format!("uses in {}, most {}", screen.counting.describe(), count(most));
    if let Some(part) = field.part() {
        title.push_str(&format!("; {part}"));
    }
    let block = Block::bordered()
        .title(title)
        .title_bottom(legend(&field, screen, tally, theme).right_aligned())
        .border_style(theme.style(Role::Border));
    frame.render_widget(block, panel);
    let buffer = frame.buffer_mut();
    labels(buffer, &field, screen, run, theme);
    for at in field.cells() {
        let (mut sign, mut share, mut missed, mut cursor) = (0, 0.0, false, false);
        let mut resident = None;
        for (layer, expert, bit) in field.experts_at(at) {
            let uses = screen.uses(run, layer, expert);
            share = f64::max(share, if most > 0.0 { uses / most } else { 0.0 });
            resident = tally.resident(layer, expert);
            missed |= tally.missed_now(layer, expert);
            cursor |= (layer, expert) == screen.cursor();
            let on = match screen.dots {
                Dots::Used => uses > 0.0,
                Dots::Resident => resident == Some(true),
            };
            sign |= if on { bit } else { 0 };
        }
        let letter = if field.has_letters() {
            match (missed, resident) {
                (true, _) => MISS,
                (false, Some(false)) => letter(&NOT_THERE, share),
                (false, None) if share == 0.0 => ' ',
                (false, _) => letter(&IN_MEMORY, share),
            }
        } else {
            char::from_u32(0x2800 + u32::from(sign)).unwrap_or(' ')
        };
        let mut style = match theme.heat(share) {
            Some(colour) => Style::new().fg(colour),
            None => theme.style(Role::Dim),
        };
        if missed {
            style = theme.style(Role::Bad).add_modifier(Modifier::REVERSED);
        }
        if cursor {
            style = theme.style(Role::Strong).add_modifier(Modifier::REVERSED);
        }
        buffer[at].set_char(letter).set_style(style);
    }
}

fn letter(scale: &[char; 5], share: f64) -> char {
    match share {
        share if share <= 0.0 => scale[0],
        share => scale[((share * 4.0).ceil() as usize).clamp(1, 4)],
    }
}

/// Decayed uses are no whole numbers.
fn count(uses: f64) -> String {
    number(Some(uses), usize::from(uses.fract() != 0.0))
}

fn legend(field: &Field, screen: &ExpertsScreen, tally: &Tally, theme: Theme) -> Line<'static> {
    let mark = |text: &'static str| Span::styled(text, theme.style(Role::Strong));
    if !field.has_letters() {
        let dot = match screen.dots {
            Dots::Used => " used  ",
            Dots::Resident => " in memory  ",
        };
        let miss = theme.style(Role::Bad).add_modifier(Modifier::REVERSED);
        return Line::from(vec![
            mark("⠶"),
            Span::raw(dot),
            Span::styled("⠶", miss),
            Span::raw(" one was read now  "),
        ]);
    }
    let mut spans = match tally.known() {
        Known::Nothing => vec![mark("░▒▓█"), Span::raw(" uses  ")],
        Known::NoCache => vec![mark("·:+#"), Span::raw(" uses  ")],
        Known::Replayed(_) | Known::AtUse => {
            vec![mark("_░▒▓█"), Span::raw(" in memory  "), mark("·:+#"), Span::raw(" not  ")]
        }
    };
    if tally.known() != Known::Nothing {
        spans.extend([Span::styled("!", theme.style(Role::Bad)), Span::raw(" read now  ")]);
    }
    Line::from(spans)
}

fn labels(buffer: &mut Buffer, field: &Field, screen: &ExpertsScreen, run: &RunData, theme: Theme) {
    let cursor = field.cell_of(screen.layer, screen.expert);
    let mut last = None;
    for at in field.cells() {
        if last.replace(at.y) == Some(at.y) {
            continue;
        }
        let Some((layer, _)) = field.expert_at(Position::new(field.area.x, at.y)) else { continue };
        let here = cursor.is_some_and(|cursor| cursor.y == at.y);
        // Of several layers in a row the one under the cursor counts.
        let layer = if here { screen.layer } else { layer };
        let Some(shape) = run.routes.trace().layers.get(layer) else { continue };
        let role = if here { Role::Strong } else { Role::Dim };
        let mark = if here { '›' } else { ' ' };
        let text = format!("{:>3}{mark}", shape.index);
        buffer.set_stringn(
            at.x.saturating_sub(LABELS),
            at.y,
            text,
            usize::from(LABELS),
            theme.style(role),
        );
    }
}

/// The first expert and how many there are in the panel of one layer.
fn rows(inside: Rect, screen: &ExpertsScreen, run: &RunData) -> (usize, usize) {
    let all = run.routes.trace().n_expert as usize;
    let room = usize::from(inside.height);
    let from = first(screen.expert, all, room, 1);
    (from, room.min(all - from))
}

fn over_time(
    frame: &mut Frame<'_>,
    panel: Rect,
    screen: &ExpertsScreen,
    run: &RunData,
    tally: &Tally,
    theme: Theme,
) {
    let inside = Block::bordered().inner(panel);
    let (from, shown) = rows(inside, screen, run);
    let columns = usize::from(inside.width.saturating_sub(LABELS));
    let (first, uses) = screen.over_time.uses();
    let skipped = uses.len().saturating_sub(columns);
    let layer = run.routes.trace().layers.get(screen.layer).map_or(0, |l| l.index);
    let title = format!(
        "layer {layer}, tokens {} to {}; experts {from} to {} of {}",
        first + skipped + usize::from(!uses.is_empty()),
        first + uses.len(),
        (from + shown).saturating_sub(1),
        run.routes.trace().n_expert,
    );
    let mut marks = vec![Span::styled("█", theme.style(Role::Compute)), Span::raw(" used  ")];
    if tally.known() != Known::Nothing {
        marks.extend([Span::styled("!", theme.style(Role::Bad)), Span::raw(" read for it  ")]);
    }
    let block = Block::bordered()
        .title(title)
        .title_bottom(Line::from(marks).right_aligned())
        .border_style(theme.style(Role::Border));
    frame.render_widget(block, panel);
    let buffer = frame.buffer_mut();
    for row in 0..shown {
        let (expert, y) = (from + row, inside.y + row as u16);
        let here = expert == screen.expert;
        let role = if here { Role::Strong } else { Role::Dim };
        let label = format!("{expert:>3}{}", if here { '›' } else { ' ' });
        buffer.set_stringn(inside.x, y, label, usize::from(LABELS), theme.style(role));
    }
    for (column, token) in uses[skipped..].iter().enumerate() {
        let x = inside.x + LABELS + column as u16;
        for (expert, missed) in token {
            let row = usize::from(*expert).wrapping_sub(from);
            if row >= shown {
                continue;
            }
            let (mark, role) = if *missed { (MISS, Role::Bad) } else { ('█', Role::Compute) };
            buffer[(x, inside.y + row as u16)].set_char(mark).set_style(theme.style(role));
        }
    }
}

fn details(
    frame: &mut Frame<'_>,
    area: Rect,
    screen: &ExpertsScreen,
    world: &World,
    run: &RunData,
    tally: &Tally,
    theme: Theme,
) {
    let (layer, expert) = screen.cursor();
    let entry = tally.of(layer, expert);
    let shape = run.routes.trace().layers.get(layer).copied().unwrap_or_default();
    let resident = match (tally.resident(layer, expert), tally.known()) {
        (Some(true), Known::AtUse) => "was in memory at its last use",
        (Some(false), Known::AtUse) => "was read for its last use",
        (_, Known::NoCache) => "no cache: read for every use",
        (Some(true), _) => "in memory",
        (Some(false), _) => "not in memory",
        (None, _) => "residency not known",
    };
    let last = match entry.last as usize {
        0 => "never used".to_owned(),
        last if last == tally.tokens() => "used by this token".to_owned(),
        last => format!("last used by token {last}, {} ago", tally.tokens() - last),
    };
    let size = match shape.expert_bytes {
        0 => "size not known".to_owned(),
        size => bytes(Some(size as f64)),
    };
    let reads = match tally.known() {
        Known::Nothing => String::new(),
        _ => format!(" ({} read)", entry.misses),
    };
    let strong = theme.style(Role::Strong);
    let cursor = Line::from(vec![
        Span::styled(format!("layer {}, expert {expert}", shape.index), strong),
        Span::raw(format!(": {} of {} tokens{reads}, {last}", entry.count, tally.tokens())),
    ]);
    let missed = || {
        let experts = 0..run.routes.trace().n_expert as usize;
        (0..run.routes.trace().layers.len())
            .flat_map(|l| experts.clone().map(move |e| (l, e)))
            .filter(|(l, e)| tally.missed_now(*l, *e))
            .count()
    };
    let mut now = match tally.known() {
        Known::Nothing => "what had to be read is not known".to_owned(),
        _ => format!("{} experts read now", missed()),
    };
    if let Some((held, budget)) = tally.cache_bytes() {
        let of = bytes(Some(budget as f64));
        now.push_str(&format!("; cache {} of {of}", bytes(Some(held as f64))));
    }
    let known = match (tally.known(), tally.agreement()) {
        (Known::Replayed(policy), Some(share)) => format!(
            "reads as measured; residency: {policy} replayed, the same in {} of look-ups",
            percent(Some(share))
        ),
        (Known::Replayed(policy), None) => format!("reads and residency: {policy} replayed"),
        (Known::AtUse, _) => {
            "reads as measured; no budget known, so residency as of the last use".to_owned()
        }
        (Known::NoCache, _) => "without a cache".to_owned(),
        (Known::Nothing, _) => "neither residency nor the cache's budget was recorded".to_owned(),
    };
    let title = match (screen.there, world.shown_tokens()) {
        (true, _) => format!("after token {}", tally.tokens()),
        (false, to) => format!("at token {}, on the way to {to}", tally.tokens()),
    };
    let block = Block::bordered().title(title).border_style(theme.style(Role::Border));
    let second = Line::raw(format!("{size}, {resident}; {now}"));
    let lines = vec![cursor, second, Line::styled(known, theme.style(Role::Dim))];
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
