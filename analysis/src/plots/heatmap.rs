//! How often each expert of each layer was used.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::canvas::{Canvas, Drawing, Drawn, INK, Picture, style};
use crate::markdown::one_line;
use crate::routing::Routing;

const LEFT: i32 = 84;
const TOP: i32 = 84;
const BOTTOM: i32 = 64;
/// From the cells to the colour bar.
const GAP: i32 = 34;
const BAR_WIDTH: i32 = 22;
/// Narrower maps still leave room for the axis label.
const LEAST_WIDTH: i32 = 220;
/// From the colour bar's left edge to the picture's right edge.
const LEGEND_WIDTH: i32 = 226;
/// Labels of the colour bar keep this distance.
const LABEL_HEIGHT: i32 = 18;
/// Experts that no decode token used.
const UNUSED: RGBColor = RGBColor(0xec, 0xec, 0xec);

/// Layer by expert, colour = share of the decode tokens routed there.
#[derive(Debug, Clone)]
pub struct Heatmap<'a> {
    /// The routes.
    pub routing: &'a Routing,
    /// The model's name.
    pub model: &'a str,
    /// Which run the routes are of.
    pub run: &'a str,
}

impl Heatmap<'_> {
    /// Draws it.
    ///
    /// # Errors
    /// The plotting library failed.
    pub fn render(&self) -> Result<Picture, String> {
        Picture::render(self)
    }

    /// Width and height of one cell, pixels.
    fn cell(&self) -> (i32, i32) {
        let columns = self.routing.n_expert.max(1) as i32;
        let rows = self.rows().max(1);
        ((1120 / columns).clamp(3, 64), (620 / rows).clamp(6, if columns < 32 { 44 } else { 30 }))
    }

    /// Layers from the first to the last MoE layer; a dense layer between them leaves its row empty.
    fn rows(&self) -> i32 {
        let layers = &self.routing.layers;
        layers.last().zip(layers.first()).map_or(0, |(b, a)| (b.layer - a.layer) as i32 + 1)
    }
}

