//! Distinct experts against tokens.

use serde::Serialize;

use super::{Asked, tokens_word};
use crate::routes::tokens::{Phases, TokenRoutes};
use crate::tabular::{Column, MIB, Table, Value};

/// The working set: distinct experts, of all layers looked at, that so many tokens in a row use.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Workset {
    /// The part of the run.
    pub phases: Phases,
    /// Steps looked at.
    pub tokens: usize,
    /// Experts of the layers looked at.
    pub bank_experts: u64,
    /// Their bytes; 0 = not known.
    pub bank_bytes: u64,
    /// Windows of 1, 2, 4 … tokens and of the whole part, over all their places.
    pub windows: Vec<Window>,
    /// From the part's first token to each token.
    pub growth: Vec<Growth>,
    /// What budgets hold; empty when sizes are not known.
    pub budgets: Vec<BudgetFit>,
}

/// Windows of one length.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Window {
    /// Its length.
    pub tokens: usize,
    /// Mean number of distinct experts.
    pub mean_experts: f64,
    /// The most.
    pub max_experts: u64,
    /// Mean bytes; 0 when sizes are not known.
    pub mean_bytes: f64,
    /// The most bytes.
    pub max_bytes: u64,
}

/// Distinct experts since the first token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Growth {
    /// Tokens so far.
    pub tokens: usize,
    /// Distinct experts so far.
    pub experts: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a budget holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BudgetFit {
    /// The budget.
    pub budget_bytes: u64,
    /// The longest window whose mean working set fits; 0 = not even one token's.
    pub mean_fits_tokens: usize,
    /// The longest window of which every one fits.
    pub all_fit_tokens: usize,
}

/// The entries of each step, and their sizes.
struct Steps {
    entries: Vec<Vec<usize>>,
    bytes: Vec<u64>,
}

impl Steps {
    fn window(&self, tokens: usize) -> Window {
        let mut count = vec![0_u32; self.bytes.len()];
        let (mut experts, mut bytes) = (0_u64, 0_u64);
        let mut window =
            Window { tokens, mean_experts: 0.0, max_experts: 0, mean_bytes: 0.0, max_bytes: 0 };
        let places = (self.entries.len() + 1).saturating_sub(tokens);
        for (step, entries) in self.entries.iter().enumerate() {
            for entry in entries {
                count[*entry] += 1;
                if count[*entry] == 1 {
                    experts += 1;
                    bytes += self.bytes[*entry];
                }
            }
            if step + 1 < tokens {
                continue;
            }
            window.mean_experts += experts as f64 / places as f64;
            window.mean_bytes += bytes as f64 / places as f64;
            window.max_experts = window.max_experts.max(experts);
            window.max_bytes = window.max_bytes.max(bytes);
            for entry in &self.entries[step + 1 - tokens] {
                count[*entry] -= 1;
                if count[*entry] == 0 {
                    experts -= 1;
                    bytes -= self.bytes[*entry];
                }
            }
        }
        window
    }

    /// Mean bytes of the windows of 1, 2, 3 … steps: of each entry those windows are missing that lie in a stretch of
    /// steps without it, `stretch - window + 1` of them.
    fn mean_bytes(&self) -> Vec<f64> {
        let steps = self.entries.len();
        let mut last: Vec<Option<usize>> = vec![None; self.bytes.len()];
        // By the length of the stretch: bytes of the entries that have one.
        let mut stretches = vec![0_u64; steps + 1];
        for (step, entries) in self.entries.iter().enumerate() {
            for entry in entries {
                let from = last[*entry].replace(step).map_or(0, |last| last + 1);
                // An entry twice in a step leaves no stretch; one of length 0 counts for nothing.
                stretches[step.saturating_sub(from)] += self.bytes[*entry];
            }
        }
        let mut used = 0;
        for (last, bytes) in last.iter().zip(&self.bytes) {
            if let Some(last) = last {
                used += bytes;
                stretches[steps - last - 1] += bytes;
            }
        }
        // From long windows to short ones: bytes of the stretches that are long enough, and their sum over the places.
        let (mut long_enough, mut missing) = (0.0, 0.0);
        let mut means = vec![0.0; steps];
        for window in (1..=steps).rev() {
            long_enough += stretches[window] as f64;
            missing += long_enough;
            means[window - 1] = used as f64 - missing / (steps - window + 1) as f64;
        }
        means
    }

    /// The longest window of which every one fits.
    fn all_fit(&self, budget_bytes: u64) -> usize {
        let mut count = vec![0_u32; self.bytes.len()];
        let (mut start, mut bytes, mut longest) = (0, 0, self.entries.len());
        for (end, entries) in self.entries.iter().enumerate() {
            for entry in entries {
                count[*entry] += 1;
                bytes += if count[*entry] == 1 { self.bytes[*entry] } else { 0 };
            }
            while bytes > budget_bytes {
                for entry in &self.entries[start] {
                    count[*entry] -= 1;
                    bytes -= if count[*entry] == 0 { self.bytes[*entry] } else { 0 };
                }
                start += 1;
            }
            if start > 0 {
                longest = longest.min(end + 1 - start);
            }
        }
        longest
    }

