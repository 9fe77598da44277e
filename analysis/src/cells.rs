//! Attempts of the journal grouped into cells, and their runs pooled into figures.

use std::collections::BTreeMap;

use bmoe_trace::RunConfig;

use crate::data::{RunRow, TokenRow};
use crate::result_set::{CellRecord, LoadAverage, Verdict};
use crate::stats::{Rates, mean};

const MIB: f64 = 1024.0 * 1024.0;

/// One cell of a matrix with the attempts that count.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell<'a> {
    /// Content hash.
    pub id: &'a str,
    /// Name.
    pub name: &'a str,
    /// The model's name within the matrix.
    pub model: &'a str,
    /// The one that others are compared with.
    pub baseline: bool,
    /// Its configuration.
    pub config: &'a RunConfig,
    /// The last attempt at each repetition, by repetition.
    pub attempts: Vec<&'a CellRecord>,
    /// The attempts that these took the place of, in the order of the runner.
    pub earlier: Vec<&'a CellRecord>,
    /// Repetitions that took more than one attempt.
    pub retried: usize,
    /// Place of its first attempt in the order of the runner.
    order: u32,
}

/// Groups attempts into cells, in the order in which the runner first started them.
#[must_use]
pub fn group(records: &[CellRecord]) -> Vec<Cell<'_>> {
    let mut by_id: BTreeMap<&str, BTreeMap<u32, Vec<&CellRecord>>> = BTreeMap::new();
    for record in records {
        by_id.entry(&record.id).or_default().entry(record.repetition).or_default().push(record);
    }
    let mut cells: Vec<Cell<'_>> = by_id
        .into_iter()
        .filter_map(|(id, repetitions)| {
            let order = repetitions.values().flatten().map(|r| r.order).min()?;
            let retried = repetitions.values().filter(|attempts| attempts.len() > 1).count();
            let (mut attempts, mut earlier) = (Vec::new(), Vec::new());
            for mut of_repetition in repetitions.into_values() {
                of_repetition.sort_by_key(|r| (r.attempt, r.order));
                attempts.extend(of_repetition.pop());
                earlier.append(&mut of_repetition);
            }
            earlier.sort_by_key(|r| r.order);
            let first = *attempts.first()?;
            Some(Cell {
                id,
                name: &first.name,
                model: &first.model,
                baseline: first.baseline,
                config: &first.config,
                attempts,
                earlier,
                retried,
                order,
            })
        })
        .collect();
    cells.sort_by_key(|c| c.order);
    cells
}

impl Cell<'_> {
    /// The attempts that ran to their end with the right text.
    pub fn valid(&self) -> impl Iterator<Item = &CellRecord> {
        self.attempts.iter().copied().filter(|a| a.verdict == Verdict::Valid)
    }

    /// How busy the machine was before and after its valid attempts, on average.
    #[must_use]
    pub fn load_average(&self) -> Option<(f64, f64)> {
        let loads: Vec<_> = self.valid().filter_map(|a| a.load_average).collect();
        let mean_of = |of: fn(&LoadAverage) -> f64| mean(&loads.iter().map(of).collect::<Vec<_>>());
        mean_of(|l| l.start).zip(mean_of(|l| l.end))
    }

    /// How often its attempts, repeated ones included, ended in which way; for people.
    #[must_use]
    pub fn verdicts(&self) -> String {
        let mut counts: Vec<(Verdict, usize)> = Vec::new();
        for attempt in self.earlier.iter().chain(&self.attempts) {
            match counts.iter_mut().find(|(verdict, _)| *verdict == attempt.verdict) {
                Some((_, count)) => *count += 1,
                None => counts.push((attempt.verdict, 1)),
            }
        }
        counts.sort_by_key(|(verdict, _)| *verdict != Verdict::Valid);
        let words = counts.iter().map(|(verdict, count)| match count {
            1 => verdict.words().to_owned(),
            n => format!("{n} {}", verdict.words()),
        });
        words.collect::<Vec<_>>().join(", ")
    }

    /// How the cell's attempts ended, with what the data lack of the valid ones (by repetition) and the
    /// reason of the first that is not valid; for people.
    #[must_use]
    pub fn verdict(&self, shortfalls: &[(u32, Shortfall)]) -> String {
        let valid = self.valid().count();
        let of = self.attempts.len();
        let bad = self.attempts.iter().find(|a| a.verdict != Verdict::Valid);
        let mut text = match (valid, of) {
            (0, _) => String::new(),
            (1, 1) => "valid".to_owned(),
            (valid, of) => format!("{valid} of {of} valid"),
        };
        for (repetition, shortfall) in shortfalls {
            match of {
                1 => text.push_str(&format!(", {shortfall}")),
                _ => text.push_str(&format!(", repetition {}: {shortfall}", repetition + 1)),
            }
        }
        if let Some(bad) = bad {
            let name = bad.verdict.words();
            if !text.is_empty() {
                text.push_str("; ");
            }
            text.push_str(&format!("**{name}**"));
            if let Some(reason) = &bad.reason {
                text.push_str(&format!(": {reason}"));
            }
        }
        match self.retried {
            0 => text,
            1 if of == 1 => text + " (retried)",
            n => text + &format!(" ({n} retried)"),
        }
    }
}

