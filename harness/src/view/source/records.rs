//! What records and lines of an engine add to a run.

use bmoe_analysis::routes::{RouteEvent, RouteLayer, RouteTrace};
use bmoe_trace::line::{Line, Progress};
use bmoe_trace::record::{Outcome, Record, Residency, RouteRecord, RunStart, TokenRecord};
use bmoe_trace::{Mode, RunConfig};

use crate::view::world::{RouteLog, RunData, Step};

/// Adds records and lines to one run. Both tell of the same tokens; whichever comes first brings the token, and
/// what a record says counts.
#[derive(Debug, Default)]
pub struct Taker {
    /// Tokens that records and lines have told of.
    recorded: usize,
    written: usize,
    measured: bool,
    ended: bool,
    residency: Vec<Residency>,
    read_bytes: Vec<u64>,
}

impl Taker {
    /// A record of a trace.
    pub fn record(&mut self, run: &mut RunData, record: Record) {
        match record {
            Record::Start(start) => self.start(run, *start),
            Record::Load(load) => {
                run.load_ns = Some(load.load_ns);
                run.cache_budget_bytes = Some(load.cache_budget_bytes).filter(|b| *b > 0);
            }
            Record::Route(route) => self.route(run, &route),
            Record::Budget(budget) => run.budgets.push(bmoe_analysis::data::BudgetRow {
                turn: 0,
                step: budget.step,
                from_bytes: budget.from_bytes,
                to_bytes: budget.to_bytes,
                available_bytes: budget.available_bytes,
                evicted: budget.evicted,
            }),
            Record::Prefill(prefill) => {
                run.prompt_tokens.get_or_insert(prefill.prompt_tokens);
                run.prefill_ns.get_or_insert(prefill.cost.wall_ns);
                run.first_token_ns.get_or_insert(prefill.time_to_first_token_ns);
            }
            Record::Token(token) => {
                let step = step(&token, self.measured);
                if self.recorded < run.steps().len() {
                    run.refine(self.recorded, step);
                } else {
                    run.push(step);
                }
                self.recorded += 1;
            }
            Record::End(end) => {
                self.ended = true;
                run.over = true;
                run.trouble = match end.outcome {
                    Outcome::Complete => None,
                    Outcome::Interrupted { signal } => Some(format!("stopped by {signal}")),
                    Outcome::Failed { message } => Some(message),
                };
                if self.written == 0 {
                    run.set_text(end.text);
                }
            }
            Record::Turn(_) | Record::Read(_) | Record::Compute(_) => {}
        }
    }

    /// Whether the record of the run's end has come.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended
    }

    fn start(&mut self, run: &mut RunData, start: RunStart) {
        self.measured = start.config.mode == Mode::Stream;
        configure(run, &start.config);
        let layer = |l: &bmoe_trace::record::LayerShape| RouteLayer {
            index: l.layer,
            expert_bytes: l.expert_bytes,
        };
        let layers = start.model.layers.iter().map(layer).collect();
        run.routes = RouteLog::new(RouteTrace::new(
            run.name.clone(),
            start.model.arch.clone(),
            layers,
            start.model.n_expert,
        ));
        run.run_id = Some(start.run_id);
        run.shape = Some(start.model);
    }

    /// One event; one that does not fit the model is left out, and the run says so.
    fn route(&mut self, run: &mut RunData, route: &RouteRecord) {
        let layers = &run.routes.trace().layers;
        let Some(layer) = layers.iter().position(|l| l.index == route.layer) else {
            run.trouble = Some(format!("a route of layer {}, which the model lacks", route.layer));
            return;
        };
        self.residency.clear();
        self.read_bytes.clear();
        let beside = route.residency.len() == route.distinct.len()
            && route.read_bytes.len() == route.distinct.len();
        if beside {
            for (at, expert) in route.experts.iter().enumerate() {
                let Some(entry) = route.distinct.iter().position(|d| d == expert) else { break };
                // The first row that names an expert is the one that caused its read.
                let first = !route.experts[..at].contains(expert);
                self.residency.push(route.residency[entry]);
                self.read_bytes.push(if first { route.read_bytes[entry] } else { 0 });
            }
        }
        let event = RouteEvent {
            phase: route.phase,
            layer,
            positions: &route.positions,
            experts: &route.experts,
            residency: &self.residency,
            read_bytes: &self.read_bytes,
            ..RouteEvent::default()
        };
        if let Err(error) = run.routes.push(&event) {
            run.trouble = Some(format!("a route does not fit the model: {error}"));
        }
    }

    /// A line of the engine.
    pub fn line(&mut self, run: &mut RunData, line: &Line) {
        match line {
            Line::Ready(ready) => {
                run.load_ns.get_or_insert(ns(ready.load_s * 1e3).unwrap_or_default());
            }
            Line::Prefill(prefill) => {
                run.prompt_tokens.get_or_insert(prefill.n_prompt);
                run.prefill_ns.get_or_insert(ns(prefill.prefill_s * 1e3).unwrap_or_default());
                run.first_token_ns.get_or_insert(ns(prefill.ttft_s * 1e3).unwrap_or_default());
            }
            Line::Progress(progress) => {
                // Heard before: what followed the run began again.
                if (progress.step as usize) <= self.written {
                    return;
                }
                self.written += 1;
                if self.written > run.steps().len() {
                    run.push(from_line(progress));
                }
                let text = match progress.delta_reasoning.as_str() {
                    "" => progress.delta_text.clone(),
                    thoughts => format!("{thoughts}{}", progress.delta_text),
                };
                if progress.reset == 0 { run.write(&text) } else { run.rewrite(&text) }
            }
            Line::Error(error) => run.trouble = Some(error.msg.clone()),
            Line::Begin(_) | Line::Load(_) | Line::Done(_) => {}
        }
    }
}

