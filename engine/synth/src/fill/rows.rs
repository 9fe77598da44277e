//! Tensors whose rows are computed: embedding, output head, attention, router.

use crate::Shape;
use crate::attention::{Attention, HeadKind, QK_NOISE};
use crate::fill::successors::Ring;
use crate::residual::{NEXT_COPIED, NEXT_EMBEDDED, Residual};
use crate::rng::{Stream, key};

/// A logit that a likely next token gets, other things being 0.
const TOP_LOGIT: f32 = 12.0;

/// How a computed tensor's rows are made. Rows are along the first dimension.
#[derive(Debug, Clone)]
pub(crate) enum Rows {
    /// Token embeddings; `scale` undoes what the graph multiplies them with.
    Embedding { scale: f32 },
    /// The output head.
    Output,
    /// Attention queries of a layer with this design.
    Query { attention: Box<Attention>, size: f32 },
    /// Attention keys.
    Key { attention: Box<Attention>, size: f32 },
    /// Attention values: unit mean square per element, from the token range. With `copies`, the first ones are
    /// the token's code itself, as far as a tied head needs it.
    Value { copies: bool },
    /// Attention output into the topic range, `gain` times what the routing asks for. With `copies`, the code
    /// goes into the next range.
    AttnOutput { attention: Box<Attention>, gain: f32, copies: bool },
    /// Router rows. `input_rms` is what the norm in front of the router divides by.
    Router,
    /// Several kinds one after the other, with the number of rows of each.
    Stack(Vec<(u64, Rows)>),
}

/// What rows of several tensors have in common.
pub(crate) struct Model {
    pub shape: Shape,
    pub residual: Residual,
    ring: Ring,
    seed: u64,
}

/// Buffers that rows reuse.
#[derive(Default)]
pub(crate) struct Scratch {
    sources: Vec<Vec<f32>>,
}

impl Model {
    pub(crate) fn new(shape: &Shape, seed: u64) -> Self {
        Self {
            shape: shape.clone(),
            residual: Residual::new(shape),
            ring: Ring::new(shape.tokenizer.vocab, shape.routing.successors),
            seed,
        }
    }

    /// Computes row `row` of a tensor whose random streams have the key `tensor_key`.
    pub(crate) fn row(
        &self,
        rows: &Rows,
        tensor_key: u64,
        row: u64,
        out: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let r = &self.residual;
        let rng = &mut Stream::new(tensor_key, row);
        match rows {
            Rows::Embedding { scale } => {
                self.popular_pattern(&mut out[r.popular.clone()]);
                out[r.topic.clone()].fill(0.0);
                self.token_code(row as u32, &mut out[r.token.clone()]);
                if !r.next.is_empty() {
                    let next = &mut out[r.next.clone()];
                    let size = NEXT_EMBEDDED / (self.shape.routing.successors as f32).sqrt();
                    self.predecessors(row as u32, size, next, scratch);
                }
                out.iter_mut().for_each(|x| *x *= scale);
            }
            Rows::Output => self.output_row(row as u32, rng, out, scratch),
            Rows::Query { attention, size } => {
                let (head, dim) = split(row, attention.head_dim);
                let unit = attention.query(HeadKind::of(head), dim);
                self.qk_row(unit, *size, attention.head_dim, rng, out);
            }
            Rows::Key { attention, size } => {
                let (_, dim) = split(row, attention.head_dim);
                self.qk_row(attention.key(dim), *size, attention.head_dim, rng, out);
            }
            Rows::Value { copies } => {
                out.fill(0.0);
                if *copies && (row as usize) < r.next.len() {
                    out[r.token.start + row as usize] = r.rms_embedding;
                } else {
                    let std = r.rms_embedding / (r.token.len() as f32).sqrt();
                    rng.fill_normal(std, &mut out[r.token.clone()]);
                }
            }
            Rows::AttnOutput { attention, gain, copies } => {
                out.fill(0.0);
                if r.topic.contains(&(row as usize)) {
                    self.attn_output_row(attention, *gain, rng, out);
                } else if *copies && r.next.contains(&(row as usize)) {
                    let column = attention.recent_column(row as usize - r.next.start);
                    out[column] = NEXT_COPIED / attention.output_rms(HeadKind::Recent);
                }
            }
            Rows::Router => self.router_row(rng, out),
            Rows::Stack(parts) => {
                let mut within = row;
                for (part, (len, rows)) in parts.iter().enumerate() {
                    if within < *len {
                        let part_key = key(tensor_key, &part.to_string());
                        return self.row(rows, part_key, within, out, scratch);
                    }
                    within -= len;
                }
            }
        }
    }