/// What the data lack of an attempt that was valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortfall {
    /// Its run.
    Run,
    /// Decode steps of its run.
    Tokens {
        /// Rows in `tokens.parquet`.
        held: usize,
        /// Steps of the run.
        of: u32,
    },
    /// The end of its trace, and perhaps steps before it.
    End {
        /// Steps in the trace.
        held: u32,
        /// Steps asked for.
        of: u32,
    },
}

impl Shortfall {
    /// Of a valid attempt, given its row and its decode steps.
    #[must_use]
    pub fn of(run: Option<&RunRow>, tokens: &[TokenRow]) -> Option<Self> {
        let Some(run) = run else { return Some(Self::Run) };
        if tokens.len() != run.tokens as usize {
            return Some(Self::Tokens { held: tokens.len(), of: run.tokens });
        }
        let end = Self::End { held: run.tokens, of: run.n_predict };
        run.outcome.is_none().then_some(end)
    }
}

impl std::fmt::Display for Shortfall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Run => write!(f, "run not in the data"),
            Self::Tokens { held, of } => write!(f, "{held} of {of} tokens in the data"),
            Self::End { held, of } => write!(f, "trace cut off after {held} of {of} tokens"),
        }
    }
}

/// Costs of an average decode token; times in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PerToken {
    /// The whole step.
    pub wall_s: f64,
    /// Computing.
    pub compute_s: f64,
    /// Blocked on expert reads, or stalled for them under overlap; `None` in modes that read no experts themselves.
    pub io_wait_s: Option<f64>,
    /// Cache management; `None` as for `io_wait_s`.
    pub mgmt_s: Option<f64>,
    /// Residual.
    pub other_s: f64,
    /// Summed busy time of the lanes; `None` as for `io_wait_s`.
    pub lane_busy_s: Option<f64>,
    /// CPU time of all threads.
    pub cpu_s: f64,
    /// MiB of experts wanted from storage; `None` as for `io_wait_s`.
    pub read_mib: Option<f64>,
    /// MiB transferred, alignment included; `None` as for `io_wait_s`.
    pub device_read_mib: Option<f64>,
    /// Read operations; `None` as for `io_wait_s`.
    pub reads: Option<f64>,
    /// Experts read ahead of need; `None` as for `io_wait_s`, or when it was not recorded, as below.
    pub speculated: Option<f64>,
    /// MiB of their slices.
    pub speculated_mib: Option<f64>,
    /// Hits on experts that had been read ahead.
    pub speculated_hits: Option<f64>,
    /// Experts read ahead that left the cache unused.
    pub speculated_wasted: Option<f64>,
    /// Major page faults.
    pub major_faults: f64,
}

