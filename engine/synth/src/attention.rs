//! Attention heads that average over a window of the past.
//!
//! Rotary positions turn a constant query and a constant key into a score that depends on distance alone:
//! a pair of dimensions that rotates by θ per token contributes `A cos(θ Δ)`. Pairs whose θ suits a window
//! of w tokens, with `Σ A θ² = 1 / w²`, make the softmax a bell of standard deviation w. Even heads average
//! over the topic's window, odd heads over the recent one; keys serve both.

use crate::Shape;

/// How far the query and key noise is from vanishing, relative to the constant part.
pub(crate) const QK_NOISE: f32 = 0.3;

/// The kind of a query head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadKind {
    Topic,
    Recent,
}

impl HeadKind {
    pub(crate) fn of(head: usize) -> Self {
        if head.is_multiple_of(2) { Self::Topic } else { Self::Recent }
    }
}

/// One window: which rotary pairs it uses and how sharp the score is.
#[derive(Debug, Clone)]
struct Bell {
    pairs: Vec<usize>,
    /// `Σ A`: the score at distance 0.
    peak: f32,
    /// Euclidean norm of the softmax weights over a long past: the size of an average of independent
    /// unit values.
    norm: f32,
}

/// The attention design of one layer.
#[derive(Debug, Clone)]
pub(crate) struct Attention {
    pub head_dim: usize,
    pub heads: usize,
    pub kv_heads: usize,
    neighbour_pairs: bool,
    topic: Bell,
    recent: Bell,
}

/// What a layer's attention is made of.
pub(crate) struct Rope {
    pub base: f32,
    /// Pairs that rotate; the others keep their phase (`gemma4`'s global layers).
    pub rotating_pairs: usize,
    /// A pair is two neighbouring dimensions; else they are half a head apart.
    pub neighbour_pairs: bool,
}

impl Attention {
    pub(crate) fn new(shape: &Shape, head_dim: usize, kv_heads: usize, rope: &Rope) -> Self {
        let theta = |pair: usize| f64::from(rope.base).powf(-2.0 * pair as f64 / head_dim as f64);
        let r = &shape.routing;
        let recent = Bell::new(f64::from(r.recent_window), rope.rotating_pairs, &[], theta);
        let topic = Bell::new(f64::from(r.topic_window), rope.rotating_pairs, &recent.pairs, theta);
        let heads = shape.dims.heads as usize;
        Self { head_dim, heads, kv_heads, neighbour_pairs: rope.neighbour_pairs, topic, recent }
    }

    fn bell(&self, kind: HeadKind) -> &Bell {
        match kind {
            HeadKind::Topic => &self.topic,
            HeadKind::Recent => &self.recent,
        }
    }

    /// The score at distance 0 of the head kind that needs more, shared between both in the key.
    pub(crate) fn peak(&self) -> f32 {
        self.topic.peak.hypot(self.recent.peak)
    }

    /// The pair whose cosine half a dimension is.
    fn cosine_of(&self, dim: usize) -> Option<usize> {
        if self.neighbour_pairs {
            dim.is_multiple_of(2).then_some(dim / 2)
        } else {
            (dim < self.head_dim / 2).then_some(dim)
        }
    }

    /// Query component of dimension `dim`, the query being a unit vector.
    pub(crate) fn query(&self, kind: HeadKind, dim: usize) -> f32 {
        self.bell(kind).component(self.cosine_of(dim))
    }

    /// Key component of dimension `dim`, the key being a unit vector.
    pub(crate) fn key(&self, dim: usize) -> f32 {
        let part = |bell: &Bell| bell.component(self.cosine_of(dim)) * bell.peak;
        (part(&self.topic) + part(&self.recent)) / self.peak()
    }

    /// Root mean square of a head's output, when values are independent and of mean square 1.
    pub(crate) fn output_rms(&self, kind: HeadKind) -> f32 {
        self.bell(kind).norm
    }

