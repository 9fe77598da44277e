//! Lines and bars over one axis.

use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::canvas::{Canvas, Drawing, Drawn, style, tick_text, ticks};
use super::theme::{FAINT, INK, REFERENCE};

const WIDTH: u32 = 1280;
const HEIGHT: u32 = 560;
const LEFT: i32 = 92;
const RIGHT: i32 = 1236;
const TOP: i32 = 118;
const BOTTOM: i32 = 492;

/// A picture with lines, bands and stacked bars.
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) subtitle: String,
    pub(super) x: Axis,
    pub(super) y_name: String,
    /// The y axis goes to here at least.
    pub(super) y_least: f64,
    pub(super) series: Vec<Series>,
    /// Lines across the picture, with their labels.
    pub(super) levels: Vec<(f64, String)>,
}

/// The lower axis.
pub(super) struct Axis {
    pub(super) name: String,
    pub(super) kind: AxisKind,
}

pub(super) enum AxisKind {
    /// Numbers between two bounds.
    Numbers(f64, f64),
    /// Numbers between two bounds above 0; equal ratios are equally long.
    Logarithmic(f64, f64),
    /// One place for each label; the first one's middle is at 0.5.
    Places(Vec<String>),
}

/// Something drawn over the axis.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) colour: RGBColor,
    pub(super) shape: Shape,
}

pub(super) enum Shape {
    /// A line through points.
    Line(Vec<(f64, f64)>),
    /// The same in dashes.
    Dashed(Vec<(f64, f64)>),
    /// What lies between two lines: x, low, high.
    Band(Vec<(f64, f64, f64)>),
    /// One bar for each place, on top of the bars of the series before.
    Bars(Vec<f64>),
}

impl Chart {
    fn x_range(&self) -> (f64, f64) {
        match &self.x.kind {
            AxisKind::Numbers(from, to) => (*from, to.max(from + 1e-9)),
            AxisKind::Logarithmic(from, to) => (from.log2(), to.max(from * 1.001).log2()),
            AxisKind::Places(labels) => (0.0, labels.len().max(1) as f64),
        }
    }

    fn highest(&self) -> f64 {
        let mut stacked: Vec<f64> = Vec::new();
        let mut highest = self.y_least;
        for series in &self.series {
            match &series.shape {
                Shape::Line(points) | Shape::Dashed(points) => {
                    highest = points.iter().map(|(_, y)| *y).fold(highest, f64::max);
                }
                Shape::Band(points) => {
                    highest = points.iter().map(|(_, _, y)| *y).fold(highest, f64::max);
                }
                Shape::Bars(values) => {
                    stacked.resize(stacked.len().max(values.len()), 0.0);
                    stacked.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                }
            }
        }
        stacked.into_iter().fold(highest, f64::max).max(f64::MIN_POSITIVE)
    }

