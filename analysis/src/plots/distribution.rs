//! How the rates of single tokens are spread in each cell.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::canvas::{Canvas, Drawing, Drawn, Picture, style, tick_text, ticks};
use super::theme::{BACKGROUND, BLUE, FAINT, INK, ORANGE, Theme};
use crate::markdown::one_line;
use crate::stats::percentile;

const WIDTH: u32 = 1280;
const RIGHT: i32 = 1236;
const TOP: i32 = 106;
const ROW: i32 = 54;
const BOTTOM: i32 = 74;
/// Half of a row's shape at its widest.
const HALF: f64 = 20.0;
/// Longer names take two lines, the second of which may end in an ellipsis.
const LONGEST_LINE: usize = 46;
/// From one line of a name to the next.
const LINE: i32 = 20;
const BINS: usize = 160;

/// A shape for each cell, as wide as many tokens had that rate, with the quartiles and the 5th and 95th percentiles.
#[derive(Debug, Clone)]
pub struct Distribution<'a> {
    /// The model's name.
    pub model: &'a str,
    /// Cells with the rates of their tokens, tok/s, all repetitions together, in any order.
    pub cells: Vec<(&'a str, Vec<f64>)>,
}

impl Distribution<'_> {
    /// Draws it.
    ///
    /// # Errors
    /// The plotting library failed.
    pub fn render(&self, theme: Theme) -> Result<Picture, String> {
        Picture::render(self, theme)
    }

    /// The highest rate that is shown: a few tokens that were far faster leave the others room.
    fn highest(&self) -> f64 {
        let of_cell = |rates: &Vec<f64>| {
            let sorted = sorted(rates);
            percentile(&sorted, 0.99).unwrap_or(0.0) * 1.12
        };
        self.cells.iter().map(|(_, rates)| of_cell(rates)).fold(f64::MIN_POSITIVE, f64::max)
    }
}

