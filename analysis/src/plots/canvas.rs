//! One drawing to two formats, and the text styles that both share.

use std::sync::Once;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::dark::Dark;
use super::theme::{BACKGROUND, INK, Theme, themed};

/// The family in SVG files, where the viewer's fonts serve (Verdana is as wide); in PNG files it is the font that the
/// program carries.
pub(super) const FONT: &str = "DejaVu Sans, Verdana, sans-serif";
static FONT_BYTES: &[u8] = include_bytes!("../../fonts/DejaVuSans.ttf");

pub(super) type Canvas<'a, DB> = DrawingArea<DB, Shift>;
pub(super) type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// Something that can be drawn on any backend.
pub(super) trait Drawing {
    /// Width and height, pixels.
    fn size(&self) -> (u32, u32);
    /// Draws it on an empty area of that size.
    fn draw<DB: DrawingBackend>(&self, area: &Canvas<'_, DB>) -> Drawn<DB>;
}

/// A finished picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// SVG text.
    pub svg: String,
    /// PNG file.
    pub png: Vec<u8>,
}

impl Picture {
    pub(super) fn render(drawing: &impl Drawing, theme: Theme) -> Result<Self, String> {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            // It fails only for bytes that are no font, and then drawing text says so.
            let _ = register_font(FONT, FontStyle::Normal, FONT_BYTES);
        });
        let size = drawing.size();
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            paint(drawing, &area).map_err(|e| e.to_string())?;
        }
        let mut pixels = vec![0; size.0 as usize * size.1 as usize * 3];
        {
            let backend = BitMapBackend::with_buffer(&mut pixels, size);
            match theme {
                Theme::Dark => paint(drawing, &Dark(backend).into_drawing_area()),
                Theme::Auto | Theme::Light => paint(drawing, &backend.into_drawing_area()),
            }
            .map_err(|e| e.to_string())?;
        }
        let png = encode_png(&pixels, size).map_err(|e| e.to_string())?;
        Ok(Self { svg: themed(svg, theme), png })
    }
}

fn paint<DB: DrawingBackend>(drawing: &impl Drawing, area: &Canvas<'_, DB>) -> Drawn<DB> {
    area.fill(&BACKGROUND)?;
    drawing.draw(area)?;
    area.present()
}

fn encode_png(pixels: &[u8], (width, height): (u32, u32)) -> Result<Vec<u8>, png::EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    // Flat areas: an eighth of the size that the defaults, made for photographs, give.
    encoder.set_compression(png::Compression::Best);
    encoder.set_filter(png::FilterType::NoFilter);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(bytes)
}

/// Text style of a size, anchored at a corner, edge or the middle.
pub(super) fn style(size: u32, h: HPos, v: VPos) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK).pos(Pos::new(h, v))
}

/// Round steps (1, 2 or 5 times a power of ten) that cut 0..=max into at most `most` parts.
pub(super) fn ticks(max: f64, most: usize) -> Vec<f64> {
    if max <= 0.0 || !max.is_finite() || most == 0 {
        return vec![0.0];
    }
    let rough = max / most as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|step| *step >= rough * (1.0 - 1e-9))
        .unwrap_or(10.0 * power);
    let count = (max / step * (1.0 + 1e-9)).floor() as usize;
    (0..=count).map(|i| i as f64 * step).collect()
}

/// A tick's text with no more decimals than the steps need.
pub(super) fn tick_text(value: f64, ticks: &[f64]) -> String {
    let step = ticks.get(1).copied().unwrap_or(1.0);
    let decimals = if step >= 1.0 { 0 } else { (-step.log10().floor()) as usize };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_stay_below_the_maximum() {
        assert_eq!(ticks(100.0, 5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(7.3, 5), [0.0, 2.0, 4.0, 6.0]);
        assert_eq!(ticks(0.0, 5), [0.0]);
        let small = ticks(0.09, 4);
        assert_eq!(tick_text(small[1], &small), "0.05");
    }
}