    /// The column of the attention output that holds value element `index` as a recent head averaged it. Needs
    /// two query heads a key/value head.
    pub(crate) fn recent_column(&self, index: usize) -> usize {
        let group = self.heads / self.kv_heads;
        let first = index / self.head_dim * group;
        let head = if HeadKind::of(first) == HeadKind::Recent { first } else { first + 1 };
        head * self.head_dim + index % self.head_dim
    }

    /// Query heads of a kind.
    pub(crate) fn heads_of(&self, kind: HeadKind) -> usize {
        (0..self.heads).filter(|&h| HeadKind::of(h) == kind).count()
    }
}

impl Bell {
    fn new(window: f64, pairs: usize, taken: &[usize], theta: impl Fn(usize) -> f64) -> Self {
        let free = || (0..pairs).filter(|p| !taken.contains(p));
        let mut chosen: Vec<usize> =
            free().filter(|&p| (0.1..0.7).contains(&(theta(p) * window))).collect();
        if chosen.is_empty() {
            // A coarse grid of frequencies: the pair nearest to the middle of that range.
            let distance = |p: usize| (theta(p) * window / 0.26).ln().abs();
            chosen.extend(free().min_by(|&a, &b| distance(a).total_cmp(&distance(b))));
        }
        if chosen.is_empty() {
            return Self { pairs: vec![0], peak: 1.0, norm: 1.0 };
        }
        let mean_square =
            chosen.iter().map(|&p| theta(p).powi(2)).sum::<f64>() / chosen.len() as f64;
        // Beyond 20 the softmax is as sharp as it needs to be.
        let peak = (1.0 / (window * window * mean_square)).clamp(0.5, 20.0);

        let mean_cos = |distance: f64| {
            chosen.iter().map(|&p| (theta(p) * distance).cos()).sum::<f64>() / chosen.len() as f64
        };
        let weights: Vec<f64> =
            (0..160).map(|d| (peak * (mean_cos(f64::from(d)) - 1.0)).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let norm = weights.iter().map(|w| (w / sum).powi(2)).sum::<f64>().sqrt();
        Self { pairs: chosen, peak: peak as f32, norm: norm as f32 }
    }

    /// Component of a unit vector along the cosine half of each chosen pair.
    fn component(&self, pair: Option<usize>) -> f32 {
        if pair.is_some_and(|p| self.pairs.contains(&p)) {
            1.0 / (self.pairs.len() as f32).sqrt()
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_keys_are_unit_vectors() {
        for name in crate::builtin_names() {
            let shape = Shape::builtin(name).unwrap();
            let d = &shape.dims;
            let rope = Rope {
                base: d.rope_base,
                rotating_pairs: d.head_dim as usize / 2,
                neighbour_pairs: shape.arch.spec().neighbour_pairs,
            };
            let a = Attention::new(&shape, d.head_dim as usize, d.kv_heads as usize, &rope);
            let square =
                |f: &dyn Fn(usize) -> f32| (0..a.head_dim).map(|i| f(i).powi(2)).sum::<f32>();
            for kind in [HeadKind::Topic, HeadKind::Recent] {
                assert!((square(&|i| a.query(kind, i)) - 1.0).abs() < 1e-4, "{name}");
            }
            assert!((square(&|i| a.key(i)) - 1.0).abs() < 1e-4, "{name}");
        }
    }

    #[test]
    fn a_window_averages_over_about_its_width() {
        let shape = Shape::builtin("qwen3-30b-a3b").unwrap();
        let rope = Rope { base: shape.dims.rope_base, rotating_pairs: 64, neighbour_pairs: false };
        let a = Attention::new(&shape, 128, 4, &rope);
        // A half bell of deviation w has the norm 1 / sqrt(w sqrt(pi)) for w well above 1.
        let expected = 1.0 / (shape.routing.topic_window * 1.772).sqrt();
        let ratio = a.output_rms(HeadKind::Topic) / expected;
        assert!((0.7..1.3).contains(&ratio), "{ratio}");
        assert!(a.output_rms(HeadKind::Recent) > 1.5 * a.output_rms(HeadKind::Topic));
    }
}