/// What the valid runs of a cell measured, repetitions pooled.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Runs pooled.
    pub runs: usize,
    /// Over all tokens of all runs; `None` when no token was decoded.
    pub rates: Option<Rates>,
    /// Mean rate of each run, tokens per second.
    pub run_means: Vec<f64>,
    /// Costs of an average token; `None` when no token was decoded.
    pub per_token: Option<PerToken>,
    /// Hits over look-ups of a whole run, prompt included, 0 to 1; `None` without a cache.
    pub hit_rate: Option<f64>,
    /// The same over the decode steps alone.
    pub decode_hit_rate: Option<f64>,
    /// Process start to a usable context, mean of the runs.
    pub load_s: Option<f64>,
    /// Dense MiB read while loading, mean of the runs; `None` when the mode maps them.
    pub dense_read_mib: Option<f64>,
    /// Expert bytes read while loading, sum of the runs; `None` when the mode reads none itself.
    pub load_expert_read_bytes: Option<u64>,
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u32>,
    /// Time of the prompt, mean of the runs.
    pub prefill_s: Option<f64>,
    /// Process start to the first sampled token, mean of the runs.
    pub first_token_s: Option<f64>,
    /// Highest resident memory of any run.
    pub peak_rss_mib: Option<f64>,
    /// Cache budget in force, MiB; `None` without a cache.
    pub cache_budget_mib: Option<f64>,
    /// Highest number of expert MiB held between events of any run; `None` without a cache.
    pub peak_cache_mib: Option<f64>,
    /// Memory for experts in use, MiB; `None` in modes that read no experts themselves.
    pub event_room_mib: Option<f64>,
    /// How experts were read, as in the trace.
    pub direct_io: Option<String>,
    /// What handed the reads to the kernel, as in the trace.
    pub io_engine: Option<String>,
    /// Reads overlapped with computation.
    pub overlaps: bool,
    /// Experts were read ahead of need.
    pub speculates: bool,
    /// Reads or computation were recorded, which takes time of its own.
    pub perturbed: bool,
    /// Which experts stay in the cache; `None` without a cache.
    pub cache_policy: Option<String>,
    /// Most changes of the cache's budget in any run; `None` = not recorded.
    pub cache_resizes: Option<u32>,
    /// Lowest budget at the end of any run, MiB; `None` without a cache or when it was not recorded.
    pub last_budget_mib: Option<f64>,
    /// Rate that the decode steps' reads reached while any was outstanding, MiB/s.
    pub read_rate_mib_s: Option<f64>,
}

