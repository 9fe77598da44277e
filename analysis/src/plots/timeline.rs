//! What each decode token cost.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::canvas::{Canvas, Drawing, Drawn, Picture, style, tick_text, ticks};
use super::theme::{BACKGROUND, BLUE, FAINT, GREEN, GREY, INK, ORANGE, PURPLE, Theme};
use crate::data::TokenRow;
use crate::markdown::one_line;

const SIZE: (u32, u32) = (1280, 560);
const LEFT: i32 = 92;
const RIGHT: i32 = 1196;
const TOP: i32 = 118;
const BOTTOM: i32 = 492;
/// Bars stay at least two pixels wide.
const MOST_BARS: usize = 552;

const COMPUTE: RGBColor = BLUE;
const IO_WAIT: RGBColor = ORANGE;
const MGMT: RGBColor = GREEN;
const OTHER: RGBColor = GREY;
const HIT_RATE: RGBColor = PURPLE;

/// Stacked time terms per token, and the hit rate as a line on a second axis.
#[derive(Debug, Clone)]
pub struct Timeline<'a> {
    /// The decode steps, in order.
    pub tokens: &'a [TokenRow],
    /// The model's name.
    pub model: &'a str,
    /// The cell's name.
    pub cell: &'a str,
    /// The run reads experts itself; otherwise page faults are inside the compute time.
    pub streams: bool,
    /// Its reads overlap with computation, so that what is left of waiting is a stall.
    pub overlaps: bool,
    /// The run has a cache, so that it has a hit rate.
    pub cached: bool,
}

/// Means over the tokens of one bar.
struct Bar {
    terms_ms: [f64; 4],
    hit_rate: Option<f64>,
}

impl Timeline<'_> {
    /// Draws it.
    ///
    /// # Errors
    /// The plotting library failed.
    pub fn render(&self, theme: Theme) -> Result<Picture, String> {
        Picture::render(self, theme)
    }

    fn tokens_per_bar(&self) -> usize {
        self.tokens.len().div_ceil(MOST_BARS).max(1)
    }

    fn bars(&self) -> Vec<Bar> {
        self.tokens
            .chunks(self.tokens_per_bar())
            .map(|chunk| {
                let sum =
                    |of: fn(&TokenRow) -> Option<u64>| chunk.iter().filter_map(of).sum::<u64>();
                // A term that was not measured has no height and no place in the legend.
                let ms = |of| sum(of) as f64 / 1e6 / chunk.len() as f64;
                let hits = sum(|t| t.hits);
                let lookups = hits + sum(|t| t.misses);
                Bar {
                    terms_ms: [
                        ms(|t| Some(t.compute_ns)),
                        ms(|t| t.io_wait_ns),
                        ms(|t| t.mgmt_ns),
                        ms(|t| Some(t.other_ns)),
                    ],
                    hit_rate: (self.cached && lookups > 0).then(|| hits as f64 / lookups as f64),
                }
            })
            .collect()
    }

    fn legend(&self) -> Vec<(&'static str, RGBColor)> {
        let mut entries = vec![(
            if self.streams { "compute" } else { "compute (page faults are in here)" },
            COMPUTE,
        )];
        if self.streams {
            let wait = if self.overlaps { "stall" } else { "I/O wait" };
            entries.extend([(wait, IO_WAIT), ("cache management", MGMT)]);
        }
        entries.push(("other", OTHER));
        if self.cached {
            entries.push(("hit rate of the token (right axis)", HIT_RATE));
        }
        entries
    }
}

impl Drawing for Timeline<'_> {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw<DB: DrawingBackend>(&self, area: &Canvas<'_, DB>) -> Drawn<DB> {
        let bars = self.bars();
        let per_bar = self.tokens_per_bar();
        let highest = bars.iter().map(|b| b.terms_ms.iter().sum()).fold(0.0, f64::max);
        // Room above the bars, where a good hit rate runs.
        let room = if self.cached { 1.3 } else { 1.04 };
        let y_max = if highest > 0.0 { highest * room } else { 1.0 };
        let y = |ms: f64| BOTTOM - (ms / y_max * f64::from(BOTTOM - TOP)).round() as i32;
        let x = |token: f64| {
            let share = token / (bars.len().max(1) * per_bar) as f64;
            LEFT + (share * f64::from(RIGHT - LEFT)).round() as i32
        };

        let title = one_line(&format!("{}, {}", self.model, self.cell));
        area.draw_text(&title, &style(25, HPos::Left, VPos::Top), (16, 14))?;
        let mut what = format!("time of each of {} decode tokens", self.tokens.len());
        if per_bar > 1 {
            what.push_str(&format!(" (means of {per_bar})"));
        }
        area.draw_text(&what, &style(17, HPos::Left, VPos::Top), (16, 46))?;
        self.draw_legend(area)?;

