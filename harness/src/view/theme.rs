//! Colours by what they mean. Nothing is told by colour alone: every role that carries meaning has a mark or a
//! word beside it, and without colours those are all there is.

use ratatui::style::{Color, Modifier, Style};

/// What something on the screen is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Plain text.
    Text,
    /// Less important text: units, labels.
    Dim,
    /// A title, a figure to look at.
    Strong,
    /// Time in which the graph computed.
    Compute,
    /// Time blocked on reads.
    Io,
    /// Time in which computation waited for reads that overlap with it.
    Stall,
    /// Time of cache management.
    Mgmt,
    /// Time that is none of the others.
    Other,
    /// What went well: a valid run, a hit.
    Good,
    /// What went wrong: a failed run, a miss.
    Bad,
    /// What should be looked at: a change of the budget, a run that waits.
    Warn,
    /// What is selected.
    Cursor,
    /// Lines around panels.
    Border,
    /// What the model thinks.
    Thought,
    /// What a person said.
    Person,
}

/// On what the viewer draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ground {
    /// Bright text on a dark ground.
    #[default]
    Dark,
    /// Dark text on a bright ground.
    Light,
    /// No colours: the terminal has none, or `NO_COLOR` is set.
    Plain,
}

/// The colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Theme {
    ground: Ground,
}

/// Steps of the heat scale without colours, from nothing to the most.
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
/// The scale's colours, from little to much: palettes that stay apart for colour-blind eyes, their lightness
/// falling or rising all the way.
const DARK_HEAT: [u8; 8] = [17, 54, 90, 126, 162, 203, 215, 229];
const LIGHT_HEAT: [u8; 8] = [230, 223, 215, 209, 167, 125, 89, 53];

impl Theme {
    /// A theme for a ground.
    #[must_use]
    pub const fn new(ground: Ground) -> Self {
        Self { ground }
    }

    /// What the environment asks for: `NO_COLOR` and `TERM=dumb` mean no colours, `COLORFGBG` tells some
    /// terminals' ground, which is dark where nothing is said.
    #[must_use]
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Self {
        if var("NO_COLOR").is_some_and(|v| !v.is_empty()) || var("TERM").as_deref() == Some("dumb")
        {
            return Self::new(Ground::Plain);
        }
        let ground = var("COLORFGBG").and_then(|v| v.rsplit(';').next()?.parse::<u8>().ok());
        Self::new(match ground {
            Some(7 | 9..=15) => Ground::Light,
            _ => Ground::Dark,
        })
    }

    /// Its ground.
    #[must_use]
    pub const fn ground(self) -> Ground {
        self.ground
    }

    /// How something looks.
    #[must_use]
    pub fn style(self, role: Role) -> Style {
        let plain = Style::new();
        let modified = match role {
            Role::Strong => plain.add_modifier(Modifier::BOLD),
            Role::Cursor => plain.add_modifier(Modifier::REVERSED),
            Role::Bad => plain.add_modifier(Modifier::BOLD),
            Role::Thought => plain.add_modifier(Modifier::ITALIC),
            Role::Dim if self.ground == Ground::Plain => plain.add_modifier(Modifier::DIM),
            _ => plain,
        };
        match self.colour(role) {
            Some(colour) => modified.fg(colour),
            None => modified,
        }
    }

    fn colour(self, role: Role) -> Option<Color> {
        let (dark, light) = match role {
            Role::Text | Role::Strong | Role::Cursor => return None,
            Role::Dim | Role::Thought => (246, 242),
            Role::Border => (240, 248),
            Role::Compute => (75, 25),
            Role::Io => (214, 130),
            Role::Stall => (203, 160),
            Role::Mgmt => (141, 92),
            Role::Other => (245, 246),
            Role::Good => (114, 28),
            Role::Bad => (210, 124),
            Role::Warn => (221, 94),
            Role::Person => (80, 30),
        };
        match self.ground {
            Ground::Dark => Some(Color::Indexed(dark)),
            Ground::Light => Some(Color::Indexed(light)),
            Ground::Plain => None,
        }
    }

    /// The colour of a share (0 to 1) of the most; `None` for nothing at all and without colours. To be shown
    /// beside [`Self::shade`] or a figure.
    #[must_use]
    pub fn heat(self, share: f64) -> Option<Color> {
        let scale = match self.ground {
            Ground::Dark => DARK_HEAT,
            Ground::Light => LIGHT_HEAT,
            Ground::Plain => return None,
        };
        let step = step(share, scale.len())?;
        Some(Color::Indexed(scale[step]))
    }

    /// The mark of a share (0 to 1) of the most: a blank for nothing, and something for anything at all.
    #[must_use]
    pub fn shade(self, share: f64) -> char {
        step(share, SHADES.len() - 1).map_or(SHADES[0], |step| SHADES[step + 1])
    }
}

/// Which of `steps` a share falls into; `None` for nothing.
fn step(share: f64, steps: usize) -> Option<usize> {
    (share > 0.0).then(|| ((share * steps as f64).ceil() as usize).clamp(1, steps) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(vars: &[(&str, &str)]) -> Ground {
        let var = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Theme::from_env(var).ground()
    }

    #[test]
    fn the_environment_decides() {
        assert_eq!(of(&[]), Ground::Dark);
        assert_eq!(of(&[("COLORFGBG", "0;15")]), Ground::Light);
        assert_eq!(of(&[("COLORFGBG", "15;default;0")]), Ground::Dark);
        assert_eq!(of(&[("NO_COLOR", "1"), ("COLORFGBG", "0;15")]), Ground::Plain);
        assert_eq!(of(&[("NO_COLOR", "")]), Ground::Dark);
        assert_eq!(of(&[("TERM", "dumb")]), Ground::Plain);
    }

    #[test]
    fn anything_at_all_is_seen_and_plain_has_no_colour() {
        let (dark, plain) = (Theme::new(Ground::Dark), Theme::new(Ground::Plain));
        assert_eq!((dark.shade(0.0), dark.shade(1e-9), dark.shade(1.0)), (' ', '░', '█'));
        assert_eq!(dark.heat(0.0), None);
        assert!(dark.heat(1e-9).is_some() && plain.heat(1.0).is_none());
        assert_eq!(plain.style(Role::Io).fg, None);
        assert_ne!(dark.style(Role::Io).fg, dark.style(Role::Compute).fg);
    }
}