    /// The popular range of every embedding: signs.
    fn popular_pattern(&self, out: &mut [f32]) {
        let rng = &mut Stream::new(key(self.seed, "popular"), 0);
        for x in out {
            *x = if rng.next_u64() & 1 == 0 { 1.0 } else { -1.0 };
        }
    }

    /// The token range of a token's embedding: sixteen levels, mean 0, mean square 1.
    fn token_code(&self, token: u32, out: &mut [f32]) {
        let step = 1.0 / 21.25f32.sqrt();
        let rng = &mut Stream::new(key(self.seed, "token"), u64::from(token));
        for chunk in out.chunks_mut(16) {
            let word = rng.next_u64();
            for (i, x) in chunk.iter_mut().enumerate() {
                *x = ((word >> (4 * i) & 15) as f32 - 7.5) * step;
            }
        }
    }

    /// A query or key row: `unit` times a constant read from the popular range, plus noise. The whole query
    /// of a head has the length `size`.
    fn qk_row(&self, unit: f32, size: f32, head_dim: usize, rng: &mut Stream, out: &mut [f32]) {
        let r = &self.residual;
        let noise = QK_NOISE * size / ((head_dim * r.hidden) as f32).sqrt();
        rng.fill_normal(noise, out);
        if unit != 0.0 {
            let popular = &mut out[r.popular.clone()];
            self.popular_pattern(popular);
            // The normalised input has 1 / rms in the popular range.
            let scale = unit * size * r.rms_embedding / popular.len() as f32;
            popular.iter_mut().for_each(|x| *x *= scale);
        }
    }

    fn attn_output_row(&self, a: &Attention, gain: f32, rng: &mut Stream, out: &mut [f32]) {
        let routing = &self.shape.routing;
        for (head, columns) in out.chunks_exact_mut(a.head_dim).enumerate() {
            let kind = HeadKind::of(head);
            let strength = match kind {
                HeadKind::Topic => routing.topic,
                HeadKind::Recent => routing.recent,
            };
            let inputs = (a.heads_of(kind) * a.head_dim) as f32;
            rng.fill_normal(gain * strength / (a.output_rms(kind) * inputs.sqrt()), columns);
        }
    }

    fn router_row(&self, rng: &mut Stream, out: &mut [f32]) {
        let (r, routing) = (&self.residual, &self.shape.routing);
        let total = routing.popularity.hypot(r.topic_rms).hypot(1.0);
        let scale = routing.sharpness * r.rms_with_topic / total;
        out[r.next.clone()].fill(0.0);
        let parts = [(&r.popular, routing.popularity), (&r.topic, 1.0), (&r.token, 1.0)];
        for (range, strength) in parts {
            let std = scale * strength / (range.len() as f32).sqrt();
            rng.fill_normal(std, &mut out[range.clone()]);
        }
    }

    /// The output head's row of `token`: it listens to the tokens that `token` may follow, and a little to the
    /// topic.
    fn output_row(&self, token: u32, rng: &mut Stream, out: &mut [f32], scratch: &mut Scratch) {
        let r = &self.residual;
        let scale = TOP_LOGIT / r.token.len() as f32;
        out.fill(0.0);
        if self.predecessors(token, scale, &mut out[r.token.clone()], scratch) {
            rng.fill_normal(0.5 * scale, &mut out[r.topic.clone()]);
        } else {
            rng.fill_normal(0.1 * scale, &mut out[r.token.clone()]);
        }
    }

    /// `scale` times the sum of the codes of the tokens that `token` may follow, corrected so that each of them
    /// scores the same: what is left to decide between successors is the context. Zeros and `false` when it
    /// follows none.
    fn predecessors(&self, token: u32, scale: f32, out: &mut [f32], scratch: &mut Scratch) -> bool {
        out.fill(0.0);
        let mut n = 0;
        for source in self.ring.predecessors(token) {
            if scratch.sources.len() == n {
                scratch.sources.push(vec![0.0; out.len()]);
            }
            self.token_code(source, &mut scratch.sources[n]);
            n += 1;
        }
        let sources = &scratch.sources[..n];
        for (source, factor) in sources.iter().zip(equalise(sources, out.len() as f32)) {
            out.iter_mut().zip(source).for_each(|(x, s)| *x += scale * factor * s);
        }
        n > 0
    }
}

/// What the norm in front of a tied head has to multiply the next range with, for embeddings of scale 1.
pub(crate) fn tied_gain(shape: &Shape, r: &Residual) -> f32 {
    // A recent head's bell gives the current token less than its whole output.
    const CURRENT: f32 = 0.84;
    let size = NEXT_EMBEDDED / (shape.routing.successors as f32).sqrt();
    TOP_LOGIT * r.rms_with_topic / (size * CURRENT * NEXT_COPIED * r.next.len() as f32)
}

