//! From tokens in file order to events, and what a sound file's order rules out.

use crate::record::Phase;

/// The highest number of a layer that is taken for one.
pub(super) const HIGHEST_LAYER: u32 = 65_535;

/// The highest expert that is taken for one.
pub(super) const HIGHEST_EXPERT: u32 = 65_535;

/// The highest top-k that is taken for one.
pub(super) const MOST_SLOTS: u32 = 1024;

/// One layer's routing of one token, in the order of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenOfLayer {
    pub(super) turn: u32,
    pub(super) phase: Phase,
    pub(super) layer: u32,
    pub(super) position: u32,
}

/// Where a token belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) event: u32,
    pub(super) ubatch: u32,
}

/// A token that can't stand where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disorder {
    Turn { last: u32 },
    Phase,
    Position { last: u32 },
    TooMany,
}

/// Groups tokens into events: consecutive prefill tokens of one layer are one event, a decode token of a layer is
/// one of its own. A micro-batch begins where the layers begin again.
#[derive(Debug, Default)]
pub(super) struct Order {
    last: Option<(TokenOfLayer, Place)>,
    /// Positions reached in this turn, by layer.
    reached: Vec<Option<u32>>,
}

impl Order {
    /// Takes the next token. Positions of a layer only grow within a turn, so that a repeated row is noticed
    /// without remembering all of them.
    #[inline]
    pub(super) fn next(&mut self, token: TokenOfLayer) -> Result<Place, Disorder> {
        let place = match self.last {
            None => Place { event: 0, ubatch: 0 },
            Some((last, at)) => {
                if token.turn != last.turn {
                    if token.turn < last.turn {
                        return Err(Disorder::Turn { last: last.turn });
                    }
                    self.reached.clear();
                } else if token.phase != last.phase && token.phase == Phase::Prefill {
                    return Err(Disorder::Phase);
                }
                let same_part = (token.turn, token.phase) == (last.turn, last.phase);
                if same_part && token.phase == Phase::Prefill && token.layer == last.layer {
                    at
                } else {
                    let again = !same_part || token.layer <= last.layer;
                    Place {
                        event: at.event.checked_add(1).ok_or(Disorder::TooMany)?,
                        ubatch: at.ubatch + u32::from(again),
                    }
                }
            }
        };
        let layer = token.layer as usize;
        if self.reached.len() <= layer {
            self.reached.resize(layer + 1, None);
        }
        match self.reached[layer] {
            Some(last) if token.position <= last => return Err(Disorder::Position { last }),
            _ => self.reached[layer] = Some(token.position),
        }
        self.last = Some((token, place));
        Ok(place)
    }
}

impl Disorder {
    /// What should have stood there.
    pub(super) fn expected(self, token: TokenOfLayer) -> String {
        match self {
            Self::Turn { last } => {
                format!("turn {last} or a later one, since turns follow each other")
            }
            Self::Phase => "no prefill behind the decode rows of the same turn".to_owned(),
            Self::Position { last } => format!(
                "more than {last}, which layer {} has had already in turn {} (a repeated or misplaced row)",
                token.layer, token.turn
            ),
            Self::TooMany => "at most 4294967295 events".to_owned(),
        }
    }
}

/// Which layers a trace has.
#[derive(Debug, Default)]
pub(super) struct LayersSeen {
    seen: Vec<bool>,
    /// The header lists them: others are wrong.
    listed: bool,
}

impl LayersSeen {
    /// Of a header's list; an empty one lists nothing.
    pub(super) fn listed(layers: impl IntoIterator<Item = u32>) -> Self {
        let mut these = Self::default();
        for layer in layers {
            these.add(layer);
            these.listed = true;
        }
        these
    }

    /// Takes note of a layer; `Err` when the header does not list it or no model has so many. `Ok(true)` = new.
    #[inline]
    pub(super) fn note(&mut self, layer: u32) -> Result<bool, ()> {
        match self.seen.get(layer as usize) {
            Some(true) => Ok(false),
            _ if self.listed || layer > HIGHEST_LAYER => Err(()),
            _ => {
                self.add(layer);
                Ok(true)
            }
        }
    }

    fn add(&mut self, layer: u32) {
        let index = layer as usize;
        if self.seen.len() <= index {
            self.seen.resize(index + 1, false);
        }
        self.seen[index] = true;
    }

    /// What a layer has to be, for an error.
    pub(super) fn expected(&self) -> String {
        if !self.listed {
            return format!("a layer, 0 to {HIGHEST_LAYER}");
        }
        let count = self.seen.iter().filter(|s| **s).count();
        let first = self.seen.iter().position(|s| *s).unwrap_or_default();
        let last = self.seen.len().saturating_sub(1);
        format!("one of the {count} layers that the header lists, {first} to {last}")
    }

    /// All of them, ascending.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        let numbered = self.seen.iter().zip(0_u32..);
        numbered.filter_map(|(seen, layer)| seen.then_some(layer))
    }
}