/// What the configuration says of a run.
pub fn configure(run: &mut RunData, config: &RunConfig) {
    run.mode = config.mode.as_str().to_owned();
    let streams = config.mode == Mode::Stream;
    run.overlap = streams && config.overlap;
    run.lanes = streams.then_some(config.io_threads);
    run.policy = (streams && config.cache_mib.is_on()).then(|| config.cache_policy.clone());
    run.n_predict = Some(config.n_predict);
}

/// What a record measured; modes that read no experts themselves have zeros where nothing was.
fn step(token: &TokenRecord, measured: bool) -> Step {
    let cost = &token.cost;
    let of = |value: u64| measured.then_some(value);
    Step {
        wall_ns: Some(cost.wall_ns),
        compute_ns: Some(cost.compute_ns),
        io_wait_ns: of(cost.io_wait_ns),
        mgmt_ns: of(cost.mgmt_ns),
        other_ns: Some(cost.other_ns),
        lane_busy_ns: of(cost.lane_busy_ns),
        read_bytes: of(cost.expert_read_bytes + cost.speculated_bytes),
        hits: of(cost.hits),
        misses: of(cost.misses),
        cumulative_hit_rate: Some(token.cumulative_hit_rate).filter(|r| measured && !r.is_nan()),
        major_faults: Some(cost.major_faults),
        cache_resident_bytes: of(token.cache_resident_bytes),
        cache_budget_bytes: of(token.cache_budget_bytes).filter(|b| *b > 0),
        rss_bytes: Some(token.rss_bytes).filter(|b| *b > 0),
        mem_available_bytes: token.memory.available_bytes,
    }
}

/// Milliseconds as a line has them; below zero = not measured.
fn ns(ms: f64) -> Option<u64> {
    (ms >= 0.0).then_some((ms * 1e6) as u64)
}

fn from_line(progress: &Progress) -> Step {
    Step {
        wall_ns: ns(progress.wall_ms),
        compute_ns: ns(progress.compute_ms),
        io_wait_ns: ns(progress.io_wait_ms),
        mgmt_ns: ns(progress.mgmt_ms),
        other_ns: ns(progress.other_ms),
        lane_busy_ns: ns(progress.lane_busy_ms),
        read_bytes: (progress.read_mb >= 0.0)
            .then_some((progress.read_mb * 1024.0 * 1024.0) as u64),
        cumulative_hit_rate: (progress.cache_hit_pct >= 0.0)
            .then_some(progress.cache_hit_pct / 100.0),
        major_faults: Some(progress.majflt),
        ..Step::default()
    }
}
