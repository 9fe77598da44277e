//! From tokens in file order to events, and what a sound file's order rules out.

use super::steps::{Begins, Lost, Steps};
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Disorder {
    Turn { last: u32 },
    Phase,
    Position { last: u32 },
    Lost(Lost),
    TooMany,
}

/// Groups tokens into events: consecutive prefill tokens of one layer are one event, a decode token of a layer is
/// one of its own. A micro-batch begins where the layers begin again.
#[derive(Debug)]
pub(super) struct Order {
    last: Option<(TokenOfLayer, Place)>,
    /// Positions reached in this turn, by layer.
    reached: Vec<Option<u32>>,
    steps: Steps,
}

impl Order {
    /// Of a trace whose header lists these layers, ascending; none = it does not list them.
    pub(super) fn new(listed: Vec<u32>) -> Self {
        Self { last: None, reached: Vec::new(), steps: Steps::new(listed) }
    }

    /// What is unfinished at the end of the file, for people.
    pub(super) fn notes(&self) -> Vec<String> {
        self.steps.notes()
    }

    /// Takes the next token. Positions of a layer only grow within a turn, so that a repeated row is noticed
    /// without remembering all of them.
    #[inline]
    pub(super) fn next(&mut self, token: TokenOfLayer) -> Result<Place, Disorder> {
        let (place, begins) = match self.last {
            None => (Place { event: 0, ubatch: 0 }, Begins::Turn),
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
                    (at, Begins::Nothing)
                } else {
                    let again = token.layer <= last.layer;
                    let begins = match (same_part, again) {
                        (false, _) if token.turn != last.turn => Begins::Turn,
                        (false, _) => Begins::Phase,
                        (true, true) => Begins::Step,
                        (true, false) => Begins::Event,
                    };
                    let place = Place {
                        event: at.event.checked_add(1).ok_or(Disorder::TooMany)?,
                        ubatch: at.ubatch + u32::from(begins != Begins::Event),
                    };
                    (place, begins)
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
        self.steps.next(token, begins).map_err(Disorder::Lost)?;
        self.last = Some((token, place));
        Ok(place)
    }
}

impl Disorder {
    /// What should have stood there.
    pub(super) fn expected(&self, token: TokenOfLayer) -> String {
        match self {
            Self::Turn { last } => {
                format!("turn {last} or a later one, since turns follow each other")
            }
            Self::Phase => "no prefill behind the decode rows of the same turn".to_owned(),
            Self::Position { last } => format!(
                "more than {last}, which layer {} has had already in turn {} (a repeated or misplaced row)",
                token.layer, token.turn
            ),
            Self::Lost(lost) => lost.expected(),
            Self::TooMany => "at most 4294967295 events".to_owned(),
        }
    }
}

impl Lost {
    /// What should have stood there.
    fn expected(&self) -> String {
        match self {
            Self::Layer { expected, step } => {
                format!(
                    "layer {expected} of position {step}, since each step has all layers in their order ({SORT})"
                )
            }
            Self::Step { position, has, of, next } => format!(
                "layer {next} of position {position}, which has {has} of {of} layers so far, since each step has all \
                 layers in their order ({SORT})"
            ),
            Self::Unknown { first } => format!(
                "layer {first} of the next position, since the first step has no such layer ({SORT})"
            ),
            Self::Position { expected } => {
                format!(
                    "{expected}, since positions follow each other (a row or a step is lost or misplaced)"
                )
            }
            Self::Tokens { layer, has, of } => format!(
                "the rest of layer {layer}, which has {has} of the {of} tokens that the first layer of this step has (rows \
                 are lost or misplaced)"
            ),
        }
    }

    /// Whether a layer is what is wrong; else a position is.
    pub(super) const fn is_of_layer(&self) -> bool {
        !matches!(self, Self::Position { .. })
    }
}

/// What to do about rows in another order.
const SORT: &str = "an event is lost or misplaced; a sorted file is put right by sorting by turn, phase, step, then layer";

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
