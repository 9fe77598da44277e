//! Guesses against what was used, event by event, beside a cache.

use bmoe_cache::{Cache, EntrySizes, PolicyKind};
use bmoe_trace::record::{Phase, Residency};

use super::fit::{Fitted, Walk};
use super::guess::{Moment, Predictor, rank};
use super::{Predict, PredictOptions, PredictRow, saved_s};
use crate::routes::RouteTrace;
use crate::routes::views::{NO_SIZES, ViewError};

/// Sums over the events of some tokens. Not whole numbers, since the base line's are expectations.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    needed: f64,
    found: f64,
    guessed: f64,
    read_bytes: f64,
    useful_bytes: f64,
    demand_bytes: f64,
}

/// Over all scored tokens, and over the held-out ones.
type Tally = [Sums; 2];

/// What a layer remembers of its earlier tokens.
#[derive(Debug, Clone, Default)]
struct Memory {
    recent: Vec<u16>,
    scored: Vec<u16>,
}

impl Memory {
    fn remember(&mut self, experts: &[u16], tokens: usize, scored: &[u16]) {
        let each = experts.len() / tokens;
        for token in experts.chunks(each) {
            self.recent.retain(|e| !token.contains(e));
            self.recent.splice(0..0, token.iter().copied());
        }
        self.scored.clear();
        self.scored.extend_from_slice(&scored[scored.len() - scored.len() / tokens..]);
    }
}

