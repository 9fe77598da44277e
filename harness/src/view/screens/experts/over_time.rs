//! One layer, token by token.

use super::history::History;
use crate::view::world::RunData;

/// Tokens that are worked out: as many as the widest terminals show.
const TOKENS: usize = 256;

/// The experts that one layer used for the last tokens.
#[derive(Debug, Default)]
pub(super) struct OverTime {
    /// What it is of: the run, the tokens that are shown, the layer.
    of: Option<(usize, usize, usize)>,
    /// The tally before the first of these tokens, which moves on with them.
    before: History,
    first: usize,
    uses: Vec<Vec<(u16, bool)>>,
}

impl OverTime {
    /// Brings it to the end of `tokens` tokens, with no more than about `look_ups` look-ups beyond those of the
    /// window.
    pub(super) fn go(
        &mut self,
        index: usize,
        run: &RunData,
        layer: usize,
        tokens: usize,
        look_ups: u64,
    ) {
        let of = Some((index, tokens, layer));
        if self.of == of {
            return;
        }
        let first = tokens.saturating_sub(TOKENS);
        if !self.before.go(index, run, first, look_ups) {
            // On its way; what was shown before would be of another place.
            self.uses.clear();
            return;
        }
        (self.of, self.first) = (of, first);
        self.uses.clear();
        let Some(mut tally) = self.before.tally().cloned() else { return };
        while tally.tokens() < tokens {
            let token = tally.tokens();
            tally.advance(run);
            let mut uses: Vec<(u16, bool)> = Vec::new();
            for event in run.routes.token(token).filter(|event| event.layer == layer) {
                for &expert in event.experts {
                    if uses.iter().all(|(other, _)| *other != expert) {
                        uses.push((expert, tally.missed_now(layer, usize::from(expert))));
                    }
                }
            }
            self.uses.push(uses);
        }
    }

    /// The first token, from 0, and for each from there on the experts, with whether they had to be read.
    #[must_use]
    pub(super) fn uses(&self) -> (usize, &[Vec<(u16, bool)>]) {
        (self.first, &self.uses)
    }
}
