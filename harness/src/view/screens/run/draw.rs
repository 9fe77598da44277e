//! The drawing of the screen `Run`.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

use super::summary::Summary;
use super::timeline::Timeline;
use crate::progress::about;
use crate::view::figures::{UNKNOWN, bytes, number, three};
use crate::view::theme::{Role, Theme};
use crate::view::world::{Mode, RunData, World};
use crate::view::wrap::{tail, wrap};

pub(super) fn nothing(frame: &mut Frame<'_>, area: Rect, world: &World, theme: Theme) {
    let text = match (world.mode, &world.notice) {
        (_, Some(notice)) => notice.clone(),
        (Mode::Live, None) => "waiting for the first run".to_owned(),
        (Mode::Replay, None) => "there is no run here".to_owned(),
    };
    frame.render_widget(Paragraph::new(text).style(theme.style(Role::Dim)), area);
}

pub(super) fn run(
    frame: &mut Frame<'_>,
    area: Rect,
    world: &World,
    run: &RunData,
    summary: &Summary,
    theme: Theme,
) {
    // What a taller terminal has goes to the timeline and the text.
    let text_rows = (area.height - 10) / 2;
    let [name, figures, times, text] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(9),
        Constraint::Min(5),
        Constraint::Length(text_rows),
    ])
    .areas(area);
    frame.render_widget(headline(world, run, theme), name);
    let thirds = [Constraint::Ratio(1, 3), Constraint::Ratio(1, 3), Constraint::Fill(1)];
    let [rate, cost, memory] = Layout::horizontal(thirds).areas(figures);
    draw_rate(frame, rate, summary, theme);
    draw_cost(frame, cost, run, summary, theme);
    draw_memory(frame, memory, world, run, theme);
    draw_times(frame, times, world, run, theme);
    draw_text(frame, text, world, run, theme);
}

fn panel<'a>(title: impl Into<Line<'a>>, theme: Theme) -> Block<'a> {
    Block::bordered().title(title).border_style(theme.style(Role::Border))
}

fn headline<'a>(world: &World, run: &'a RunData, theme: Theme) -> Line<'a> {
    let mut spans = vec![Span::styled(run.name.as_str(), theme.style(Role::Strong))];
    let count = world.runs.len();
    if count > 1 {
        spans.push(Span::styled(
            format!("  run {} of {count}", world.selected() + 1),
            theme.style(Role::Dim),
        ));
    }
    if let Some(left) = world.left {
        spans.push(Span::styled(format!(", about {} left", about(left)), theme.style(Role::Dim)));
    }
    match (&run.trouble, &run.shape) {
        (Some(trouble), _) => {
            spans.push(Span::styled(format!("  ! {trouble}"), theme.style(Role::Bad)));
        }
        (None, Some(shape)) => spans.push(Span::styled(
            format!(
                "  {} {}, {} layers, {} of {} experts",
                run.model,
                shape.arch,
                shape.layers.len(),
                shape.n_expert_used,
                shape.n_expert
            ),
            theme.style(Role::Dim),
        )),
        (None, None) => {}
    }
    Line::from(spans)
}

/// `label   now   mean`, the figures at the right.
fn pair<'a>(label: &'a str, now: &str, mean: &str, theme: Theme) -> Line<'a> {
    Line::from(vec![
        Span::styled(format!("{label:<9}"), theme.style(Role::Dim)),
        Span::styled(format!("{now:>7}"), theme.style(Role::Strong)),
        Span::raw(format!("{mean:>7}")),
    ])
}

fn row<'a>(label: &'a str, value: String, theme: Theme) -> Line<'a> {
    Line::from(vec![
        Span::styled(format!("{label:<9}"), theme.style(Role::Dim)),
        Span::raw(format!("{value:>15}")),
    ])
}

fn draw_rate(frame: &mut Frame<'_>, area: Rect, summary: &Summary, theme: Theme) {
    let wide = usize::from(area.width.saturating_sub(2));
    let rates = summary.rates;
    let spread = [
        ("p5", rates.map(|r| r.p5)),
        ("median", rates.map(|r| r.median)),
        ("p95", rates.map(|r| r.p95)),
    ];
    let mut lines = vec![
        Line::from(vec![
            Span::styled("now    ", theme.style(Role::Dim)),
            Span::styled(format!("{:>8}", three(summary.now.tok_s)), theme.style(Role::Strong)),
        ]),
        Line::from(vec![
            Span::styled("mean   ", theme.style(Role::Dim)),
            Span::raw(format!("{:>8}", three(summary.mean.tok_s))),
        ]),
    ];
    for (name, value) in spread {
        lines.push(Line::from(vec![
            Span::styled(format!("{name:<7}"), theme.style(Role::Dim)),
            Span::raw(format!("{:>8}", three(value))),
        ]));
    }
    if let Some(latencies) = &summary.latencies
        && let Some((low, high)) = latencies.range()
    {
        lines.push(Line::styled(latencies.bars(low, high, wide), theme.style(Role::Compute)));
        let (low, high) = (three(Some(low as f64 / 1e6)), three(Some(high as f64 / 1e6)));
        let gap = wide.saturating_sub(low.len() + high.len() + 3);
        let axis = format!("{low}{}{high} ms", " ".repeat(gap));
        lines.push(Line::styled(axis, theme.style(Role::Dim)));
    }
    frame.render_widget(Paragraph::new(lines).block(panel("tok/s", theme)), area);
}

