//! Amounts in rows and columns.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::canvas::{Canvas, Drawing, Drawn, style};
use super::theme::{BACKGROUND, INK, UNUSED, amount};

const LEFT: i32 = 84;
const TOP: i32 = 84;
const BOTTOM: i32 = 64;
/// From the cells to the legend.
const GAP: i32 = 34;
const BAR_WIDTH: i32 = 22;
/// Narrower grids still leave room for the axis label.
const LEAST_WIDTH: i32 = 220;
/// From the legend's left edge to the picture's right edge.
const LEGEND_WIDTH: i32 = 226;
/// Labels of the colour bar keep this distance.
const LABEL_HEIGHT: i32 = 18;

/// A grid of amounts, row 0 at the bottom.
pub(super) struct Grid {
    pub(super) title: String,
    pub(super) subtitle: String,
    /// Labels of the rows, from the bottom.
    pub(super) rows: Vec<String>,
    pub(super) columns: Vec<String>,
    /// Row by row; `None` = nothing there.
    pub(super) cells: Vec<Option<f64>>,
    pub(super) x_name: String,
    pub(super) y_name: String,
    pub(super) scale: Scale,
    /// What a cell without an amount means; empty = such cells need no explanation.
    pub(super) nothing: &'static str,
}

/// What the colours mean.
pub(super) enum Scale {
    /// From 0 to the highest amount.
    Bar {
        highest: f64,
        /// Many small amounts are kept apart without flattening the few large ones.
        square_root: bool,
        /// Lines above the bar.
        heading: Vec<String>,
        /// Amounts and their labels; those that are too high or too close are left out.
        labels: Vec<(f64, String)>,
        /// One amount to compare with.
        mark: Option<(f64, String)>,
    },
    /// A few kinds of cells: amounts from 0 to 1 and their names.
    Kinds(Vec<(f64, &'static str)>),
}

impl Scale {
    /// Place on the colour scale, 0 to 1.
    fn along(&self, value: f64) -> f64 {
        match self {
            Self::Bar { highest, square_root, .. } => {
                let share = (value / highest.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
                if *square_root { share.sqrt() } else { share }
            }
            Self::Kinds(_) => value,
        }
    }
}

impl Grid {
    /// Width and height of one cell, pixels.
    fn cell(&self) -> (i32, i32) {
        let (columns, rows) = (self.columns.len().max(1) as i32, self.rows.len().max(1) as i32);
        let tallest = if columns < 32 { 44 } else { 30 };
        ((1120 / columns).clamp(2, 64), (620 / rows).clamp(if rows > 200 { 2 } else { 6 }, tallest))
    }

    fn inner(&self) -> (i32, i32) {
        let (width, height) = self.cell();
        (width * self.columns.len() as i32, height * self.rows.len() as i32)
    }
}

impl Drawing for Grid {
    fn size(&self) -> (u32, u32) {
        let inner = self.inner();
        let right = LEFT + inner.0.max(LEAST_WIDTH);
        let whole = (right + GAP + LEGEND_WIDTH, TOP + inner.1.max(220) + BOTTOM);
        (whole.0.max(760) as u32, whole.1 as u32)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Canvas<'_, DB>) -> Drawn<DB> {
        let (width, height) = self.cell();
        let inner = self.inner();
        let (right, bottom) = (LEFT + inner.0, TOP + inner.1);
        area.draw_text(&self.title, &style(25, HPos::Left, VPos::Top), (16, 14))?;
        area.draw_text(&self.subtitle, &style(17, HPos::Left, VPos::Top), (16, 46))?;

        // One rectangle under all empty cells keeps the SVG small.
        let frame = [(LEFT, TOP), (right, bottom)];
        area.draw(&Rectangle::new(frame, UNUSED.filled()))?;
        for (row, cells) in self.cells.chunks(self.columns.len().max(1)).enumerate() {
            let y = bottom - height * (row as i32 + 1);
            for (column, value) in cells.iter().enumerate() {
                let Some(value) = value else { continue };
                let x = LEFT + width * column as i32;
                // Plotters' rectangles include their last pixel in a bitmap and not in an SVG, so that
                // neighbours overlap by one there and leave no seam here.
                let cell = [(x, y), (x + width, y + height)];
                area.draw(&Rectangle::new(cell, amount(self.scale.along(*value)).filled()))?;
            }
        }
        area.draw(&Rectangle::new(frame, INK.stroke_width(1)))?;

        // Labels that would touch are left out: one per so many rows and columns.
        let every = |pixels: i32, needed: i32| {
            [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128]
                .into_iter()
                .find(|n| n * pixels >= needed)
                .unwrap_or(256)
        };
        let longest = self.columns.iter().map(|c| c.len()).max().unwrap_or(0) as i32;
        let step = every(width, 42.max(longest * 9 + 12)) as usize;
        for (column, label) in self.columns.iter().enumerate().step_by(step) {
            let x = LEFT + width * column as i32 + width / 2;
            area.draw(&PathElement::new([(x, bottom), (x, bottom + 5)], INK))?;
            area.draw_text(label, &style(15, HPos::Center, VPos::Top), (x, bottom + 8))?;
        }
        for (row, label) in self.rows.iter().enumerate().step_by(every(height, 20) as usize) {
            let y = bottom - height * row as i32 - height / 2;
            area.draw(&PathElement::new([(LEFT - 5, y), (LEFT, y)], INK))?;
            area.draw_text(label, &style(15, HPos::Right, VPos::Center), (LEFT - 9, y))?;
        }
        let below = ((LEFT + right) / 2, bottom + 32);
        area.draw_text(&self.x_name, &style(17, HPos::Center, VPos::Top), below)?;
        let upright = style(17, HPos::Center, VPos::Center).transform(FontTransform::Rotate270);
        area.draw_text(&self.y_name, &upright, (22, (TOP + bottom) / 2))?;

        let x = right.max(LEFT + LEAST_WIDTH) + GAP;
        let end = bottom.max(TOP + 220);
        match &self.scale {
            Scale::Kinds(kinds) => {
                for (i, (value, name)) in kinds.iter().enumerate() {
                    let y = TOP + 8 + 28 * i as i32;
                    swatch(area, (x, y), amount(*value), name)?;
                }
            }
            Scale::Bar { .. } => self.bar(area, x, end)?,
        }
        if self.nothing.is_empty() {
            return Ok(());
        }
        swatch(area, (x, end - 18), UNUSED, self.nothing)
    }
}

fn swatch<DB: DrawingBackend>(
    area: &Canvas<'_, DB>,
    (x, y): (i32, i32),
    colour: RGBColor,
    text: &str,
) -> Drawn<DB> {
    let swatch = [(x, y), (x + BAR_WIDTH, y + 16)];
    area.draw(&Rectangle::new(swatch, colour.filled()))?;
    area.draw(&Rectangle::new(swatch, INK.stroke_width(1)))?;
    let label = style(15, HPos::Left, VPos::Center);
    area.draw_text(text, &label, (x + BAR_WIDTH + 9, y + 8))
}

impl Grid {
    fn bar<DB: DrawingBackend>(&self, area: &Canvas<'_, DB>, x: i32, bottom: i32) -> Drawn<DB> {
        let Scale::Bar { highest, heading, labels, mark, .. } = &self.scale else { return Ok(()) };
        let label = style(15, HPos::Left, VPos::Center);
        for (i, line) in heading.iter().enumerate() {
            area.draw_text(line, &label, (x, TOP + 6 + 18 * i as i32))?;
        }
        let top = TOP + 12 + 18 * heading.len() as i32;
        let base = bottom - if self.nothing.is_empty() { 4 } else { 34 };
        let length = (base - top).max(1);
        for y in 0..length {
            let share = f64::from(length - y) / f64::from(length);
            let strip = [(x, top + y), (x + BAR_WIDTH, top + y + 1)];
            area.draw(&Rectangle::new(strip, amount(share).filled()))?;
        }
        area.draw(&Rectangle::new([(x, top), (x + BAR_WIDTH, base)], INK.stroke_width(1)))?;
        let at = |value: f64| base - (self.scale.along(value) * f64::from(length)).round() as i32;
        let mut above = base + 2 * LABEL_HEIGHT;
        for (value, text) in labels {
            let y = at(*value);
            if *value > *highest || above - y < LABEL_HEIGHT {
                continue;
            }
            above = y;
            area.draw(&PathElement::new([(x + BAR_WIDTH, y), (x + BAR_WIDTH + 5, y)], INK))?;
            area.draw_text(text, &label, (x + BAR_WIDTH + 9, y))?;
        }
        if let Some((value, text)) = mark.as_ref().filter(|(value, _)| value < highest) {
            let y = at(*value);
            area.draw(&PathElement::new([(x, y), (x + BAR_WIDTH, y)], BACKGROUND.stroke_width(2)))?;
            let text_at = (x + BAR_WIDTH + 58, y);
            let pointer = [(x + BAR_WIDTH + 36, y), (text_at.0 - 5, y)];
            area.draw(&PathElement::new(pointer, INK))?;
            area.draw_text(text, &label, text_at)?;
        }
        Ok(())
    }
}