fn split(row: u64, head_dim: usize) -> (usize, usize) {
    (row as usize / head_dim, row as usize % head_dim)
}

/// The dot product, in eight sums side by side: one sum would have to be added up in order.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = a.remainder().iter().zip(b.remainder()).map(|(x, y)| x * y).sum();
    for (a, b) in a.zip(b) {
        for ((sum, x), y) in sums.iter_mut().zip(a).zip(b) {
            *sum += x * y;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// Factors f with `Σ_j f_j <s_i, s_j> = target` for every i: Gauss-Seidel, as the matrix is nearly diagonal.
fn equalise(sources: &[Vec<f32>], target: f32) -> Vec<f32> {
    let n = sources.len();
    let mut gram = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..=i {
            gram[i * n + j] = dot(&sources[i], &sources[j]);
            gram[j * n + i] = gram[i * n + j];
        }
    }
    let mut factors = vec![1.0; n];
    for _ in 0..12 {
        for i in 0..n {
            let others: f32 =
                (0..n).filter(|&j| j != i).map(|j| gram[i * n + j] * factors[j]).sum();
            factors[i] = (target - others) / gram[i * n + i];
        }
    }
    factors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        Model::new(&Shape::builtin("quickstart").unwrap(), 7)
    }

    #[test]
    fn successors_score_alike_and_others_far_less() {
        let m = model();
        let hidden = m.residual.hidden;
        let (mut row, mut code) = (vec![0.0; hidden], vec![0.0; m.residual.token.len()]);
        let first = crate::tokenizer::words(m.shape.tokenizer.vocab).first;
        let mut scratch = Scratch::default();
        for token in first..first + 50 {
            m.row(&Rows::Output, 1, u64::from(token), &mut row, &mut scratch);
            let mut score = |t: u32| {
                m.token_code(t, &mut code);
                code.iter().zip(&row[m.residual.token.clone()]).map(|(a, b)| a * b).sum::<f32>()
            };
            for before in m.ring.predecessors(token) {
                assert!((score(before) - TOP_LOGIT).abs() < 0.01, "{}", score(before));
            }
            assert!(score(token).abs() < TOP_LOGIT / 2.0, "a token should not follow itself");
        }
    }

    #[test]
    fn a_tied_head_hears_the_copied_code_over_the_token_itself() {
        let m = Model::new(&Shape::builtin("gemma-4-26b-a4b").unwrap(), 7);
        let next = m.residual.next.clone();
        let mut scratch = Scratch::default();
        let mut embedding = |token: u32| {
            let mut row = vec![0.0; m.residual.hidden];
            let rows = Rows::Embedding { scale: 1.0 };
            m.row(&rows, 1, u64::from(token), &mut row, &mut scratch);
            row[next.clone()].to_vec()
        };
        let first = crate::tokenizer::words(m.shape.tokenizer.vocab).first;
        for token in first..first + 20 {
            let own = embedding(token);
            for before in m.ring.predecessors(token) {
                let mut copied = vec![0.0; next.len()];
                m.token_code(before, &mut copied);
                let after = NEXT_COPIED * dot(&own, &copied);
                assert!(after > 5.0 * dot(&own, &own), "{after}, itself {}", dot(&own, &own));
                assert!(after > 5.0 * dot(&own, &embedding(before)).abs());
            }
        }
    }

    #[test]
    fn router_logits_have_the_asked_deviation() {
        let m = model();
        let (hidden, r) = (m.residual.hidden, &m.residual);
        let mut input = vec![0.0; hidden];
        m.row(&Rows::Embedding { scale: 1.0 }, 0, 300, &mut input, &mut Scratch::default());
        let topic = r.topic.clone();
        Stream::new(1, 1).fill_normal(r.topic_rms, &mut input[topic]);
        let rms = (input.iter().map(|x| x * x).sum::<f32>() / hidden as f32).sqrt();
        let mut row = vec![0.0; hidden];
        let logits: Vec<f32> = (0..2000)
            .map(|k| {
                m.row(&Rows::Router, 9, k, &mut row, &mut Scratch::default());
                row.iter().zip(&input).map(|(a, b)| a * b).sum::<f32>() / rms
            })
            .collect();
        let std = (logits.iter().map(|x| x * x).sum::<f32>() / 2000.0).sqrt();
        assert!((std / m.shape.routing.sharpness - 1.0).abs() < 0.1, "{std}");
    }
}
