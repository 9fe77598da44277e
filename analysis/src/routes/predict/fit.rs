//! What is counted before anything is guessed.

use bmoe_trace::record::Phase;

use crate::routes::RouteTrace;
use crate::routes::tokens::hottest;

/// Everything that predictors know of a whole run or of a part of it.
pub(super) struct Fitted {
    pub(super) top_k: usize,
    /// By layer, the hottest first.
    pub(super) hot_prompt: Vec<Vec<u16>>,
    pub(super) hot_fitted: Vec<Vec<u16>>,
    pub(super) hot_run: Vec<Vec<u16>>,
    pub(super) cooccurrence: Cooccurrence,
    pub(super) cooccurrence_run: Cooccurrence,
}

/// How often an expert of a layer came with one of the layer above.
pub(super) struct Cooccurrence {
    n_expert: usize,
    /// `[layer][above][expert]`
    together: Vec<u32>,
    /// `[layer][above]`
    above: Vec<u32>,
    /// `[layer][expert]`
    uses: Vec<u64>,
}

impl Cooccurrence {
    fn new(layers: usize, n_expert: usize) -> Self {
        Self {
            n_expert,
            together: vec![0; layers * n_expert * n_expert],
            above: vec![0; layers * n_expert],
            uses: vec![0; layers * n_expert],
        }
    }

    fn add(&mut self, layer: usize, above: &[u16], experts: &[u16]) {
        let n = self.n_expert;
        for a in above {
            let row = layer * n + usize::from(*a);
            self.above[row] += 1;
            for expert in experts {
                self.together[row * n + usize::from(*expert)] += 1;
            }
        }
        for expert in experts {
            self.uses[layer * n + usize::from(*expert)] += 1;
        }
    }

    /// By the sum of the shares that an expert has among the tokens of each expert above; equal ones by their uses.
    pub(super) fn rank(
        &self,
        layer: usize,
        above: &mut dyn Iterator<Item = (u16, f64)>,
        most: usize,
    ) -> Vec<u16> {
        let n = self.n_expert;
        let mut scores = vec![0.0; n];
        for (expert, weight) in above {
            let row = layer * n + usize::from(expert);
            if self.above[row] > 0 {
                let share = weight / f64::from(self.above[row]);
                for (score, count) in scores.iter_mut().zip(&self.together[row * n..(row + 1) * n])
                {
                    *score += share * f64::from(*count);
                }
            }
        }
        let uses = &self.uses[layer * n..(layer + 1) * n];
        let mut order: Vec<u16> = (0..n as u16).filter(|e| uses[usize::from(*e)] > 0).collect();
        let key = |e: u16| (scores[usize::from(e)], uses[usize::from(e)]);
        let by_score = |x: &u16, y: &u16| {
            let ((a, used_a), (b, used_b)) = (key(*x), key(*y));
            b.total_cmp(&a).then(used_b.cmp(&used_a)).then(x.cmp(y))
        };
        if most > 0 && order.len() > most {
            order.select_nth_unstable_by(most - 1, by_score);
        }
        order.truncate(most);
        order.sort_unstable_by(by_score);
        order
    }
}

impl Fitted {
    pub(super) fn new(trace: &RouteTrace, top_k: usize, fitted_tokens: usize) -> Self {
        let (layers, n_expert) = (trace.layers.len(), trace.n_expert as usize);
        let counts = || vec![vec![0_u64; n_expert]; layers];
        let (mut prompt, mut fitted, mut run) = (counts(), counts(), counts());
        let mut cooccurrence = Cooccurrence::new(layers, n_expert);
        let mut cooccurrence_run = Cooccurrence::new(layers, n_expert);
        let mut walk = Walk::default();
        for event in trace.events() {
            let (step, above) = walk.next(event.phase, event.layer);
            let to_fit = event.phase == Phase::Decode && step < fitted_tokens;
            for expert in event.experts {
                let expert = usize::from(*expert);
                match event.phase {
                    Phase::Prefill => prompt[event.layer][expert] += 1,
                    Phase::Decode => run[event.layer][expert] += 1,
                }
                fitted[event.layer][expert] += u64::from(to_fit);
            }
            if event.phase == Phase::Decode {
                if above {
                    cooccurrence_run.add(event.layer, &walk.experts, event.experts);
                }
                if above && to_fit {
                    cooccurrence.add(event.layer, &walk.experts, event.experts);
                }
                walk.experts.clear();
                walk.experts.extend_from_slice(event.experts);
            }
        }
        let hot = |counts: Vec<Vec<u64>>| {
            counts.iter().map(|uses| hottest(uses, n_expert)).collect::<Vec<_>>()
        };
        Self {
            top_k,
            hot_prompt: hot(prompt),
            hot_fitted: hot(fitted),
            hot_run: hot(run),
            cooccurrence,
            cooccurrence_run,
        }
    }
}

/// Follows the events: which generated token one belongs to, and whether the layer above came right before it.
#[derive(Default)]
pub(super) struct Walk {
    last: Option<(Phase, usize)>,
    /// Generated tokens begun.
    begun: usize,
    /// Experts of the last event that was kept.
    pub(super) experts: Vec<u16>,
}

impl Walk {
    /// Number of the generated token, from 0, and whether the last event was the layer above in the same token.
    pub(super) fn next(&mut self, phase: Phase, layer: usize) -> (usize, bool) {
        let new = self.last.is_none_or(|(before, last)| before != phase || layer <= last);
        let above = !new && self.last == Some((phase, layer.wrapping_sub(1)));
        self.begun += usize::from(new && phase == Phase::Decode);
        self.last = Some((phase, layer));
        (self.begun.saturating_sub(1), above)
    }
}
