//! The drawing of the screen `Matrix`.

use bmoe_analysis::result_set::{CellRecord, Verdict};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table, Wrap};

use super::MatrixScreen;
use crate::progress::about;
use crate::view::figures::{UNKNOWN, number, three};
use crate::view::theme::{Role, Theme};
use crate::view::world::{CellView, State, World};

/// Rows of the attempts below the table.
const DETAIL_ROWS: u16 = 9;

/// A table of such a width has room for counts behind a verdict.
const WIDE: u16 = 100;

/// The table, the summary above it and the attempts below it.
fn areas(area: Rect, details: bool) -> [Rect; 3] {
    Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(4),
        Constraint::Length(if details { DETAIL_ROWS } else { 0 }),
    ])
    .areas(area)
}

/// The first cell of the table that is seen: the cursor's is always among them.
fn first(area: Rect, screen: &MatrixScreen) -> usize {
    let rows = usize::from(area.height.saturating_sub(1));
    (screen.cursor() + 1).saturating_sub(rows)
}

pub(super) fn cell_at(
    area: Rect,
    at: Position,
    screen: &MatrixScreen,
    world: &World,
) -> Option<usize> {
    let [_, table, _] = areas(area, screen.shows_details());
    let row = at.y.checked_sub(table.y + 1)?;
    let cell = first(table, screen) + usize::from(row);
    (table.contains(at) && cell < world.cells.len()).then_some(cell)
}

pub(super) fn matrix(
    frame: &mut Frame<'_>,
    area: Rect,
    screen: &MatrixScreen,
    world: &World,
    theme: Theme,
) {
    let [head, table, details] = areas(area, screen.shows_details());
    frame.render_widget(summary(world, theme), head);
    if world.cells.is_empty() {
        let text = world.notice.as_deref().unwrap_or("there are no cells here");
        frame.render_widget(Span::styled(text, theme.style(Role::Dim)), table);
        return;
    }
    let first = first(table, screen);
    let rows = world.cells.iter().enumerate().skip(first).map(|(index, cell)| {
        let row = row(cell, world, table.width < WIDE, theme);
        if index == screen.cursor() { row.style(theme.style(Role::Cursor)) } else { row }
    });
    let widths = [
        Constraint::Length(1),
        Constraint::Fill(2),
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(9),
        if table.width < WIDE { Constraint::Length(15) } else { Constraint::Fill(1) },
    ];
    let names = ["", "cell", "tok/s", "×", "hit %", "MiB/token", "runs"];
    let header = Row::new(names.map(|name| match name {
        "tok/s" | "×" | "hit %" | "MiB/token" => Cell::from(Line::from(name).right_aligned()),
        name => Cell::from(name),
    }))
    .style(theme.style(Role::Dim));
    frame.render_widget(Table::new(rows, widths).header(header), table);
    if screen.shows_details()
        && let Some(cell) = screen.cell(world)
    {
        attempts(frame, details, cell, theme);
    }
}

fn summary<'a>(world: &World, theme: Theme) -> Line<'a> {
    let done: usize = world.cells.iter().map(|c| c.done()).sum();
    let planned: usize = world.cells.iter().map(|c| c.planned.max(c.done())).sum();
    let invalid: usize = world.cells.iter().map(|c| c.done() - c.valid()).sum();
    let mut spans = vec![Span::styled(
        format!("{done} of {planned} runs done, {} cells", world.cells.len()),
        theme.style(Role::Strong),
    )];
    if invalid > 0 {
        spans.push(Span::styled(format!("  ! {invalid} not valid"), theme.style(Role::Bad)));
    }
    if let Some(left) = world.left.filter(|left| !left.is_zero()) {
        spans.push(Span::styled(format!("  about {} left", about(left)), theme.style(Role::Dim)));
    }
    Line::from(spans)
}

/// The mark of a cell, so that its state is seen without colours.
fn mark(cell: &CellView) -> (&'static str, Role) {
    match cell.state {
        State::Waiting => ("·", Role::Dim),
        State::Running => ("▶", Role::Warn),
        _ if cell.valid() < cell.done() => ("✗", Role::Bad),
        State::Partly => ("◐", Role::Text),
        State::Over => ("✓", Role::Good),
    }
}

fn row<'a>(cell: &'a CellView, world: &World, short: bool, theme: Theme) -> Row<'a> {
    let right = |text: String| Cell::from(Line::from(text).right_aligned());
    let baseline = world.cells.iter().find(|c| c.baseline && c.model == cell.model);
    let ratio = cell.tok_s.zip(baseline.and_then(|b| b.tok_s)).map(|(it, base)| it / base);
    let (mark, role) = mark(cell);
    let models = world.cells.iter().any(|other| other.model != cell.model);
    let mut name =
        if models { format!("{}: {}", cell.model, cell.name) } else { cell.name.clone() };
    if cell.baseline {
        name.push_str(" (baseline)");
    }
    let hit = number(cell.hit_rate.map(|rate| rate * 100.0), 1);
    Row::new([
        Cell::from(Span::styled(mark, theme.style(role))),
        Cell::from(name),
        right(number(cell.tok_s, 2)),
        right(number(ratio, 2)),
        right(hit),
        right(three(cell.read_mib)),
        Cell::from(Span::styled(runs(cell, short), theme.style(role))),
    ])
}

/// `2 of 3 valid`, or the first thing that went wrong.
fn runs(cell: &CellView, short: bool) -> String {
    let of = cell.planned.max(cell.done());
    let bad = cell.last_attempts().into_iter().find(|record| record.verdict != Verdict::Valid);
    match (cell.state, bad) {
        (State::Waiting, None) => "waiting".to_owned(),
        (State::Running, None) => format!("{} of {of}, running", cell.done()),
        (_, Some(bad)) if short => bad.verdict.words().to_owned(),
        (_, Some(bad)) => format!("{}, {} of {of} valid", bad.verdict.words(), cell.valid()),
        (_, None) => format!("{} of {of} valid", cell.valid()),
    }
}

fn attempts(frame: &mut Frame<'_>, area: Rect, cell: &CellView, theme: Theme) {
    let mut lines: Vec<Line<'_>> =
        cell.attempts.iter().rev().map(|record| attempt(record, theme)).collect();
    if lines.is_empty() {
        lines.push(Line::styled("nothing has been tried yet", theme.style(Role::Dim)));
    }
    let block = Block::bordered()
        .title(format!(" {} ", cell.name))
        .title_bottom(" enter shows the run, esc closes ")
        .border_style(theme.style(Role::Border));
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), area);
}

fn attempt<'a>(record: &'a CellRecord, theme: Theme) -> Line<'a> {
    let role = if record.verdict == Verdict::Valid { Role::Good } else { Role::Bad };
    let exit = record.exit_code.map_or_else(|| UNKNOWN.to_owned(), |code| code.to_string());
    let reason = record.reason.as_deref().unwrap_or_default();
    Line::from(vec![
        Span::raw(format!("run {} attempt {}  ", record.repetition + 1, record.attempt)),
        Span::styled(record.verdict.words(), theme.style(role)),
        Span::styled(
            format!("  {} s, exit code {exit}  ", number(Some(record.wall_s), 1)),
            theme.style(Role::Dim),
        ),
        Span::raw(reason),
    ])
}
