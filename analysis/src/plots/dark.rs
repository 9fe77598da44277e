//! Draws in the colours of the dark theme.

use plotters::prelude::DrawingBackend;
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, DrawingErrorKind};

use super::theme::darkened;

/// A backend that is given the light theme's colours and passes on the dark one's.
pub(super) struct Dark<DB>(pub(super) DB);

struct DarkStyle {
    color: BackendColor,
    stroke_width: u32,
}

impl DarkStyle {
    fn of(style: &impl BackendStyle) -> Self {
        Self { color: dark(style.color()), stroke_width: style.stroke_width() }
    }
}

impl BackendStyle for DarkStyle {
    fn color(&self) -> BackendColor {
        self.color
    }

    fn stroke_width(&self) -> u32 {
        self.stroke_width
    }
}

fn dark(color: BackendColor) -> BackendColor {
    BackendColor { rgb: darkened(color.rgb), ..color }
}

/// What a backend for pixels does itself is passed on; all else it makes of these.
impl<DB: DrawingBackend> DrawingBackend for Dark<DB> {
    type ErrorType = DB::ErrorType;

    fn get_size(&self) -> (u32, u32) {
        self.0.get_size()
    }

    fn ensure_prepared(&mut self) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.0.ensure_prepared()
    }

    fn present(&mut self) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.0.present()
    }

    fn draw_pixel(
        &mut self,
        point: BackendCoord,
        color: BackendColor,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.0.draw_pixel(point, dark(color))
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.0.draw_line(from, to, &DarkStyle::of(style))
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        upper_left: BackendCoord,
        bottom_right: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.0.draw_rect(upper_left, bottom_right, &DarkStyle::of(style), fill)
    }
}