        let levels = ticks(y_max, 6);
        for level in &levels {
            let at = y(*level);
            area.draw(&PathElement::new([(LEFT, at), (RIGHT, at)], FAINT))?;
            area.draw(&PathElement::new([(LEFT - 5, at), (LEFT, at)], INK))?;
            let text = tick_text(*level, &levels);
            area.draw_text(&text, &style(15, HPos::Right, VPos::Center), (LEFT - 9, at))?;
        }
        for (index, bar) in bars.iter().enumerate() {
            let (from, to) = (x((index * per_bar) as f64), x(((index + 1) * per_bar) as f64));
            // A hair of white between bars as long as they are wide enough to spare it.
            let to = if to - from >= 6 { to - 1 } else { to };
            let mut base = 0.0;
            for (term, colour) in bar.terms_ms.iter().zip([COMPUTE, IO_WAIT, MGMT, OTHER]) {
                let rectangle = [(from, y(base + term)), (to, y(base))];
                base += term;
                if rectangle[0].1 < rectangle[1].1 {
                    area.draw(&Rectangle::new(rectangle, colour.filled()))?;
                }
            }
        }
        if self.cached {
            self.draw_hit_rate(area, &bars, x)?;
        }
        let frame = [(LEFT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)];
        area.draw(&PathElement::new(frame, INK))?;
        for step in ticks(self.tokens.len() as f64, 12) {
            // Tick k stands under the middle of token k; there is no token 0.
            let token = if step == 0.0 { 1.0 } else { step };
            let at = x(token - 0.5);
            area.draw(&PathElement::new([(at, BOTTOM), (at, BOTTOM + 5)], INK))?;
            let text = format!("{token:.0}");
            area.draw_text(&text, &style(15, HPos::Center, VPos::Top), (at, BOTTOM + 8))?;
        }
        let middle = ((LEFT + RIGHT) / 2, BOTTOM + 34);
        area.draw_text("decode step (token)", &style(17, HPos::Center, VPos::Top), middle)?;
        let upright = style(17, HPos::Center, VPos::Center).transform(FontTransform::Rotate270);
        area.draw_text("time per token, ms", &upright, (22, (TOP + BOTTOM) / 2))
    }
}

impl Timeline<'_> {
    fn draw_legend<DB: DrawingBackend>(&self, area: &Canvas<'_, DB>) -> Drawn<DB> {
        let label = style(16, HPos::Left, VPos::Center);
        let mut x = LEFT;
        for (text, colour) in self.legend() {
            let y = 90;
            if colour == HIT_RATE {
                area.draw(&PathElement::new([(x, y), (x + 18, y)], HIT_RATE.stroke_width(3)))?;
            } else {
                area.draw(&Rectangle::new([(x, y - 8), (x + 18, y + 8)], colour.filled()))?;
            }
            area.draw_text(text, &label, (x + 25, y))?;
            let width = area.estimate_text_size(text, &label)?.0;
            x += 25 + width as i32 + 30;
        }
        Ok(())
    }

    fn draw_hit_rate<DB: DrawingBackend>(
        &self,
        area: &Canvas<'_, DB>,
        bars: &[Bar],
        x: impl Fn(f64) -> i32,
    ) -> Drawn<DB> {
        let y = |share: f64| BOTTOM - (share * f64::from(BOTTOM - TOP)).round() as i32;
        let per_bar = self.tokens_per_bar() as f64;
        let points: Vec<(i32, i32)> = bars
            .iter()
            .enumerate()
            .filter_map(|(i, bar)| Some((x((i as f64 + 0.5) * per_bar), y(bar.hit_rate?))))
            .collect();
        // A white rim keeps the line readable in front of the bars.
        area.draw(&PathElement::new(points.clone(), BACKGROUND.mix(0.85).stroke_width(5)))?;
        area.draw(&PathElement::new(points, HIT_RATE.stroke_width(2)))?;
        area.draw(&PathElement::new([(RIGHT, TOP), (RIGHT, BOTTOM)], HIT_RATE))?;
        let label = style(15, HPos::Left, VPos::Center).color(&HIT_RATE);
        for percent in [0, 25, 50, 75, 100] {
            let at = y(f64::from(percent) / 100.0);
            area.draw(&PathElement::new([(RIGHT, at), (RIGHT + 5, at)], HIT_RATE))?;
            area.draw_text(&percent.to_string(), &label, (RIGHT + 9, at))?;
        }
        let upright = style(17, HPos::Center, VPos::Center)
            .transform(FontTransform::Rotate90)
            .color(&HIT_RATE);
        area.draw_text("hit rate, %", &upright, (RIGHT + 58, (TOP + BOTTOM) / 2))
    }
}