impl Drawing for Heatmap<'_> {
    fn size(&self) -> (u32, u32) {
        let (width, height) = self.cell();
        let inner = (width * self.routing.n_expert as i32, height * self.rows());
        let right = LEFT + inner.0.max(LEAST_WIDTH);
        let whole = (right + GAP + LEGEND_WIDTH, TOP + inner.1.max(220) + BOTTOM);
        (whole.0.max(760) as u32, whole.1 as u32)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Canvas<'_, DB>) -> Drawn<DB> {
        let routing = self.routing;
        let (width, height) = self.cell();
        let columns = routing.n_expert as i32;
        let (right, bottom) = (LEFT + width * columns, TOP + height * self.rows());
        let highest = routing.highest_share().max(f64::MIN_POSITIVE);
        let first = routing.layers.first().map_or(0, |l| l.layer);

        area.draw_text(
            &format!("{}: which experts the decode tokens used", one_line(self.model)),
            &style(25, HPos::Left, VPos::Top),
            (16, 14),
        )?;
        area.draw_text(
            &format!(
                "{} MoE layer{} × {} experts, top-{}, {} decode tokens; run: {}",
                routing.layers.len(),
                if routing.layers.len() == 1 { "" } else { "s" },
                routing.n_expert,
                routing.top_k,
                routing.tokens,
                one_line(self.run)
            ),
            &style(17, HPos::Left, VPos::Top),
            (16, 46),
        )?;

        // One rectangle under all unused experts keeps the SVG small.
        let frame = [(LEFT, TOP), (right, bottom)];
        area.draw(&Rectangle::new(frame, UNUSED.filled()))?;
        for layer in &routing.layers {
            // Layer 0 at the bottom, as on any upright axis.
            let y = bottom - height * ((layer.layer - first) as i32 + 1);
            for (expert, uses) in layer.uses.iter().enumerate().filter(|(_, uses)| **uses > 0) {
                let x = LEFT + width * expert as i32;
                let colour = colour(along_scale(routing.share(*uses), highest));
                // Plotters' rectangles include their last pixel in a bitmap and not in an SVG, so that
                // neighbours overlap by one there and leave no seam here.
                let cell = [(x, y), (x + width, y + height)];
                area.draw(&Rectangle::new(cell, colour.filled()))?;
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
        for expert in (0..columns).step_by(every(width, 42) as usize) {
            let x = LEFT + width * expert + width / 2;
            area.draw(&PathElement::new([(x, bottom), (x, bottom + 5)], INK))?;
            let style = style(15, HPos::Center, VPos::Top);
            area.draw_text(&expert.to_string(), &style, (x, bottom + 8))?;
        }
        for row in (0..self.rows()).step_by(every(height, 20) as usize) {
            let y = bottom - height * row - height / 2;
            area.draw(&PathElement::new([(LEFT - 5, y), (LEFT, y)], INK))?;
            let label = (first as i32 + row).to_string();
            area.draw_text(&label, &style(15, HPos::Right, VPos::Center), (LEFT - 9, y))?;
        }
        area.draw_text(
            "expert (in index order)",
            &style(17, HPos::Center, VPos::Top),
            ((LEFT + right) / 2, bottom + 32),
        )?;
        let upright = style(17, HPos::Center, VPos::Center).transform(FontTransform::Rotate270);
        area.draw_text("layer", &upright, (22, (TOP + bottom) / 2))?;

        self.legend(area, right.max(LEFT + LEAST_WIDTH) + GAP, bottom.max(TOP + 220), highest)
    }
}

impl Heatmap<'_> {
    fn legend<DB: DrawingBackend>(
        &self,
        area: &Canvas<'_, DB>,
        x: i32,
        bottom: i32,
        highest: f64,
    ) -> Drawn<DB> {
        let label = style(15, HPos::Left, VPos::Center);
        area.draw_text("share of decode tokens, %", &label, (x, TOP + 6))?;
        area.draw_text("(square-root scale)", &label, (x, TOP + 24))?;
        let (top, base) = (TOP + 48, bottom - 34);
        let length = (base - top).max(1);
        for y in 0..length {
            let share = f64::from(length - y) / f64::from(length);
            let strip = [(x, top + y), (x + BAR_WIDTH, top + y + 1)];
            area.draw(&Rectangle::new(strip, colour(share).filled()))?;
        }
        area.draw(&Rectangle::new([(x, top), (x + BAR_WIDTH, base)], INK.stroke_width(1)))?;
        let at =
            |share: f64| base - (along_scale(share, highest) * f64::from(length)).round() as i32;
        let uniform = f64::from(self.routing.top_k) / f64::from(self.routing.n_expert.max(1));
        let mut above = base + 2 * LABEL_HEIGHT;
        for percent in [0, 1, 2, 5, 10, 20, 30, 40, 60, 80, 100] {
            let y = at(f64::from(percent) / 100.0);
            if f64::from(percent) > highest * 100.0 || above - y < LABEL_HEIGHT {
                continue;
            }
            above = y;
            area.draw(&PathElement::new([(x + BAR_WIDTH, y), (x + BAR_WIDTH + 5, y)], INK))?;
            area.draw_text(&percent.to_string(), &label, (x + BAR_WIDTH + 9, y))?;
        }
        if uniform < highest {
            let y = at(uniform);
            area.draw(&PathElement::new([(x, y), (x + BAR_WIDTH, y)], WHITE.stroke_width(2)))?;
            let text_at = (x + BAR_WIDTH + 58, y);
            let pointer = [(x + BAR_WIDTH + 36, y), (text_at.0 - 5, y)];
            area.draw(&PathElement::new(pointer, INK))?;
            area.draw_text(&format!("{:.1} if even", uniform * 100.0), &label, text_at)?;
        }
        let swatch = [(x, bottom - 18), (x + BAR_WIDTH, bottom - 2)];
        area.draw(&Rectangle::new(swatch, UNUSED.filled()))?;
        area.draw(&Rectangle::new(swatch, INK.stroke_width(1)))?;
        area.draw_text("not used", &label, (x + BAR_WIDTH + 9, bottom - 10))
    }
}

/// Place of a share on the colour scale, 0 to 1. Most experts serve a few percent of the tokens and a few
/// serve nearly all; the square root keeps the many apart without flattening the few.
fn along_scale(share: f64, highest: f64) -> f64 {
    (share / highest).clamp(0.0, 1.0).sqrt()
}

/// Viridis: even steps look even, in grey and to colour-blind eyes too.
fn colour(share: f64) -> RGBColor {
    ViridisRGB.get_color(share.clamp(0.0, 1.0))
}
