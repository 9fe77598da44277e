//! Rankings of a layer's experts before its router has run.

use serde::Serialize;

use super::fit::{Cooccurrence, Fitted};

/// A way to guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Predictor {
    /// Any experts: the base line.
    Random,
    /// The experts of the token before; then, for more, of those before it.
    PreviousToken,
    /// The token before, beyond its own experts in the order of its router's scores.
    PreviousScores,
    /// The hottest experts of the prompt.
    HotPrompt,
    /// The hottest experts of the tokens fitted on.
    HotFitted,
    /// The hottest experts of all generated tokens.
    HotRun,
    /// What came in this layer with the experts of the layer above, in the tokens fitted on.
    CooccurrenceFitted,
    /// The same, with the layer above weighed by its router's scores.
    CooccurrenceScores,
    /// The first one over all generated tokens.
    CooccurrenceRun,
}

/// The name that tables and CSV have.
impl Serialize for Predictor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Predictor {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 9] = [
        Self::Random,
        Self::PreviousToken,
        Self::PreviousScores,
        Self::HotPrompt,
        Self::HotFitted,
        Self::HotRun,
        Self::CooccurrenceFitted,
        Self::CooccurrenceScores,
        Self::CooccurrenceRun,
    ];

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::PreviousToken => "previous-token",
            Self::PreviousScores => "previous-scores",
            Self::HotPrompt => "hot-prompt",
            Self::HotFitted => "hot",
            Self::HotRun => "hot (itself)",
            Self::CooccurrenceFitted => "co-occurrence",
            Self::CooccurrenceScores => "co-occurrence-scores",
            Self::CooccurrenceRun => "co-occurrence (itself)",
        }
    }

    /// What it knows besides the tokens before.
    #[must_use]
    pub const fn fitted_on(self) -> &'static str {
        match self {
            Self::Random | Self::PreviousToken | Self::PreviousScores => "nothing",
            Self::HotPrompt => "the prompt",
            Self::HotFitted | Self::CooccurrenceFitted | Self::CooccurrenceScores => "first tokens",
            Self::HotRun | Self::CooccurrenceRun => "itself",
        }
    }

    /// Only the held-out tokens say something about it.
    pub(super) const fn held_out_only(self) -> bool {
        matches!(self, Self::HotFitted | Self::CooccurrenceFitted | Self::CooccurrenceScores)
    }
}

/// What is known when a layer is about to route.
pub(super) struct Moment<'a> {
    pub(super) layer: usize,
    /// Experts of the layer's earlier tokens, distinct, the latest first, those of one token in the router's order.
    pub(super) recent: &'a [u16],
    /// The token before's best experts by score.
    pub(super) scored: &'a [u16],
    /// Experts of the layer above in this token, when it has one.
    pub(super) above: Option<&'a [u16]>,
    /// Its best experts and their scores.
    pub(super) above_scored: (&'a [u16], &'a [f32]),
}

/// Ranks at most `most` experts, the likeliest first. `None` = there is nothing to guess from.
pub(super) fn rank(
    predictor: Predictor,
    moment: &Moment<'_>,
    fitted: &Fitted,
    most: usize,
) -> Option<Vec<u16>> {
    let layer = moment.layer;
    let of = |table: &Cooccurrence, weighed: &mut dyn Iterator<Item = (u16, f64)>| {
        table.rank(layer, weighed, most)
    };
    let mut ranking = match predictor {
        Predictor::Random => return None,
        Predictor::PreviousToken => moment.recent.to_vec(),
        Predictor::PreviousScores => {
            // The chosen ones come first even where a bias made the choice.
            let mut ranking = moment.recent.to_vec();
            ranking.truncate(fitted.top_k);
            let chosen = ranking.clone();
            ranking.extend(moment.scored.iter().filter(|e| !chosen.contains(e)));
            ranking
        }
        Predictor::HotPrompt => fitted.hot_prompt[layer].clone(),
        Predictor::HotFitted => fitted.hot_fitted[layer].clone(),
        Predictor::HotRun => fitted.hot_run[layer].clone(),
        Predictor::CooccurrenceFitted => {
            of(&fitted.cooccurrence, &mut moment.above?.iter().map(|e| (*e, 1.0)))
        }
        Predictor::CooccurrenceRun => {
            of(&fitted.cooccurrence_run, &mut moment.above?.iter().map(|e| (*e, 1.0)))
        }
        Predictor::CooccurrenceScores => {
            moment.above?;
            let (experts, scores) = moment.above_scored;
            let weighed = experts.iter().zip(scores).map(|(e, s)| (*e, f64::from(*s)));
            of(&fitted.cooccurrence, &mut weighed.into_iter())
        }
    };
    ranking.truncate(most);
    Some(ranking)
}