    fn draw_series<DB: DrawingBackend>(
        &self,
        area: &Canvas<'_, DB>,
        x: &dyn Fn(f64) -> i32,
        y: &dyn Fn(f64) -> i32,
    ) -> Drawn<DB> {
        let mut base: Vec<f64> = Vec::new();
        for Series { colour, shape, .. } in &self.series {
            match shape {
                Shape::Band(points) => {
                    let upper = points.iter().map(|(at, _, high)| (x(*at), y(*high)));
                    let lower = points.iter().rev().map(|(at, low, _)| (x(*at), y(*low)));
                    let outline: Vec<_> = upper.chain(lower).collect();
                    area.draw(&Polygon::new(outline, colour.mix(0.22).filled()))?;
                }
                Shape::Line(points) => {
                    let path: Vec<_> = points.iter().map(|(at, to)| (x(*at), y(*to))).collect();
                    if path.len() <= 40 {
                        for place in &path {
                            area.draw(&Circle::new(*place, 3, colour.filled()))?;
                        }
                    }
                    area.draw(&PathElement::new(path, colour.stroke_width(2)))?;
                }
                Shape::Dashed(points) => {
                    let path: Vec<_> = points.iter().map(|(at, to)| (x(*at), y(*to))).collect();
                    area.draw(&DashedPathElement::new(path, 7, 5, colour.stroke_width(2)))?;
                }
                Shape::Bars(values) => {
                    base.resize(base.len().max(values.len()), 0.0);
                    for (place, (value, base)) in values.iter().zip(&mut base).enumerate() {
                        let (from, to) = (x(place as f64), x(place as f64 + 1.0));
                        // Air between bars as long as they are wide enough to spare it.
                        let air = if to - from >= 24 { 3 } else { i32::from(to - from >= 6) };
                        let bar = [(from + air, y(*base + value)), (to - air, y(*base))];
                        *base += value;
                        if bar[0].1 < bar[1].1 {
                            area.draw(&Rectangle::new(bar, colour.filled()))?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn draw_x_axis<DB: DrawingBackend>(
        &self,
        area: &Canvas<'_, DB>,
        x: &dyn Fn(f64) -> i32,
    ) -> Drawn<DB> {
        let marks: Vec<(f64, String)> = match &self.x.kind {
            AxisKind::Numbers(from, to) => {
                let steps = ticks(*to, 12);
                let mut marks: Vec<_> = steps
                    .iter()
                    .filter(|at| **at >= *from)
                    .map(|at| (*at, tick_text(*at, &steps)))
                    .collect();
                // Counting begins with 1.
                if *from == 1.0 {
                    marks.insert(0, (1.0, "1".to_owned()));
                }
                marks
            }
            AxisKind::Logarithmic(from, to) => {
                let decades = from.log10().floor() as i32..=to.log10().ceil() as i32;
                decades
                    .flat_map(|n| [1.0, 2.0, 5.0].map(|m| m * 10_f64.powi(n)))
                    .filter(|at| (*from..=*to).contains(at))
                    .map(|at| (at, at.to_string()))
                    .collect()
            }
            AxisKind::Places(labels) => {
                let width = (RIGHT - LEFT) / labels.len().max(1) as i32;
                let longest = labels.iter().map(|l| l.chars().count()).max().unwrap_or(1) as i32;
                let every = [1, 2, 4, 5, 8, 10, 16, 20, 50, 100, 200, 500, 1000];
                let needed = longest * 9 + 10;
                let every = every.into_iter().find(|n| n * width >= needed).unwrap_or(2000);
                let labels = labels.iter().enumerate().step_by(every as usize);
                labels.map(|(i, label)| (i as f64 + 0.5, label.clone())).collect()
            }
        };
        let mut free = i32::MIN;
        for (at, text) in marks {
            let place = x(at);
            let half = text.chars().count() as i32 * 5 + 4;
            if place - half < free {
                continue;
            }
            free = place + half;
            area.draw(&PathElement::new([(place, BOTTOM), (place, BOTTOM + 5)], INK))?;
            let label = style(15, HPos::Center, VPos::Top);
            area.draw_text(&text, &label, (place, BOTTOM + 8))?;
        }
        let below = ((LEFT + RIGHT) / 2, BOTTOM + 34);
        area.draw_text(&self.x.name, &style(17, HPos::Center, VPos::Top), below)
    }

    fn draw_legend<DB: DrawingBackend>(&self, area: &Canvas<'_, DB>) -> Drawn<DB> {
        let label = style(16, HPos::Left, VPos::Center);
        let named = || self.series.iter().filter(|s| !s.name.is_empty());
        let mut widths = Vec::new();
        for Series { name, .. } in named() {
            widths.push(25 + area.estimate_text_size(name, &label)?.0 as i32 + 30);
        }
        // As many lines as it takes; the last one is nearest to the picture.
        let places = wrapped(&widths);
        let last = places.last().map_or(0, |(_, line)| *line);
        for (Series { name, colour, shape }, (x, line)) in named().zip(places) {
            let y = if last == 0 { 94 } else { 103 - 21 * (last - line) };
            let box_of = [(x, y - 8), (x + 18, y + 8)];
            match shape {
                Shape::Line(_) => {
                    let line = [(x, y), (x + 18, y)];
                    area.draw(&PathElement::new(line, colour.stroke_width(3)))?;
                }
                Shape::Dashed(_) => {
                    let line = [(x, y), (x + 18, y)];
                    area.draw(&DashedPathElement::new(line, 7, 4, colour.stroke_width(3)))?;
                }
                Shape::Band(_) => area.draw(&Rectangle::new(box_of, colour.mix(0.22).filled()))?,
                Shape::Bars(_) => area.draw(&Rectangle::new(box_of, colour.filled()))?,
            }
            area.draw_text(name, &label, (x + 25, y))?;
        }
        Ok(())
    }
}

impl Drawing for Chart {
    fn size(&self) -> (u32, u32) {
        (WIDTH, HEIGHT)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Canvas<'_, DB>) -> Drawn<DB> {
        area.draw_text(&self.title, &style(25, HPos::Left, VPos::Top), (16, 14))?;
        area.draw_text(&self.subtitle, &style(17, HPos::Left, VPos::Top), (16, 46))?;
        let (from, to) = self.x_range();
        // A little room above what is drawn.
        let highest = self.highest() * 1.04;
        let logarithmic = matches!(self.x.kind, AxisKind::Logarithmic(..));
        let x = |at: f64| {
            let at = if logarithmic { at.max(f64::MIN_POSITIVE).log2().max(from) } else { at };
            LEFT + ((at - from) / (to - from) * f64::from(RIGHT - LEFT)).round() as i32
        };
        let y = |at: f64| BOTTOM - (at / highest * f64::from(BOTTOM - TOP)).round() as i32;
        let steps = ticks(highest, 6);
        for step in &steps {
            let at = y(*step);
            area.draw(&PathElement::new([(LEFT, at), (RIGHT, at)], FAINT))?;
            let label = style(15, HPos::Right, VPos::Center);
            area.draw_text(&tick_text(*step, &steps), &label, (LEFT - 9, at))?;
        }
        self.draw_series(area, &x, &y)?;
        let mut free = i32::MAX;
        let mut levels: Vec<_> = self.levels.iter().filter(|(at, _)| *at <= highest).collect();
        levels.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (level, text) in levels {
            let at = y(*level);
            area.draw(&PathElement::new([(LEFT, at), (RIGHT, at)], REFERENCE))?;
            // A label that would touch the one below it is left out; its line stays.
            if at <= free - 20 {
                let label = style(15, HPos::Right, VPos::Bottom).color(&REFERENCE);
                area.draw_text(text, &label, (RIGHT - 6, at - 3))?;
                free = at;
            }
        }
        let frame = [(LEFT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)];
        area.draw(&PathElement::new(frame, INK))?;
        self.draw_x_axis(area, &x)?;
        let upright = style(17, HPos::Center, VPos::Center).transform(FontTransform::Rotate270);
        area.draw_text(&self.y_name, &upright, (22, (TOP + BOTTOM) / 2))?;
        self.draw_legend(area)
    }
}

/// Where entries of a legend stand: x and line.
fn wrapped(widths: &[i32]) -> Vec<(i32, i32)> {
    let (mut x, mut line) = (LEFT, 0);
    let place = |width: &i32| {
        if x > LEFT && x + width > WIDTH as i32 {
            (x, line) = (LEFT, line + 1);
        }
        let place = (x, line);
        x += width;
        place
    };
    widths.iter().map(place).collect()
}

/// Charts below each other.
pub(super) struct Panels(pub(super) Vec<Chart>);

impl Drawing for Panels {
    fn size(&self) -> (u32, u32) {
        (WIDTH, HEIGHT * self.0.len().max(1) as u32)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Canvas<'_, DB>) -> Drawn<DB> {
        for (chart, part) in self.0.iter().zip(area.split_evenly((self.0.len().max(1), 1))) {
            chart.draw(&part)?;
        }
        Ok(())
    }
}
