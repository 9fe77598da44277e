//! All colours. They are told apart by colour-blind eyes and in grey: lines and bars are of the Okabe-Ito palette,
//! amounts are viridis.

use plotters::prelude::*;

/// Behind everything.
pub(super) const BACKGROUND: RGBColor = WHITE;
/// Text and axes.
pub(super) const INK: RGBColor = RGBColor(0x26, 0x26, 0x26);
/// Lines that only guide the eye.
pub(super) const FAINT: RGBColor = RGBColor(0xd9, 0xd9, 0xd9);
/// Cells of a grid without an amount.
pub(super) const UNUSED: RGBColor = RGBColor(0xec, 0xec, 0xec);
/// Lines of reference.
pub(super) const REFERENCE: RGBColor = RGBColor(0x70, 0x70, 0x70);

pub(super) const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xb2);
pub(super) const ORANGE: RGBColor = RGBColor(0xe6, 0x9f, 0x00);
pub(super) const GREEN: RGBColor = RGBColor(0x00, 0x9e, 0x73);
pub(super) const RED: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
pub(super) const SKY: RGBColor = RGBColor(0x56, 0xb4, 0xe9);
pub(super) const PURPLE: RGBColor = RGBColor(0xb0, 0x1e, 0x6c);
pub(super) const GREY: RGBColor = RGBColor(0xa6, 0xa6, 0xa6);

/// Lines of a picture that has many, in their order.
pub(super) const SERIES: [RGBColor; 7] = [BLUE, RED, GREEN, PURPLE, ORANGE, SKY, GREY];

/// An amount between nothing (0) and the most (1): even steps look even.
pub(super) fn amount(share: f64) -> RGBColor {
    ViridisRGB.get_color(share.clamp(0.0, 1.0))
}
