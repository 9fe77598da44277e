//! Where the time of each token went: a column a token, its parts on top of each other.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use crate::view::figures;
use crate::view::theme::{Role, Theme};
use crate::view::world::Step;

/// A part of a step.
#[derive(Debug, Clone, Copy)]
struct Part {
    name: &'static str,
    mark: char,
    role: Role,
    of: fn(&Step) -> Option<u64>,
}

const COMPUTE: Part =
    Part { name: "compute", mark: '█', role: Role::Compute, of: |step| step.compute_ns };
const IO: Part = Part { name: "I/O wait", mark: '▒', role: Role::Io, of: |step| step.io_wait_ns };
const STALL: Part =
    Part { name: "stall", mark: '▒', role: Role::Stall, of: |step| step.io_wait_ns };
const MGMT: Part = Part { name: "cache", mark: '#', role: Role::Mgmt, of: |step| step.mgmt_ns };
const OTHER: Part = Part { name: "other", mark: '·', role: Role::Other, of: |step| step.other_ns };
/// All that is known of a step is how long it took.
const WHOLE: Part =
    Part { name: "whole step", mark: '█', role: Role::Text, of: |step| step.wall_ns };

/// The last tokens, as many as there are columns.
#[derive(Debug)]
pub(in crate::view::screens) struct Timeline<'a> {
    /// The steps that are shown.
    pub(in crate::view::screens) steps: &'a [Step],
    /// Waiting for reads is a stall.
    pub(in crate::view::screens) overlap: bool,
    /// Nanoseconds of the whole height; the longest token shown when it is left out.
    pub(in crate::view::screens) scale: Option<u64>,
    /// Colours.
    pub(in crate::view::screens) theme: Theme,
}

impl Timeline<'_> {
    /// Columns in front, for the scale.
    pub(in crate::view::screens) const LABELS: u16 = 9;

    /// The steps that fit a width, the last ones.
    fn shown(&self, width: u16) -> &[Step] {
        let columns = usize::from(width.saturating_sub(Self::LABELS));
        &self.steps[self.steps.len().saturating_sub(columns)..]
    }

    /// The longest of the steps that fit a width, nanoseconds.
    pub(in crate::view::screens) fn longest(&self, width: u16) -> u64 {
        let parts = self.parts();
        let total = |step: &Step| parts.iter().filter_map(|part| (part.of)(step)).sum::<u64>();
        self.shown(width).iter().map(total).max().unwrap_or(0)
    }

    fn parts(&self) -> Vec<Part> {
        if self.steps.iter().all(|step| step.compute_ns.is_none()) {
            return vec![WHOLE];
        }
        vec![COMPUTE, if self.overlap { STALL } else { IO }, MGMT, OTHER]
    }

    /// What the marks mean.
    #[must_use]
    pub(in crate::view::screens) fn legend(&self) -> Line<'static> {
        let mut spans = Vec::new();
        for part in self.parts() {
            spans.push(Span::styled(part.mark.to_string(), self.theme.style(part.role)));
            spans.push(Span::raw(format!(" {}  ", part.name)));
        }
        Line::from(spans)
    }
}

impl Widget for Timeline<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        if area.height < 2 || area.width <= Self::LABELS {
            return;
        }
        let shown = self.shown(area.width);
        let parts = self.parts();
        let total = |step: &Step| parts.iter().filter_map(|part| (part.of)(step)).sum::<u64>();
        let most = self.scale.unwrap_or_else(|| self.longest(area.width)).max(1);
        let height = u64::from(area.height);
        let dim = self.theme.style(Role::Dim);
        if !shown.is_empty() {
            buffer.set_string(area.x, area.y, figures::ms(Some(most as f64)), dim);
            buffer.set_string(area.x, area.bottom() - 1, "0", dim);
        }
        for (column, step) in shown.iter().enumerate() {
            let x = area.x + Self::LABELS + column as u16;
            for row in 0..height {
                // The part at the middle of the cell, counted from below.
                let at = most * (2 * row + 1) / (2 * height);
                let mut sum = 0;
                let part = parts.iter().find(|part| {
                    sum += (part.of)(step).unwrap_or(0);
                    at < sum
                });
                // A token that took any time is seen.
                let part = part.or((row == 0 && total(step) > 0).then_some(&parts[0]));
                if let Some(part) = part {
                    let y = area.bottom() - 1 - row as u16;
                    buffer[(x, y)].set_char(part.mark).set_style(self.theme.style(part.role));
                }
            }
        }
    }
}
