//! What the replays say, as text, CSV and JSON.

use std::fmt::Write;

use bmoe_analysis::curve::{LruCurve, Step};
use bmoe_analysis::routes::RouteTrace;
use bmoe_analysis::simulate::{Accesses, Budget, Overshoot, Simulation};
use serde_json::{Value, json};

use crate::cmd::device::Device;

const MIB: f64 = 1024.0 * 1024.0;

/// Hit rates that the text shows budgets for.
const RATES: [f64; 9] = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0];

/// All that was found out.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) trace: &'a RouteTrace,
    pub(super) accesses: &'a Accesses,
    pub(super) top_k: usize,
    pub(super) seed: u64,
    pub(super) device: Option<Device>,
    pub(super) results: Vec<Simulation>,
    pub(super) curve: Option<LruCurve>,
    pub(super) targets: &'a [f64],
    /// The curve was asked for, not only targets on it.
    pub(super) all_steps: bool,
}

impl Report<'_> {
    fn slots(&self) -> bool {
        self.results.iter().any(|r| matches!(r.budget, Budget::SlotsPerLayer(_)))
    }

    fn tok_s(&self, result: &Simulation) -> Option<f64> {
        result.tok_s(&self.device.as_ref()?.model)
    }

    /// A row per policy and budget; with the curve a row per step, with targets the step that reaches each.
    pub(super) fn csv(&self) -> String {
        let budget = if self.slots() { "slots_per_layer" } else { "budget_mib" };
        let mut out = format!(
            "policy,{budget},hit_pct_decode,hit_pct_total,read_mib,mib_per_token,hits,misses,evictions,\
             tok_s_est\n"
        );
        let mut row = |words: [String; 10]| out += &(words.join(",") + "\n");
        let curve = self.curve.as_ref();
        let steps: Vec<Step> = match curve {
            Some(curve) if self.all_steps => curve.steps().to_vec(),
            Some(curve) => self.targets.iter().filter_map(|pct| curve.smallest_for(*pct)).collect(),
            None => Vec::new(),
        };
        for step in steps {
            let total = step.total();
            row([
                "lru".to_owned(),
                Budget::Bytes(step.budget_bytes).to_string(),
                decimals(step.decode.hit_pct(), 3),
                decimals(total.hit_pct(), 3),
                decimals(Some(total.read_bytes as f64 / MIB), 1),
                decimals(self.per_token(&step), 2),
                total.hits.to_string(),
                total.misses.to_string(),
                String::new(),
                String::new(),
            ]);
        }
        for result in self.results.iter().filter(|_| curve.is_none() || !self.all_steps) {
            let total = result.total();
            row([
                result.policy.to_string(),
                result.budget.to_string(),
                decimals(result.decode.hit_pct(), 3),
                decimals(total.hit_pct(), 3),
                decimals(result.read_mib(), 1),
                decimals(result.mib_per_token(), 2),
                total.hits.to_string(),
                total.misses.to_string(),
                total.evictions.to_string(),
                decimals(self.tok_s(result), 3),
            ]);
        }
        out
    }

    pub(super) fn json(&self) -> String {
        let rules = self.accesses.rules();
        let mib = |bytes: u64| self.accesses.sized().then(|| bytes as f64 / MIB);
        let results: Vec<Value> =
            self.results.iter().map(|result| self.json_result(result)).collect();
        let device = self.device.as_ref().map(|device| {
            json!({
                "compute_s": device.model.compute_s,
                "read_mib_s": device.model.read_mib_s,
                "overlap": device.model.overlap,
                "fitted_from": device.fitted_from,
            })
        });
        let all = json!({
            "trace": {
                "name": self.trace.name,
                "arch": self.trace.arch,
                "n_moe_layer": self.trace.layers.len(),
                "n_expert": self.trace.n_expert,
                "top_k": self.top_k,
                "decode_tokens": self.accesses.decode_tokens(),
                "events": self.accesses.len(),
                "rows": self.accesses.rows(),
                "token_mib": mib(self.accesses.token_bytes()),
                "largest_event_mib": mib(self.accesses.largest_event_bytes()),
                "touched_mib": mib(self.accesses.touched_bytes()),
                "bank_mib": mib(self.trace.bank_bytes()),
            },
            "rules": {
                "overshoot": match rules.overshoot {
                    Overshoot::Never => "never",
                    Overshoot::KeepUntilNextEvent => "keep-until-next-event",
                },
                "decode_only": rules.decode_only,
                "order": if rules.by_expert { "expert" } else { "router" },
            },
            "seed": self.seed,
            "device": device,
            "results": results,
            "curve": self.curve.as_ref().map(|curve| self.json_curve(curve)),
        });
        format!("{all:#}")
    }

    fn json_result(&self, result: &Simulation) -> Value {
        let (key, budget) = match result.budget {
            Budget::Bytes(bytes) => ("budget_mib", json!(bytes as f64 / MIB)),
            Budget::SlotsPerLayer(slots) => ("slots_per_layer", json!(slots)),
        };
        let total = result.total();
        let mut value = json!({
            "policy": result.policy.name(),
            "hit_pct_decode": result.decode.hit_pct(),
            "hit_pct_total": total.hit_pct(),
            "read_mib": result.read_mib(),
            "read_bytes": self.accesses.sized().then_some(total.read_bytes),
            "mib_per_token": result.mib_per_token(),
            "hits": total.hits,
            "misses": total.misses,
            "decode_hits": result.decode.hits,
            "decode_misses": result.decode.misses,
            "evictions": total.evictions,
            "tok_s_est": self.tok_s(result),
        });
        value[key] = budget;
        value
    }

    fn json_curve(&self, curve: &LruCurve) -> Value {
        let cliff = curve.cliff();
        let mib = |bytes: u64| bytes as f64 / MIB;
        let targets = self.targets.iter().map(|pct| {
            let step = curve.smallest_for(*pct);
            json!({ "hit_pct_decode": pct, "budget_mib": step.map(|step| mib(step.budget_bytes)) })
        });
        let steps = curve.steps().iter().filter(|_| self.all_steps).map(|step| {
            json!({
                "budget_bytes": step.budget_bytes,
                "hit_pct_decode": step.decode.hit_pct(),
                "hit_pct_total": step.total().hit_pct(),
                "read_mib": mib(step.total().read_bytes),
            })
        });
        json!({
            "policy": "lru",
            "token_mib": mib(cliff.token_bytes),
            "first_hit_mib": cliff.first_hit_bytes.map(mib),
            "hit_pct_decode_at_token": cliff.at_token.hit_pct(),
            "highest_hit_pct_decode": curve.highest_hit_pct(),
            "targets": targets.collect::<Vec<_>>(),
            "steps": steps.collect::<Vec<_>>(),
        })
    }

    pub(super) fn text(&self) -> String {
        let mut out = self.heading();
        let width = |of: &dyn Fn(&Simulation) -> String| {
            self.results.iter().map(|r| of(r).len()).max().unwrap_or(0)
        };
        let unit = if self.slots() { "slots" } else { "MiB" };
        let budget = width(&|r| r.budget.to_string()).max(unit.len());
        if !self.results.is_empty() {
            let rate = if self.device.is_some() { "  est. tok/s" } else { "" };
            let _ = writeln!(
                out,
                "\n{unit:>budget$}  {:<13}  hit % decode   all  MiB/token  read MiB     misses  evictions{rate}",
                "policy"
            );
        }
        let mut last = None;
        for result in &self.results {
            if last.replace(result.budget).is_some_and(|last| last != result.budget) {
                out.push('\n');
            }
            let total = result.total();
            let _ = write!(
                out,
                "{:>budget$}  {:<13}  {:>12}  {:>4}  {:>9}  {:>8}  {:>9}  {:>9}",
                result.budget,
                result.policy,
                dash(result.decode.hit_pct(), 2),
                dash(total.hit_pct(), 1),
                dash(result.mib_per_token(), 2),
                dash(result.read_mib(), 1),
                total.misses,
                total.evictions,
            );
            if self.device.is_some() {
                let _ = write!(out, "  {:>10}", dash(self.tok_s(result), 2));
            }
            out.push('\n');
        }
        if let Some(curve) = &self.curve {
            out.push('\n');
            out += &self.text_curve(curve);
        }
        out
    }

    fn heading(&self) -> String {
        let (trace, accesses) = (self.trace, self.accesses);
        let rules = accesses.rules();
        let arch = if trace.arch.is_empty() { String::new() } else { format!(" ({})", trace.arch) };
        let mut out = format!(
            "{}{arch}: {} generated tokens, {} layers of {} experts, top-{}\n",
            trace.name,
            accesses.decode_tokens(),
            trace.layers.len(),
            trace.n_expert,
            self.top_k,
        );
        if accesses.sized() {
            let _ = writeln!(
                out,
                "one token's experts {} MiB, all that are used {} MiB, all {} MiB",
                mib(accesses.token_bytes()),
                mib(accesses.touched_bytes()),
                mib(trace.bank_bytes()),
            );
        }
        let beyond = match rules.overshoot {
            Overshoot::Never => "nothing stays beyond the budget",
            Overshoot::KeepUntilNextEvent => {
                "an event larger than the budget stays until the next one"
            }
        };
        let prompt = if rules.decode_only { "without the prompt" } else { "with the prompt" };
        let order = if rules.by_expert { "; experts ascending" } else { "" };
        let _ = writeln!(out, "replayed {prompt}; {beyond}{order}");
        if let Some(Device { model, fitted_from }) = &self.device {
            let fitted =
                fitted_from.as_ref().map_or_else(String::new, |f| format!(" (medians of {f})"));
            let _ = writeln!(
                out,
                "estimated for {:.1} ms of computing a token, reads of {:.0} MiB/s, {:.0} % of the shorter \
                 hidden{fitted}",
                model.compute_s * 1e3,
                model.read_mib_s,
                model.overlap * 100.0,
            );
        }
        out
    }

    /// The rates that fit, the cliff and the targets, by budget.
    fn text_curve(&self, curve: &LruCurve) -> String {
        let cliff = curve.cliff();
        let highest = curve.highest_hit_pct().unwrap_or(0.0);
        let mut lines: Vec<(Step, String)> = Vec::new();
        if let Some(bytes) = cliff.first_hit_bytes {
            let below = curve.at(bytes);
            lines.push((below, "the first hit in decode".to_owned()));
        }
        let at_token = Step { budget_bytes: cliff.token_bytes, ..curve.at(cliff.token_bytes) };
        lines.push((at_token, "one token's experts: the cliff".to_owned()));
        let at_cliff = cliff.at_token.hit_pct().unwrap_or(0.0);
        let rates = RATES.into_iter().filter(|rate| *rate > at_cliff && self.all_steps);
        for (rate, what) in rates
            .map(|rate| (rate, ""))
            .chain(self.targets.iter().map(|target| (*target, " (target)")))
        {
            if let Some(step) = curve.smallest_for(rate) {
                lines.push((step, format!("{rate} %{what}")));
            }
        }
        if let Some(last) = curve.steps().last() {
            lines.push((*last, "only first uses miss".to_owned()));
        }
        lines.sort_by_key(|(step, _)| step.budget_bytes);
        lines.dedup_by(|next, line| {
            let same = next.0.budget_bytes == line.0.budget_bytes;
            if same {
                line.1 += &format!("; {}", next.1);
            }
            same
        });
        let mut out = format!(
            "LRU at every budget ({} steps): the smallest ones for …\n{:>12}  hit % decode   all  MiB/token\n",
            curve.steps().len(),
            "MiB"
        );
        for (step, what) in lines {
            let _ = writeln!(
                out,
                "{:>12}  {:>12}  {:>4}  {:>9}  {what}",
                mib_up(step.budget_bytes),
                dash(step.decode.hit_pct(), 2),
                dash(step.total().hit_pct(), 1),
                dash(self.per_token(&step), 2),
            );
        }
        for target in self.targets.iter().filter(|target| **target > highest) {
            let _ = writeln!(
                out,
                "target {target} %: no budget has it; first uses alone leave {highest:.2} %"
            );
        }
        out
    }

    fn per_token(&self, step: &Step) -> Option<f64> {
        let tokens = self.accesses.decode_tokens();
        (tokens > 0).then(|| step.decode.read_bytes as f64 / MIB / tokens as f64)
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / MIB)
}

/// Rounded up, so that the budget shown suffices.
fn mib_up(bytes: u64) -> String {
    format!("{:.2}", (bytes as f64 / MIB * 100.0).ceil() / 100.0)
}

fn decimals(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.decimals$}"))
}

fn dash(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.decimals$}"))
}
