//! The drawing of the screen `Compare`.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

use super::{CompareScreen, Means, NOW_TOKENS, Pair, Span as Tokens, Texts};
use crate::view::figures::{UNKNOWN, number, three};
use crate::view::screens::run::timeline::Timeline;
use crate::view::theme::{Role, Theme};
use crate::view::world::{RunData, Step, World};

/// Rows of the panel of figures, its border included.
const FIGURES: u16 = 11;
/// A token that takes this much longer or shorter in the second run is marked.
const NOTABLE: f64 = 0.1;

pub(super) fn nothing(frame: &mut Frame<'_>, area: Rect, world: &World, theme: Theme) {
    let text = match world.runs.len() {
        0 => world.notice.as_deref().unwrap_or("there is no run yet"),
        _ => "there is only one run here; two are needed",
    };
    frame.render_widget(Paragraph::new(text).style(theme.style(Role::Dim)), area);
}

pub(super) fn pair(
    frame: &mut Frame<'_>,
    area: Rect,
    screen: &CompareScreen,
    runs: [(usize, &RunData); 2],
    (count, asked): (usize, usize),
    theme: Theme,
) {
    let [names, figures, times] =
        Layout::vertical([Constraint::Length(2), Constraint::Length(FIGURES), Constraint::Min(5)])
            .areas(area);
    let name = |mark: &'static str, (index, run): (usize, &RunData)| {
        let trouble = run.trouble.as_ref().map(|t| format!("  ! {t}")).unwrap_or_default();
        Line::from(vec![
            Span::styled(mark, theme.style(Role::Strong)),
            Span::raw(format!("{}  ", run.name)),
            Span::styled(
                format!("{} run {} of {count}", run.model, index + 1),
                theme.style(Role::Dim),
            ),
            Span::styled(trouble, theme.style(Role::Bad)),
        ])
    };
    let [a, b] = runs;
    frame.render_widget(Paragraph::new(vec![name("A  ", a), name("B  ", b)]), names);
    draw_figures(frame, figures, screen, [a.1, b.1], asked, theme);
    draw_times(frame, times, screen.pair(), [a.1, b.1], theme);
}

/// A figure of both runs, already in its unit, and the decimals of its difference.
struct Row {
    label: &'static str,
    a: Option<f64>,
    b: Option<f64>,
    ratio: bool,
}

fn rows(pair: &Pair, [a, b]: [&RunData; 2]) -> Vec<Row> {
    let waiting = match (a.overlap, b.overlap) {
        (true, true) => "stall, ms",
        (false, false) => "I/O wait, ms",
        _ => "stall or wait",
    };
    let row = |label, of: fn(&Means) -> Option<f64>, scale: f64| Row {
        label,
        a: of(&pair.a).map(|v| v * scale),
        b: of(&pair.b).map(|v| v * scale),
        ratio: true,
    };
    // Without a cache nothing can hit; of an import nobody knows.
    let hit = |run: &RunData, means: &Means| {
        let known = run.policy.is_some() || run.mode.is_empty();
        means.hit_rate.filter(|_| known).map(|rate| rate * 100.0)
    };
    let mib = 1.0 / 1024.0 / 1024.0;
    vec![
        row("tok/s", |m| m.tok_s, 1.0),
        row("compute, ms", |m| m.compute_ns, 1e-6),
        row(waiting, |m| m.io_wait_ns, 1e-6),
        row("cache, ms", |m| m.mgmt_ns, 1e-6),
        row("whole, ms", |m| m.wall_ns, 1e-6),
        row("MiB read", |m| m.read_bytes, mib),
        Row { label: "hit %", a: hit(a, &pair.a), b: hit(b, &pair.b), ratio: false },
        row("lanes busy", |m| m.lanes, 1.0),
    ]
}