    fn growth(&self) -> Vec<Growth> {
        let mut seen = vec![false; self.bytes.len()];
        let (mut experts, mut bytes) = (0, 0);
        let mut growth = Vec::with_capacity(self.entries.len());
        for (step, entries) in self.entries.iter().enumerate() {
            for entry in entries {
                if !std::mem::replace(&mut seen[*entry], true) {
                    experts += 1;
                    bytes += self.bytes[*entry];
                }
            }
            growth.push(Growth { tokens: step + 1, experts, bytes });
        }
        growth
    }
}

impl Workset {
    pub(super) fn of(asked: &Asked<'_>) -> Self {
        let trace = asked.trace;
        let n_expert = trace.n_expert as usize;
        let tokens = TokenRoutes::new(trace);
        let mut entries = vec![Vec::new(); tokens.steps];
        for layer in &asked.layers {
            for token in tokens.of(*layer, asked.phases) {
                let keys = token.experts.iter().map(|e| layer * n_expert + usize::from(*e));
                entries[token.step].extend(keys);
            }
        }
        entries.retain(|entries| !entries.is_empty());
        let sizes = trace.layers.iter().flat_map(|l| std::iter::repeat_n(l.expert_bytes, n_expert));
        let steps = Steps { entries, bytes: sizes.collect() };
        let length = steps.entries.len();
        let lengths = (0..).map(|i| 1 << i).take_while(|n| *n < length).chain([length]);
        let bank: u64 =
            asked.layers.iter().map(|l| trace.layers[*l].expert_bytes * n_expert as u64).sum();
        let budgets = if trace.has_sizes() {
            let mut budgets: Vec<u64> = asked.selection.budget_bytes.into_iter().collect();
            if budgets.is_empty() {
                budgets = [16, 8, 4, 2].map(|part| bank / part).to_vec();
            }
            // A longer window never has fewer distinct experts.
            let means = steps.mean_bytes();
            let fit = |budget_bytes: u64| BudgetFit {
                budget_bytes,
                mean_fits_tokens: means.partition_point(|mean| *mean <= budget_bytes as f64),
                all_fit_tokens: steps.all_fit(budget_bytes),
            };
            budgets.into_iter().map(fit).collect()
        } else {
            Vec::new()
        };
        Self {
            phases: asked.phases,
            tokens: length,
            bank_experts: (asked.layers.len() * n_expert) as u64,
            bank_bytes: bank,
            windows: lengths.map(|n| steps.window(n)).collect(),
            growth: steps.growth(),
            budgets,
        }
    }

    pub(super) fn table(&self) -> Table {
        let sized = self.bank_bytes > 0;
        let mib = |bytes: f64| Value::mib(sized.then_some(bytes));
        let row = |w: &Window| {
            let start = self.growth.get(w.tokens.saturating_sub(1));
            vec![
                w.tokens.into(),
                Value::Number(w.mean_experts, 1),
                w.max_experts.into(),
                mib(w.mean_bytes),
                mib(w.max_bytes as f64),
                Value::percent(Some(w.mean_experts / self.bank_experts.max(1) as f64)),
                start.map_or(Value::Missing, |g| g.experts.into()),
                mib(start.map_or(f64::NAN, |g| g.bytes as f64)),
            ]
        };
        let mut notes: Vec<String> = self
            .budgets
            .iter()
            .map(|fit| {
                format!(
                    "{:.0} MiB ({:.1} % of the bank) hold the working set of {} tokens on average, of {} \
                     wherever they are",
                    fit.budget_bytes as f64 / MIB,
                    100.0 * fit.budget_bytes as f64 / self.bank_bytes as f64,
                    fit.mean_fits_tokens,
                    fit.all_fit_tokens
                )
            })
            .collect();
        if let Some(last) = self.growth.last() {
            let all = if sized {
                format!(
                    ", {:.0} of {:.0} MiB",
                    last.bytes as f64 / MIB,
                    self.bank_bytes as f64 / MIB
                )
            } else {
                String::new()
            };
            notes.push(format!(
                "all {} tokens: {} of {} experts{all}",
                last.tokens, last.experts, self.bank_experts
            ));
        }
        Table {
            title: format!(
                "workset: distinct experts that so many {} in a row use",
                tokens_word(self.phases)
            ),
            columns: vec![
                Column::number("window_tokens", "tokens"),
                Column::number("mean_experts", "mean experts"),
                Column::number("max_experts", "most"),
                Column::number("mean_mib", "mean MiB"),
                Column::number("max_mib", "most MiB"),
                Column::number("mean_bank_pct", "of the bank, %"),
                Column::number("from_start_experts", "from the first token"),
                Column::number("from_start_mib", "MiB"),
            ],
            rows: self.windows.iter().map(row).collect(),
            notes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_fits_are_those_of_all_windows() {
        let mut state = 11_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let entries = (0..40).map(|_| (0..3).map(|_| random(12) as usize).collect()).collect();
        let steps = Steps { entries, bytes: (0..12).map(|i| 5 + i % 4).collect() };
        let windows: Vec<Window> = (1..=40).map(|tokens| steps.window(tokens)).collect();
        for (mean, window) in steps.mean_bytes().iter().zip(&windows) {
            assert!((mean - window.mean_bytes).abs() < 1e-9);
        }
        for budget in 0..90 {
            let want = windows.iter().take_while(|window| window.max_bytes <= budget).count();
            assert_eq!(steps.all_fit(budget), want, "{budget}");
        }
    }
}
