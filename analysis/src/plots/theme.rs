//! All colours. They are told apart by colour-blind eyes and in grey: lines and bars are of the Okabe-Ito palette,
//! amounts are viridis.
//!
//! Drawings name the colours of the light theme; a backend or the SVG's style gives the dark one's for them.

use std::fmt::Write as _;
use std::str::FromStr;

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

/// Each colour on a light background, and what it is on a dark one. Amounts are the same on both.
const DARK: [(RGBColor, RGBColor); 12] = [
    (BACKGROUND, RGBColor(0x16, 0x18, 0x1d)),
    (INK, RGBColor(0xe4, 0xe6, 0xea)),
    (FAINT, RGBColor(0x3a, 0x3f, 0x49)),
    (UNUSED, RGBColor(0x2a, 0x2e, 0x36)),
    (REFERENCE, RGBColor(0x9a, 0xa0, 0xab)),
    (BLUE, RGBColor(0x3d, 0x9b, 0xe0)),
    (ORANGE, RGBColor(0xf0, 0xb4, 0x32)),
    (GREEN, RGBColor(0x1f, 0xbf, 0x92)),
    (RED, RGBColor(0xf0, 0x79, 0x3a)),
    (SKY, RGBColor(0xa8, 0xda, 0xf7)),
    (PURPLE, RGBColor(0xe0, 0x70, 0xb0)),
    (GREY, RGBColor(0x8b, 0x90, 0x9a)),
];

/// An amount between nothing (0) and the most (1): even steps look even.
pub(super) fn amount(share: f64) -> RGBColor {
    ViridisRGB.get_color(share.clamp(0.0, 1.0))
}

/// Which background a picture has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Theme {
    /// In an SVG what the viewer prefers, in a PNG light.
    #[default]
    Auto,
    /// Light.
    Light,
    /// Dark.
    Dark,
}

impl Theme {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Light, Self::Dark];

    /// The name on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

impl FromStr for Theme {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let theme = Self::ALL.into_iter().find(|theme| theme.name() == text);
        theme.ok_or_else(|| "choose one of auto, light, dark".to_owned())
    }
}

/// A colour on a dark background.
pub(super) fn darkened(colour: (u8, u8, u8)) -> (u8, u8, u8) {
    let dark = DARK.iter().find(|(light, _)| light.rgb() == colour);
    dark.map_or(colour, |(_, dark)| dark.rgb())
}

/// An SVG that was drawn light, in a theme.
pub(super) fn themed(svg: String, theme: Theme) -> String {
    let hex = |RGBColor(r, g, b): RGBColor| format!("#{r:02X}{g:02X}{b:02X}");
    match theme {
        Theme::Light => svg,
        Theme::Auto => {
            let mut style = "\n<style>@media (prefers-color-scheme: dark) {".to_owned();
            for (light, dark) in DARK {
                for part in ["fill", "stroke"] {
                    let (light, dark) = (hex(light), hex(dark));
                    // Writing into a string can't fail.
                    let _ = write!(style, " svg [{part}=\"{light}\"] {{ {part}: {dark} }}");
                }
            }
            style.push_str(" }</style>");
            let at = svg.find('>').map_or(0, |end| end + 1);
            let mut svg = svg;
            svg.insert_str(at, &style);
            svg
        }
        Theme::Dark => {
            // One walk: a dark colour may be another's light one.
            let mut dark = String::with_capacity(svg.len());
            let mut parts = svg.split("=\"#");
            dark.push_str(parts.next().unwrap_or_default());
            for part in parts {
                let colour = DARK.iter().find(|(light, _)| part.starts_with(&hex(*light)[1..]));
                dark.push_str("=\"");
                match colour {
                    Some((light, to)) => {
                        dark.push_str(&hex(*to));
                        dark.push_str(&part[hex(*light).len() - 1..]);
                    }
                    None => {
                        dark.push('#');
                        dark.push_str(part);
                    }
                }
            }
            dark
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn svgs_follow_the_viewer_or_are_dark() {
        let svg = "<svg a=\"1\">\n<text fill=\"#262626\">fill=&quot;#262626</text><i stroke=\"#123456\"/></svg>";
        let auto = themed(svg.to_owned(), Theme::Auto);
        assert!(auto.starts_with("<svg a=\"1\">\n<style>@media (prefers-color-scheme: dark) {"));
        assert!(auto.contains("svg [fill=\"#262626\"] { fill: #E4E6EA }"));
        assert_eq!(themed(svg.to_owned(), Theme::Light), svg);
        assert_eq!(themed(svg.to_owned(), Theme::Dark), svg.replacen("#262626", "#E4E6EA", 1));
        assert_eq!("dark".parse(), Ok(Theme::Dark));
        assert!("grey".parse::<Theme>().is_err());
    }

    /// WCAG's contrast of two colours.
    fn contrast(a: RGBColor, b: RGBColor) -> f64 {
        let luminance = |RGBColor(r, g, b): RGBColor| {
            let linear = |c: u8| {
                let c = f64::from(c) / 255.0;
                if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
        };
        let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
        a.max(b) / a.min(b)
    }

    #[test]
    fn text_and_lines_stand_out_on_both_backgrounds() {
        let dark = |colour: RGBColor| {
            let (r, g, b) = darkened(colour.rgb());
            RGBColor(r, g, b)
        };
        for (colour, least) in
            [(INK, 12.0), (REFERENCE, 4.5), (BLUE, 3.0), (RED, 3.0), (PURPLE, 3.0)]
        {
            assert!(contrast(colour, BACKGROUND) >= least, "{colour:?}");
            assert!(contrast(dark(colour), dark(BACKGROUND)) >= least, "{colour:?}");
        }
    }
}
