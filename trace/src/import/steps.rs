//! Which layers and positions a step has to have: what lost and misplaced events are noticed by.
//!
//! A *step* is what one graph computes: one decoded token, or one micro-batch of a prompt. A sound trace has all of
//! its MoE layers in each step, ascending, with the same positions in each; positions follow each other without a gap
//! within a turn. Two exceptions are llama.cpp's: the last layer of a prompt has rows only for tokens whose output is
//! wanted, maybe none. And a turn may end within a step, since a writer can be ended, and a request cancelled, at any
//! time.

use super::order::TokenOfLayer;
use crate::record::Phase;

/// What a token begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins {
    /// Nothing: it belongs to the event of the token before it.
    Nothing,
    /// An event of the same step.
    Event,
    /// A step of the same phase.
    Step,
    /// The decode steps of a turn.
    Phase,
    /// A turn.
    Turn,
}

/// Something that should have stood before a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lost {
    /// Another layer.
    Layer { expected: u32, step: u32 },
    /// The step before has layers missing.
    Step { position: u32, has: usize, of: usize, next: u32 },
    /// A layer that the first step did not have.
    Unknown { first: u32 },
    /// Another position.
    Position { expected: u32 },
    /// Tokens of the layer before.
    Tokens { layer: u32, has: u32, of: u32 },
}

/// The layers of a step.
#[derive(Debug)]
enum Layers {
    /// The header lists them.
    Listed(Vec<u32>),
    /// The first step is still being read.
    Learning(Vec<u32>),
    /// Those of the first step; the first one of a prompt may have been without the last layer.
    Learnt { layers: Vec<u32>, may_grow: bool },
}

/// Follows the steps of a trace.
#[derive(Debug)]
pub(super) struct Steps {
    layers: Layers,
    /// Layers of this step so far, the current one among them.
    seen: usize,
    phase: Phase,
    layer: u32,
    /// First position of this step, and how many its first layer has.
    start: u32,
    count: u32,
    /// Tokens of the current event.
    in_event: u32,
    /// The current event lacks tokens, which only the last layer may.
    partial: bool,
    turn: u32,
    /// Turns that ended within a step.
    unfinished: Vec<String>,
}

impl Steps {
    /// Of a trace whose header lists these layers, ascending; none = it does not list them.
    pub(super) fn new(listed: Vec<u32>) -> Self {
        let layers =
            if listed.is_empty() { Layers::Learning(listed) } else { Layers::Listed(listed) };
        Self {
            layers,
            seen: 0,
            phase: Phase::Decode,
            layer: 0,
            start: 0,
            count: 0,
            in_event: 0,
            partial: false,
            turn: 0,
            unfinished: Vec::new(),
        }
    }

    /// Takes the next token; `Err` = something before it is lost, or it stands in the wrong place.
    #[inline]
    pub(super) fn next(&mut self, token: TokenOfLayer, begins: Begins) -> Result<(), Lost> {
        match begins {
            Begins::Nothing => self.go_on(token),
            Begins::Event => {
                self.end_event()?;
                self.begin_event(token)
            }
            Begins::Step | Begins::Phase => {
                self.end_event()?;
                self.end_step()?;
                self.begin_step(token, Some(self.start + self.count))
            }
            Begins::Turn => {
                self.unfinished.extend(self.end());
                self.learn();
                self.begin_step(token, None)
            }
        }
    }

    /// What the end of the file, or of a turn, leaves unfinished.
    pub(super) fn end(&self) -> Option<String> {
        let known = self.known().len();
        let lacking = self.phase == Phase::Prefill && self.seen + 1 == known;
        let whole = self.seen >= known || lacking;
        let in_event = self.in_event >= self.count || self.is_last_layer();
        (self.seen > 0 && !(whole && in_event)).then(|| {
            format!(
                "turn {} ends within a step: position {} has {} of {known} layers (its writer was ended, or the request \
                 cancelled)",
                self.turn, self.start, self.seen
            )
        })
    }

    /// Turns that ended within a step, the last one included.
    pub(super) fn notes(&self) -> Vec<String> {
        self.unfinished.iter().cloned().chain(self.end()).collect()
    }

    fn known(&self) -> &[u32] {
        match &self.layers {
            Layers::Listed(layers) | Layers::Learning(layers) | Layers::Learnt { layers, .. } => {
                layers
            }
        }
    }

