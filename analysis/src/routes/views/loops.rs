//! Repetition that would flatter a cache.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Serialize;

use super::{Asked, tokens_word};
use crate::routes::tokens::{Phases, TokenRoutes};
use crate::tabular::{Column, Table, Value};

/// The longest distance looked at; a text that repeats itself does it sooner.
const MOST_LAG: usize = 256;
/// Whole steps repeated, as a share of the steps: above it the warning comes. Text that goes on repeats next to none.
const WHOLE_STEPS: f64 = 0.02;
/// (Step, layer) pairs repeated: above it the warning comes.
const LAYER_STEPS: f64 = 0.25;
/// Fewer steps say nothing about loops.
const LEAST_STEPS: usize = 32;

/// Exact repeats of the routes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Loops {
    /// The part of the run.
    pub phases: Phases,
    /// Steps looked at.
    pub tokens: usize,
    /// By distance, from 1.
    pub lags: Vec<LagRepeats>,
    /// The distance at which most whole steps are repeated, when any is.
    pub period: Option<usize>,
    /// The longest stretch of steps that all repeat the step a period before, and the number of its first step.
    pub longest_run: Option<(usize, usize)>,
    /// The routes repeat themselves more than text that goes on does.
    pub warning: bool,
}

/// Repeats at one distance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LagRepeats {
    /// Steps back.
    pub lag: usize,
    /// Share of the steps that use the very experts of the step so far back, in every layer.
    pub whole_steps: f64,
    /// Share of the (step, layer) pairs that do.
    pub layer_steps: f64,
}

impl Loops {
    pub(super) fn of(asked: &Asked<'_>) -> Self {
        let tokens = TokenRoutes::new(asked.trace);
        // For each step, for each layer: a hash of the set of experts.
        let mut steps: Vec<Vec<Option<u64>>> = vec![vec![None; asked.layers.len()]; tokens.steps];
        for (column, layer) in asked.layers.iter().enumerate() {
            for token in tokens.of(*layer, asked.phases) {
                let mut experts = token.experts.to_vec();
                experts.sort_unstable();
                let mut hasher = DefaultHasher::new();
                experts.hash(&mut hasher);
                steps[token.step][column] = Some(hasher.finish());
            }
        }
        steps.retain(|layers| layers.iter().any(Option::is_some));
        let lags: Vec<_> = (1..=MOST_LAG.min(steps.len() / 2)).map(|lag| at(&steps, lag)).collect();
        let most = lags.iter().filter(|l| l.whole_steps > 0.0);
        // The shortest of the equal ones: a period's multiples repeat as much.
        let period = most
            .max_by(|a, b| a.whole_steps.total_cmp(&b.whole_steps).then(b.lag.cmp(&a.lag)))
            .map(|l| l.lag);
        let longest_run = period.map(|lag| longest_run(&steps, lag));
        let highest = |of: fn(&LagRepeats) -> f64| lags.iter().map(of).fold(0.0, f64::max);
        Self {
            phases: asked.phases,
            tokens: steps.len(),
            period,
            longest_run,
            warning: steps.len() >= LEAST_STEPS
                && (highest(|l| l.whole_steps) > WHOLE_STEPS
                    || highest(|l| l.layer_steps) > LAYER_STEPS),
            lags,
        }
    }

    pub(super) fn table(&self) -> Table {
        let row = |l: &LagRepeats| {
            vec![
                l.lag.into(),
                Value::percent(Some(l.whole_steps)),
                Value::percent(Some(l.layer_steps)),
            ]
        };
        let most = self
            .lags
            .iter()
            .max_by(|a, b| a.layer_steps.total_cmp(&b.layer_steps).then(b.lag.cmp(&a.lag)));
        let mut notes = Vec::new();
        if let (Some(period), Some((length, from))) = (self.period, self.longest_run) {
            notes.push(format!(
                "whole steps are repeated most at lag {period}; the longest stretch begins with step {} and has \
                 {length}",
                from + 1
            ));
        }
        if let Some(most) = most {
            notes.push(format!(
                "single layers are repeated most at lag {}: {:.1} % of the (step, layer) pairs",
                most.lag,
                most.layer_steps * 100.0
            ));
        }
        let verdict = if self.warning {
            "WARNING: the routes repeat themselves, as a text in a loop does. Hit rates of this run, measured \
             or simulated, flatter every cache."
                .to_owned()
        } else if self.tokens < LEAST_STEPS {
            format!("fewer than {LEAST_STEPS} steps: too few to tell a loop")
        } else {
            "no loop: the routes repeat themselves no more than text that goes on does".to_owned()
        };
        notes.push(verdict);
        Table {
            title: format!(
                "loops: exact repeats of the routes N steps back, {} {}",
                self.tokens,
                tokens_word(self.phases)
            ),
            columns: vec![
                Column::number("lag_steps", "lag"),
                Column::number("whole_steps_pct", "whole steps, %"),
                Column::number("layer_steps_pct", "(step, layer) pairs, %"),
            ],
            rows: self.lags.iter().map(row).collect(),
            notes,
        }
    }
}

fn at(steps: &[Vec<Option<u64>>], lag: usize) -> LagRepeats {
    let (mut whole, mut layers, mut pairs) = (0, 0, 0);
    for (before, now) in steps.iter().zip(&steps[lag..]) {
        whole += usize::from(before == now);
        for (before, now) in before.iter().zip(now) {
            if let (Some(before), Some(now)) = (before, now) {
                pairs += 1;
                layers += usize::from(before == now);
            }
        }
    }
    let share = |n: usize, of: usize| if of == 0 { 0.0 } else { n as f64 / of as f64 };
    LagRepeats {
        lag,
        whole_steps: share(whole, steps.len() - lag),
        layer_steps: share(layers, pairs),
    }
}

/// Length and first step.
fn longest_run(steps: &[Vec<Option<u64>>], lag: usize) -> (usize, usize) {
    let (mut best, mut length) = ((0, 0), 0);
    for step in lag..steps.len() {
        length = if steps[step] == steps[step - lag] { length + 1 } else { 0 };
        if length > best.0 {
            best = (length, step + 1 - length);
        }
    }
    best
}