fn draw_cost(frame: &mut Frame<'_>, area: Rect, run: &RunData, summary: &Summary, theme: Theme) {
    let (now, mean) = (&summary.now, &summary.mean);
    let ms = |ns: Option<f64>| three(ns.map(|ns| ns / 1e6));
    let mib = |bytes: Option<f64>| three(bytes.map(|b| b / 1024.0 / 1024.0));
    let share = |share: Option<f64>| number(share.map(|s| s * 100.0), 1);
    let lanes = |busy: Option<f64>| number(busy, 2);
    // Without a cache nothing can hit; of an import nobody knows.
    let cached = |rate: Option<f64>| rate.filter(|_| run.policy.is_some() || run.mode.is_empty());
    let wait = if run.overlap { "stall" } else { "I/O wait" };
    let lines = vec![
        pair("compute", &ms(now.compute_ns), &ms(mean.compute_ns), theme),
        pair(wait, &ms(now.io_wait_ns), &ms(mean.io_wait_ns), theme),
        pair("cache", &ms(now.mgmt_ns), &ms(mean.mgmt_ns), theme),
        pair("other", &ms(now.other_ns), &ms(mean.other_ns), theme),
        pair("MiB read", &mib(now.read_bytes), &mib(mean.read_bytes), theme),
        pair("hit %", &share(cached(now.hit_rate)), &share(cached(mean.hit_rate)), theme),
        pair("lanes", &lanes(now.lanes), &lanes(mean.lanes), theme),
    ];
    let title = "a token, ms: now, mean";
    frame.render_widget(Paragraph::new(lines).block(panel(title, theme)), area);
}

fn draw_memory(frame: &mut Frame<'_>, area: Rect, world: &World, run: &RunData, theme: Theme) {
    let step = world.shown().last();
    let sample = run.sample_of(world.playhead.at_ns(run));
    let of = |value: Option<u64>| bytes(value.map(|b| b as f64));
    let budget = step.and_then(|s| s.cache_budget_bytes).or(run.cache_budget_bytes);
    let available = step.and_then(|s| s.mem_available_bytes);
    let available = available.or(sample.and_then(|s| s.mem_available_bytes));
    let rss = step.and_then(|s| s.rss_bytes).or(sample.and_then(|s| s.rss_bytes));
    let mut lines = vec![
        row("budget", of(budget), theme),
        row("in cache", of(step.and_then(|s| s.cache_resident_bytes)), theme),
        row("RSS", of(rss), theme),
        row("available", of(available), theme),
    ];
    // What the budget did, while it is news.
    let shown = world.shown_tokens();
    if let Some(change) = run.budgets.iter().rev().find(|b| b.step as usize <= shown) {
        let up = change.to_bytes > change.from_bytes;
        let text = format!("{} at token {}", if up { "▲ grew" } else { "▼ shrank" }, change.step);
        lines.push(Line::styled(text, theme.style(Role::Warn)));
    }
    let temperature = sample.and_then(|s| s.cpu_temperature_millic);
    if let Some(temperature) = temperature {
        let celsius = number(Some(f64::from(temperature) / 1000.0), 1);
        lines.push(row("CPU", format!("{celsius} °C"), theme));
    }
    if let Some(clock) = sample.and_then(|s| s.clocks_khz.iter().max()) {
        let clock = number(Some(f64::from(*clock) / 1e6), 2);
        let most = sample.and_then(|s| s.max_clocks_khz.iter().max());
        let most = most.map(|khz| format!(" of {}", number(Some(f64::from(*khz) / 1e6), 2)));
        lines.push(row("clock", format!("{clock}{} GHz", most.unwrap_or_default()), theme));
    }
    if let Some(lanes) = run.lanes {
        let policy = run.policy.as_deref().unwrap_or("no cache");
        lines.push(Line::styled(format!("{lanes} lanes, {policy}"), theme.style(Role::Dim)));
    }
    lines.truncate(usize::from(area.height.saturating_sub(2)));
    frame.render_widget(Paragraph::new(lines).block(panel("memory", theme)), area);
}

fn draw_times(frame: &mut Frame<'_>, area: Rect, world: &World, run: &RunData, theme: Theme) {
    let timeline = Timeline { steps: world.shown(), overlap: run.overlap, scale: None, theme };
    let block = panel("time of each token", theme).title_bottom(timeline.legend().right_aligned());
    let inner = block.inner(area);
    frame.render_widget(block, area);
    frame.render_widget(timeline, inner);
}

fn draw_text(frame: &mut Frame<'_>, area: Rect, world: &World, run: &RunData, theme: Theme) {
    let (text, aligned) = run.text(world.shown_tokens());
    let title = match (aligned, run.prompt_tokens) {
        (false, _) => "text, whole: the folder does not say which token wrote what".to_owned(),
        (true, Some(n)) => format!("text, after a prompt of {n} tokens"),
        (true, None) => "text".to_owned(),
    };
    let block = panel(title, theme);
    let inner = block.inner(area);
    let lines = match (text.is_empty(), aligned) {
        (true, _) => vec![UNKNOWN.to_owned()],
        // The end is what is being written.
        (false, true) => tail(text, inner.width, inner.height),
        (false, false) => wrap(text, inner.width),
    };
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