    /// Whether the current layer may be the one that only has rows for wanted outputs.
    fn is_last_layer(&self) -> bool {
        let last = match &self.layers {
            Layers::Listed(layers) | Layers::Learnt { layers, may_grow: false } => {
                layers.last() == Some(&self.layer)
            }
            Layers::Learning(_) => true,
            Layers::Learnt { layers, .. } => layers.last().is_none_or(|last| self.layer >= *last),
        };
        last && self.phase == Phase::Prefill && self.seen > 1
    }

    /// A further token of a prompt's layer.
    fn go_on(&mut self, token: TokenOfLayer) -> Result<(), Lost> {
        if self.seen == 1 {
            let expected = self.start + self.count;
            if token.position != expected {
                return Err(Lost::Position { expected });
            }
            self.count += 1;
        } else {
            self.take(token)?;
        }
        self.in_event += 1;
        Ok(())
    }

    /// Compares a token of a later layer with those of the first.
    fn take(&mut self, token: TokenOfLayer) -> Result<(), Lost> {
        let expected = self.start + self.in_event;
        if token.position == expected && self.in_event < self.count && !self.partial {
            return Ok(());
        }
        let within = (self.start..self.start + self.count).contains(&token.position);
        if !(self.is_last_layer() && within) {
            return Err(Lost::Position { expected });
        }
        self.partial = true;
        Ok(())
    }

    fn end_event(&self) -> Result<(), Lost> {
        let lost = Lost::Tokens { layer: self.layer, has: self.in_event, of: self.count };
        let short = self.in_event < self.count || self.partial;
        if short && !self.is_last_layer() { Err(lost) } else { Ok(()) }
    }

    fn begin_event(&mut self, token: TokenOfLayer) -> Result<(), Lost> {
        if self.partial || self.in_event < self.count {
            // What lacks tokens can only have been the last layer.
            return Err(Lost::Tokens { layer: self.layer, has: self.in_event, of: self.count });
        }
        match &mut self.layers {
            Layers::Learning(layers) => layers.push(token.layer),
            Layers::Listed(layers) => {
                check_layer(layers, self.seen, token, self.start)?;
            }
            Layers::Learnt { layers, may_grow } => {
                if *may_grow && self.seen == layers.len() {
                    layers.push(token.layer);
                    *may_grow = false;
                }
                check_layer(layers, self.seen, token, self.start)?;
            }
        }
        self.seen += 1;
        self.layer = token.layer;
        (self.in_event, self.partial) = (0, false);
        self.take(token)?;
        self.in_event = 1;
        Ok(())
    }

    fn end_step(&mut self) -> Result<(), Lost> {
        self.learn();
        let layers = self.known();
        let of = layers.len();
        let lacking = self.phase == Phase::Prefill && self.seen + 1 == of;
        match layers.get(self.seen) {
            Some(next) if !lacking => {
                Err(Lost::Step { position: self.start, has: self.seen, of, next: *next })
            }
            _ => {
                // Only a prompt's step may have been without the last layer.
                if let (Phase::Decode, Layers::Learnt { may_grow, .. }) =
                    (self.phase, &mut self.layers)
                {
                    *may_grow = false;
                }
                Ok(())
            }
        }
    }

    /// The first step is over.
    fn learn(&mut self) {
        if let Layers::Learning(layers) = &mut self.layers
            && !layers.is_empty()
        {
            let may_grow = self.phase == Phase::Prefill && !self.partial;
            self.layers = Layers::Learnt { layers: std::mem::take(layers), may_grow };
        }
    }

    fn begin_step(&mut self, token: TokenOfLayer, expected: Option<u32>) -> Result<(), Lost> {
        match &mut self.layers {
            Layers::Learning(layers) => layers.push(token.layer),
            Layers::Listed(layers) | Layers::Learnt { layers, .. } => {
                check_layer(layers, 0, token, token.position)?;
            }
        }
        if let Some(expected) = expected.filter(|expected| *expected != token.position) {
            return Err(Lost::Position { expected });
        }
        (self.turn, self.phase, self.layer) = (token.turn, token.phase, token.layer);
        (self.start, self.count, self.in_event) = (token.position, 1, 1);
        (self.seen, self.partial) = (1, false);
        Ok(())
    }
}

/// Whether a step's layer of this number is the token's.
fn check_layer(layers: &[u32], at: usize, token: TokenOfLayer, step: u32) -> Result<(), Lost> {
    match layers.get(at) {
        Some(expected) if *expected == token.layer => Ok(()),
        Some(expected) => Err(Lost::Layer { expected: *expected, step }),
        None => Err(Lost::Unknown { first: layers.first().copied().unwrap_or_default() }),
    }
}