impl Figures {
    /// Pools the runs of one cell; `None` without any.
    #[must_use]
    pub fn pooled(runs: &[(&RunRow, &[TokenRow])]) -> Option<Self> {
        let (first, _) = runs.first()?;
        let streams = first.mode == "stream";
        let cached = first.cache_budget_bytes.is_some_and(|b| b > 0);
        let tokens: Vec<&TokenRow> = runs.iter().flat_map(|(_, tokens)| tokens.iter()).collect();
        let rows = || runs.iter().map(|(row, _)| *row);
        let mean_of = |of: &dyn Fn(&RunRow) -> Option<u64>, unit: f64| {
            mean(&rows().filter_map(of).map(|v| v as f64 / unit).collect::<Vec<_>>())
        };
        let highest = |of: &dyn Fn(&RunRow) -> Option<u64>| {
            rows().filter_map(of).max().map(|bytes| bytes as f64 / MIB)
        };
        let sum =
            |of: fn(&TokenRow) -> Option<u64>| tokens.iter().map(|t| of(t)).sum::<Option<u64>>();
        let lookups = sum(|t| t.hits).zip(sum(|t| t.misses)).filter(|(h, m)| h + m > 0);
        let last_rates: Vec<f64> =
            runs.iter().filter_map(|(_, tokens)| tokens.last()?.cumulative_hit_rate).collect();
        Some(Self {
            runs: runs.len(),
            rates: Rates::from_wall_ns(tokens.iter().map(|t| t.wall_ns)),
            run_means: runs
                .iter()
                .filter_map(|(_, t)| Rates::from_wall_ns(t.iter().map(|t| t.wall_ns)))
                .map(|r| r.mean)
                .collect(),
            per_token: PerToken::mean(&tokens),
            hit_rate: mean(&last_rates).filter(|_| cached),
            decode_hit_rate: lookups
                .filter(|_| cached)
                .map(|(hits, misses)| hits as f64 / (hits + misses) as f64),
            load_s: mean_of(&|r| r.load_ns, 1e9),
            dense_read_mib: mean_of(&|r| r.dense_read_bytes, MIB),
            load_expert_read_bytes: streams
                .then(|| rows().filter_map(|r| r.load_expert_read_bytes).sum()),
            prompt_tokens: first.prompt_tokens,
            prefill_s: mean_of(&|r| r.prefill_ns, 1e9),
            first_token_s: mean_of(&|r| r.time_to_first_token_ns, 1e9),
            peak_rss_mib: highest(&|r| r.peak_rss_bytes),
            cache_budget_mib: highest(&|r| r.cache_budget_bytes).filter(|_| cached),
            peak_cache_mib: highest(&|r| r.peak_cache_bytes).filter(|_| cached),
            event_room_mib: highest(&|r| r.event_room_bytes).filter(|_| streams),
            direct_io: first.direct_io.clone(),
            io_engine: first.io_engine.clone(),
            overlaps: first.overlap == Some(true),
            speculates: sum(|t| t.speculated).is_some_and(|n| n > 0),
            perturbed: rows().any(|r| r.perturbed == Some(true)),
            cache_policy: first.cache_policy.clone().filter(|_| cached),
            cache_resizes: rows().filter_map(|r| r.cache_resizes).max(),
            last_budget_mib: runs
                .iter()
                .filter_map(|(_, tokens)| tokens.last()?.cache_budget_bytes)
                .min()
                .filter(|_| cached)
                .map(|bytes| bytes as f64 / MIB),
            read_rate_mib_s: sum(|t| t.device_read_bytes)
                .zip(sum(|t| t.io_active_ns).filter(|ns| *ns > 0))
                .map(|(bytes, ns)| bytes as f64 / MIB / (ns as f64 / 1e9)),
        })
    }

    /// The lowest and the highest mean rate of a single run.
    #[must_use]
    pub fn run_range(&self) -> Option<(f64, f64)> {
        let low = self.run_means.iter().copied().min_by(f64::total_cmp);
        low.zip(self.run_means.iter().copied().max_by(f64::total_cmp))
    }
}

impl PerToken {
    fn mean(tokens: &[&TokenRow]) -> Option<Self> {
        let count = tokens.len() as f64;
        let per = |of: fn(&TokenRow) -> u64, unit: f64| {
            tokens.iter().map(|t| u128::from(of(t))).sum::<u128>() as f64 / unit / count
        };
        let measured = |of: fn(&TokenRow) -> Option<u64>, unit: f64| {
            let sum: Option<u128> = tokens.iter().map(|t| of(t).map(u128::from)).sum();
            sum.map(|sum| sum as f64 / unit / count)
        };
        (!tokens.is_empty()).then(|| Self {
            wall_s: per(|t| t.wall_ns, 1e9),
            compute_s: per(|t| t.compute_ns, 1e9),
            io_wait_s: measured(|t| t.io_wait_ns, 1e9),
            mgmt_s: measured(|t| t.mgmt_ns, 1e9),
            other_s: per(|t| t.other_ns, 1e9),
            lane_busy_s: measured(|t| t.lane_busy_ns, 1e9),
            cpu_s: per(|t| t.cpu_ns, 1e9),
            // What was read early counts like the rest, or guessing would look free.
            read_mib: measured(
                |t| Some(t.expert_read_bytes? + t.speculated_bytes.unwrap_or(0)),
                MIB,
            ),
            device_read_mib: measured(|t| t.device_read_bytes, MIB),
            reads: measured(|t| t.reads, 1.0),
            speculated: measured(|t| t.speculated, 1.0),
            speculated_mib: measured(|t| t.speculated_bytes, MIB),
            speculated_hits: measured(|t| t.speculated_hits, 1.0),
            speculated_wasted: measured(|t| t.speculated_wasted, 1.0),
            major_faults: per(|t| t.major_faults, 1.0),
        })
    }
}