pub(super) fn score(trace: &RouteTrace, options: &PredictOptions) -> Result<Predict, ViewError> {
    let decode = trace.decode_tokens();
    if decode < 2 {
        return Err(ViewError::NotRecorded {
            what: "two generated tokens",
            hint: "record a longer run; the first token has none before it",
        });
    }
    let sized = trace.has_sizes();
    if (options.cache.is_some() || options.device.is_some()) && !sized {
        return Err(NO_SIZES);
    }
    let of_decode = || trace.events().filter(|event| event.phase == Phase::Decode);
    let top_k = of_decode().map(|event| event.top_k()).max().unwrap_or(1).max(1);
    let n_expert = trace.n_expert as usize;
    let mut numbers = options.experts.clone();
    if numbers.is_empty() {
        numbers = [1, 2, 3, 4].map(|times| times * top_k).to_vec();
    }
    numbers.retain(|n| (1..=n_expert).contains(n));
    numbers.sort_unstable();
    numbers.dedup();
    let most = numbers.last().copied().unwrap_or(0);
    let fitted_tokens = ((decode as f64 * options.fit_share).floor() as usize).clamp(1, decode - 1);

    let has_scores = of_decode().any(|event| !event.scored.is_empty());
    let has_prompt = trace.events().any(|event| event.phase == Phase::Prefill);
    let lacks = |predictor: Predictor| match predictor {
        Predictor::PreviousScores | Predictor::CooccurrenceScores if !has_scores => {
            Some("since the trace holds no router scores (--trace-scores M records them)")
        }
        Predictor::HotPrompt if !has_prompt => Some("since the trace has no prompt"),
        _ => None,
    };
    let left_out: Vec<_> =
        Predictor::ALL.into_iter().filter_map(|p| Some((p, lacks(p)?))).collect();
    let predictors: Vec<_> = Predictor::ALL.into_iter().filter(|p| lacks(*p).is_none()).collect();

    let fitted = Fitted::new(trace, top_k, fitted_tokens);
    let bytes: Vec<u64> = trace.layers.iter().map(|layer| layer.expert_bytes).collect();
    let sizes = EntrySizes::new(&bytes, trace.n_expert);
    let (policy, budget) = options.cache.unwrap_or((PolicyKind::Lru, 0));
    let mut cache = Cache::new(sizes.clone(), budget, policy.build(&sizes, 0));
    let mut memories = vec![Memory::default(); trace.layers.len()];
    let mut tallies = vec![vec![Tally::default(); numbers.len()]; predictors.len()];
    let (mut ahead, mut placed) = (0, 0);
    let (mut walk, mut above_scored) = (Walk::default(), (Vec::new(), Vec::new()));
    for event in trace.events() {
        let (step, above) = walk.next(event.phase, event.layer);
        if event.phase == Phase::Decode && step > 0 {
            let memory = &memories[event.layer];
            let moment = Moment {
                layer: event.layer,
                recent: &memory.recent,
                scored: &memory.scored,
                above: above.then_some(walk.experts.as_slice()),
                above_scored: (&above_scored.0, &above_scored.1),
            };
            let resident: Vec<bool> =
                (0..n_expert).map(|e| cache.contains(sizes.key(event.layer, e as u16))).collect();
            let mut needed = event.experts.to_vec();
            needed.sort_unstable();
            needed.dedup();
            let size = bytes[event.layer] as f64;
            let held_out = step >= fitted_tokens;
            for (predictor, tallies) in predictors.iter().zip(&mut tallies) {
                let ranking = rank(*predictor, &moment, &fitted, most);
                for (number, tally) in numbers.iter().zip(tallies) {
                    let sums = match (&ranking, predictor) {
                        (Some(ranking), _) => guessed(ranking, *number, &needed, &resident, size),
                        (None, Predictor::Random) => random(*number, &needed, &resident, size),
                        (None, _) => continue,
                    };
                    tally[0].add(&sums);
                    if held_out {
                        tally[1].add(&sums);
                    }
                }
            }
        }
        if event.phase == Phase::Decode {
            placed += event.residency.len();
            ahead += event.residency.iter().filter(|r| **r == Residency::PrefetchHit).count();
        }
        cache.event(event.layer, event.experts);
        memories[event.layer].remember(event.experts, event.positions.len(), event.scored);
        if event.phase == Phase::Decode {
            walk.experts.clear();
            walk.experts.extend_from_slice(event.experts);
            above_scored = (event.scored.to_vec(), event.scores.to_vec());
        }
    }

    let (tokens, held_out_tokens) = (decode - 1, decode - fitted_tokens);
    let row = |predictor: Predictor, experts: usize, tally: &Tally| {
        let [all, held_out] = tally;
        let (sums, of) =
            if predictor.held_out_only() { (held_out, held_out_tokens) } else { (all, tokens) };
        let per_token = |bytes: f64| bytes / of as f64;
        let (read, useful) = (per_token(sums.read_bytes), per_token(sums.useful_bytes));
        let demand = per_token(sums.demand_bytes);
        let share = |sums: &Sums| (sums.needed > 0.0).then(|| sums.found / sums.needed);
        PredictRow {
            predictor,
            fitted_on: predictor.fitted_on(),
            experts,
            found: share(all).filter(|_| !predictor.held_out_only()),
            found_held_out: share(held_out),
            precision: (sums.guessed > 0.0).then(|| sums.found / sums.guessed),
            read_bytes: read,
            useful_bytes: useful,
            demand_bytes: demand,
            saved_s: options
                .device
                .filter(|_| sized)
                .map(|d| saved_s(&d, demand, useful, read - useful)),
        }
    };
    let rows = predictors.iter().zip(&tallies).flat_map(|(predictor, tallies)| {
        numbers.iter().zip(tallies).map(move |(number, tally)| (*predictor, *number, tally))
    });
    Ok(Predict {
        top_k,
        n_expert: trace.n_expert,
        tokens,
        fitted_tokens,
        held_out_tokens,
        cache: options.cache.map(|(policy, bytes)| (policy.to_string(), bytes)),
        device: options.device,
        sized,
        demand_bytes: tallies
            .first()
            .and_then(|of| of.first())
            .map_or(0.0, |tally| tally[0].demand_bytes / tokens as f64),
        rows: rows.map(|(predictor, number, tally)| row(predictor, number, tally)).collect(),
        left_out,
        recorded_ahead: (ahead > 0).then(|| ahead as f64 / placed as f64),
    })
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.needed += other.needed;
        self.found += other.found;
        self.guessed += other.guessed;
        self.read_bytes += other.read_bytes;
        self.useful_bytes += other.useful_bytes;
        self.demand_bytes += other.demand_bytes;
    }
}

fn demand(needed: &[u16], resident: &[bool], size: f64) -> f64 {
    needed.iter().filter(|e| !resident[usize::from(**e)]).count() as f64 * size
}

fn guessed(ranking: &[u16], number: usize, needed: &[u16], resident: &[bool], size: f64) -> Sums {
    let guess = &ranking[..number.min(ranking.len())];
    let mut sums = Sums {
        needed: needed.len() as f64,
        guessed: guess.len() as f64,
        demand_bytes: demand(needed, resident, size),
        ..Sums::default()
    };
    for expert in guess {
        let used = needed.binary_search(expert).is_ok();
        sums.found += f64::from(u8::from(used));
        if !resident[usize::from(*expert)] {
            sums.read_bytes += size;
            sums.useful_bytes += if used { size } else { 0.0 };
        }
    }
    sums
}

/// What is to be expected of experts drawn at random.
fn random(number: usize, needed: &[u16], resident: &[bool], size: f64) -> Sums {
    let share = number as f64 / resident.len() as f64;
    let absent = resident.iter().filter(|r| !**r).count() as f64;
    let demand_bytes = demand(needed, resident, size);
    Sums {
        needed: needed.len() as f64,
        found: share * needed.len() as f64,
        guessed: number as f64,
        read_bytes: share * absent * size,
        useful_bytes: share * demand_bytes,
        demand_bytes,
    }
}