fn draw_figures(
    frame: &mut Frame<'_>,
    area: Rect,
    screen: &CompareScreen,
    runs: [&RunData; 2],
    asked: usize,
    theme: Theme,
) {
    let pair = screen.pair();
    let tokens = pair.tokens;
    let mut title = match screen.span() {
        Tokens::All => format!("a token: mean of tokens 1 to {tokens}"),
        Tokens::Now => {
            format!("a token: mean of tokens {} to {tokens}", tokens.saturating_sub(NOW_TOKENS) + 1)
        }
        Tokens::One => format!("token {tokens}"),
    };
    if tokens == 0 {
        title = "before the first token".to_owned();
    }
    if tokens < asked {
        title.push_str(if runs[1].over { "; B ends there" } else { "; B has no more yet" });
    }
    let dim = theme.style(Role::Dim);
    let head = format!("{:<14}{:>9}{:>9}{:>10}{:>8}", "", "A", "B", "B - A", "B / A");
    let mut lines = vec![Line::styled(head, dim)];
    for row in rows(pair, runs) {
        let both = row.a.zip(row.b);
        let difference = both.map(|(a, b)| b - a);
        let ratio = both.filter(|(a, _)| row.ratio && *a > 0.0).map(|(a, b)| b / a);
        let difference = match difference {
            Some(d) => format!("{}{}", if d < 0.0 { '−' } else { '+' }, three(Some(d.abs()))),
            None => UNKNOWN.to_owned(),
        };
        lines.push(Line::from(vec![
            Span::styled(format!("{:<14}", row.label), dim),
            Span::raw(format!("{:>9}{:>9}", three(row.a), three(row.b))),
            Span::styled(format!("{difference:>10}"), theme.style(Role::Strong)),
            Span::raw(format!("{:>8}", number(ratio, 2))),
        ]));
    }
    let (texts, role) = match pair.texts {
        Texts::NotKnown => ("texts not known of both".to_owned(), Role::Dim),
        Texts::Same => ("the same text so far".to_owned(), Role::Good),
        Texts::SameWhole => ("the same text".to_owned(), Role::Good),
        Texts::Differ(Some(token)) => (format!("texts differ from token {token}"), Role::Bad),
        Texts::Differ(None) => ("texts differ".to_owned(), Role::Bad),
    };
    let block = Block::bordered()
        .title(title)
        .title_bottom(Line::styled(format!("{texts} "), theme.style(role)).right_aligned())
        .border_style(theme.style(Role::Border));
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn draw_times(frame: &mut Frame<'_>, area: Rect, pair: &Pair, [a, b]: [&RunData; 2], theme: Theme) {
    let steps = |run: &'_ RunData| -> Vec<Step> { run.steps()[..pair.tokens].to_vec() };
    let (of_a, of_b) = (steps(a), steps(b));
    let timeline =
        |run: &RunData, steps, scale| Timeline { steps, overlap: run.overlap, scale, theme };
    let legend = timeline(a, &of_a, None).legend();
    let block = Block::bordered()
        .title("time of each token: A above, B below; ▲ longer, ▼ shorter in B by a tenth")
        .title_bottom(legend.right_aligned())
        .border_style(theme.style(Role::Border));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [above, between, below] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(1), Constraint::Fill(1)])
            .areas(inner);
    // One scale, so that heights can be compared.
    let longest = [(a, &of_a), (b, &of_b)]
        .map(|(run, steps)| timeline(run, steps, None).longest(above.width));
    let scale = longest.into_iter().max();
    frame.render_widget(timeline(a, &of_a, scale), above);
    frame.render_widget(timeline(b, &of_b, scale), below);
    let columns = usize::from(between.width.saturating_sub(Timeline::LABELS));
    let from = pair.tokens.saturating_sub(columns);
    let marks = of_a[from..].iter().zip(&of_b[from..]).map(|(a, b)| mark(a, b));
    let mut spans = vec![Span::raw(" ".repeat(usize::from(Timeline::LABELS)))];
    for (mark, role) in marks {
        spans.push(Span::styled(mark, theme.style(role)));
    }
    frame.render_widget(Line::from(spans), between);
}

fn mark(a: &Step, b: &Step) -> (&'static str, Role) {
    match a.wall_ns.zip(b.wall_ns) {
        None => (" ", Role::Dim),
        Some((a, b)) if b as f64 > a as f64 * (1.0 + NOTABLE) => ("▲", Role::Bad),
        Some((a, b)) if (b as f64) < a as f64 * (1.0 - NOTABLE) => ("▼", Role::Good),
        Some(_) => ("·", Role::Dim),
    }
}
