//! How the residual stream is laid out, so that the router can be told what to follow.
//!
//! Dimensions are split into three ranges. The *popular* range is the same for every token, so router rows
//! that read it prefer the same experts always. The *topic* range is 0 in the embedding; attention writes
//! averages of past tokens there, so rows that read it prefer what neighbours in time preferred. The *token*
//! range is random per token. With a tied head there is a fourth range, *next*: the embedding says there after
//! which tokens a token may come, and the first layer's attention copies the current token's code there, for
//! the head to compare. A router row that reads the first three has logits whose parts have the standard
//! deviations that [`Routing`](crate::Routing) asks for.

use std::ops::Range;

use crate::Shape;
use crate::arch;

/// The ranges and the sizes of their contents, with the embedding's non-zero values being about 1.
#[derive(Debug, Clone)]
pub(crate) struct Residual {
    pub hidden: usize,
    pub popular: Range<usize>,
    pub topic: Range<usize>,
    pub token: Range<usize>,
    /// Empty unless the head is tied.
    pub next: Range<usize>,
    /// Root mean square of the embedding over all dimensions.
    pub rms_embedding: f32,
    /// The same after the first layer's attention has written the topic.
    pub rms_with_topic: f32,
    /// Root mean square of what attention writes to the topic range.
    pub topic_rms: f32,
}

/// Size of the code that attention copies to the next range: large enough to be heard, and not so large that
/// what experts add there would not be.
pub(crate) const NEXT_COPIED: f32 = 0.7;
/// Size of the next range's values in the embedding: small against the copy, as a token would else be taken
/// for its own successor.
pub(crate) const NEXT_EMBEDDED: f32 = 0.03;

/// `n` rounded to a multiple of 32, at least 32.
fn near_32(n: usize) -> usize {
    ((n + 16) / 32).max(1) * 32
}

impl Residual {
    pub(crate) fn new(shape: &Shape) -> Self {
        let hidden = shape.dims.hidden as usize;
        let popular = near_32(hidden / 16);
        let topic = near_32(hidden / 4);
        let r = &shape.routing;
        let topic_rms = r.topic.hypot(r.recent);
        let left = hidden - popular - topic;
        let next = if shape.types.output.is_none() {
            (left / 64 * 32).min(arch::value_len(shape, 0))
        } else {
            0
        };
        let share = |n: usize| n as f32 / hidden as f32;
        let next_square = share(next) * NEXT_EMBEDDED * NEXT_EMBEDDED;
        let square = share(popular + left - next) + next_square;
        let written =
            share(topic) * topic_rms * topic_rms + share(next) * NEXT_COPIED * NEXT_COPIED;
        Self {
            hidden,
            popular: 0..popular,
            topic: popular..popular + topic,
            token: popular + topic..hidden - next,
            next: hidden - next..hidden,
            rms_embedding: square.sqrt(),
            rms_with_topic: (square + written).sqrt(),
            topic_rms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_the_residual() {
        for name in crate::builtin_names() {
            let shape = Shape::builtin(name).unwrap();
            let r = Residual::new(&shape);
            assert_eq!(r.popular.start, 0);
            assert_eq!(r.popular.end, r.topic.start);
            assert_eq!(r.topic.end, r.token.start);
            assert_eq!(r.token.end, r.next.start);
            assert_eq!(r.next.end, shape.dims.hidden as usize);
            assert!(r.token.len() >= r.next.len(), "{name}: {r:?}");
            assert_eq!(r.next.is_empty(), shape.types.output.is_some(), "{name}");
        }
    }
}