fn sorted(rates: &[f64]) -> Vec<f64> {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// A Gaussian kernel's density at evenly spaced places from 0 to `highest`, its highest value 1. The kernel's width is
/// Silverman's.
fn density(sorted: &[f64], highest: f64) -> Vec<f64> {
    let n = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / n;
    let deviation = (sorted.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / n).sqrt();
    let quartiles = percentile(sorted, 0.75).zip(percentile(sorted, 0.25));
    let spread = quartiles.map_or(deviation, |(upper, lower)| (upper - lower) / 1.34);
    let narrower = if spread > 0.0 { deviation.min(spread) } else { deviation };
    let width = (0.9 * narrower * n.powf(-0.2)).max(highest / BINS as f64);
    let at = |bin: usize| highest * bin as f64 / BINS as f64;
    let density: Vec<f64> = (0..=BINS)
        .map(|bin| sorted.iter().map(|r| (-((at(bin) - r) / width).powi(2) / 2.0).exp()).sum())
        .collect();
    let most = density.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    density.into_iter().map(|d| d / most).collect()
}

/// Whether a density is at least a pixel high.
fn thick(density: &f64) -> bool {
    HALF * density >= 0.5
}

/// A name in at most two lines, broken behind a comma where there is one.
fn lines(name: &str) -> Vec<String> {
    let name = one_line(name);
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= LONGEST_LINE {
        return vec![name];
    }
    let comma = chars[..LONGEST_LINE].iter().rposition(|c| *c == ',');
    let (first, second) = chars.split_at(comma.map_or(LONGEST_LINE, |at| at + 1));
    let second = second.strip_prefix(&[' ']).unwrap_or(second);
    let text = |chars: &[char]| chars.iter().collect::<String>().trim().to_owned();
    let second = match second.len() {
        0..=LONGEST_LINE => text(second),
        _ => text(&second[..LONGEST_LINE - 1]) + "…",
    };
    vec![text(first), second]
}

impl Drawing for Distribution<'_> {
    fn size(&self) -> (u32, u32) {
        (WIDTH, (TOP + ROW * self.cells.len().max(1) as i32 + BOTTOM) as u32)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Canvas<'_, DB>) -> Drawn<DB> {
        let title = format!("{}: rates of single tokens", one_line(self.model));
        area.draw_text(&title, &style(25, HPos::Left, VPos::Top), (16, 14))?;
        let subtitle = "decode tokens of all runs that count; line: 5th to 95th percentile, box: middle half, dot: median; the shape is a kernel density";
        area.draw_text(subtitle, &style(17, HPos::Left, VPos::Top), (16, 46))?;

        let names: Vec<Vec<String>> = self.cells.iter().map(|(name, _)| lines(name)).collect();
        let label = style(15, HPos::Right, VPos::Center);
        let mut left = 60;
        for name in names.iter().flatten() {
            left = left.max(area.estimate_text_size(name, &label)?.0 as i32 + 30);
        }
        let (highest, bottom) = (self.highest(), TOP + ROW * names.len() as i32);
        let x = |rate: f64| {
            let share = rate.clamp(0.0, highest) / highest;
            left + (share * f64::from(RIGHT - left)).round() as i32
        };
        let steps = ticks(highest, 10);
        for step in &steps {
            let at = x(*step);
            area.draw(&PathElement::new([(at, TOP), (at, bottom)], FAINT))?;
            let label = style(15, HPos::Center, VPos::Top);
            area.draw_text(&tick_text(*step, &steps), &label, (at, bottom + 8))?;
        }
        for (row, ((_, rates), name)) in self.cells.iter().zip(&names).enumerate() {
            let middle = TOP + ROW * row as i32 + ROW / 2;
            let first = middle - LINE / 2 * (name.len() as i32 - 1);
            for (line, at) in name.iter().zip((first..).step_by(LINE as usize)) {
                area.draw_text(line, &label, (left - 12, at))?;
            }
            let sorted = sorted(rates);
            let at = |share: f64| percentile(&sorted, share).map(x);
            let Some(((p5, p95), (lower, (median, upper)))) =
                at(0.05).zip(at(0.95)).zip(at(0.25).zip(at(0.5).zip(at(0.75))))
            else {
                continue;
            };
            let shape = density(&sorted, highest);
            // Where hardly any token was the shape would be a line.
            let (first, last) = (shape.iter().position(thick), shape.iter().rposition(thick));
            let shown = first.unwrap_or(0)..last.unwrap_or(0) + 1;
            let edge = |sign: f64| {
                let shown = shape.iter().enumerate().take(shown.end).skip(shown.start);
                shown.map(move |(bin, density)| {
                    let rate = highest * bin as f64 / BINS as f64;
                    (x(rate), middle + (sign * HALF * density).round() as i32)
                })
            };
            let outline: Vec<_> = edge(-1.0).chain(edge(1.0).rev()).collect();
            area.draw(&Polygon::new(outline, BLUE.mix(0.35).filled()))?;
            area.draw(&PathElement::new([(p5, middle), (p95, middle)], INK.stroke_width(1)))?;
            area.draw(&Rectangle::new([(lower, middle - 5), (upper, middle + 5)], BLUE.filled()))?;
            area.draw(&Circle::new((median, middle), 6, INK.filled()))?;
            area.draw(&Circle::new((median, middle), 4, ORANGE.filled()))?;
        }
        area.draw(&PathElement::new([(left, TOP), (left, bottom), (RIGHT, bottom)], INK))?;
        let below = ((left + RIGHT) / 2, bottom + 34);
        area.draw_text("tok/s", &style(17, HPos::Center, VPos::Top), below)?;
        // Nothing of the shapes may stick out on the left.
        area.draw(&Rectangle::new([(left - 4, TOP), (left - 1, bottom)], BACKGROUND.filled()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn density_has_its_mode_where_most_tokens_are() {
        let rates = sorted(&[10.0, 10.2, 9.9, 10.1, 10.0, 20.0]);
        let density = density(&rates, 40.0);
        let mode = density.iter().position(|d| *d == 1.0).unwrap();
        assert!(mode.abs_diff(BINS / 4) <= 1, "{mode}");
        assert!(density[BINS / 2] > 0.0 && density[BINS / 2] < 0.5 && density[BINS] < 1e-6);
        // All the same, or only one.
        assert!(super::density(&[5.0], 10.0).iter().all(|d| d.is_finite()));
    }

    #[test]
    fn every_cell_has_a_row() {
        let long = "a very long name of a configuration that would leave no room <at all>";
        let cells = vec![("mmap", vec![3.0, 4.0, 5.0]), (long, vec![8.0; 20]), ("none", vec![])];
        let distribution = Distribution { model: "m", cells };
        let svg = distribution.render(Theme::Light).unwrap().svg;
        assert_eq!(svg.matches("<polygon").count(), 2);
        for line in ["a very long name of a configuration that would", "leave no room"] {
            assert!(svg.contains(line), "{line}");
        }
    }

    #[test]
    fn names_that_differ_at_their_ends_stay_apart() {
        let both = "stream, cache 4000 MiB, 4 lanes, overlap";
        assert_eq!(lines(both), [both]);
        let name = |more: &str| lines(&format!("{both}, {more}"));
        assert_eq!(name("top-k 6"), ["stream, cache 4000 MiB, 4 lanes, overlap,", "top-k 6"]);
        let (long, endless) = ("x".repeat(46), "x".repeat(47));
        assert_eq!(name(&long)[1], long);
        assert_eq!(name(&endless)[1], "x".repeat(45) + "…");
        assert_eq!(lines(&"é".repeat(50)), ["é".repeat(46), "é".repeat(4)]);
    }
}
