//! The answer of a tune: a command line, a matrix, and why each knob is where it is.

use std::fmt::Write;

use bmoe_analysis::curve::LruCurve;

use super::Request;
use super::candidates::{Candidate, DeviceFigures, Predicted};
use super::matrices;
use super::race::Runner;

const MIB: u64 = 1 << 20;

/// All that the answer is made of.
#[derive(Debug)]
pub struct Answer<'a> {
    /// What was asked.
    pub request: &'a Request,
    /// The fastest configuration; `None` = a memory map was.
    pub winner: Option<&'a Candidate>,
    /// Everything measured, the fastest first.
    pub standing: &'a [Runner],
    /// What was measured and is no candidate, with the reason.
    pub out: &'a [(String, String)],
    /// Predictions, the fastest first.
    pub predicted: &'a [Predicted],
    /// What the device does.
    pub device: &'a DeviceFigures,
    /// LRU at every budget.
    pub curve: &'a LruCurve,
    /// Decode tokens of the routes that were simulated.
    pub tokens: usize,
    /// Fewer experts per token: top-k, rate, share of the router's weight lost.
    pub lossy: &'a [(u32, f64, Option<f64>)],
    /// Whether the intervals decide.
    pub decided: bool,
    /// What it took, seconds.
    pub spent_s: f64,
}

/// The engine's options of a configuration.
#[must_use]
pub fn options(candidate: &Candidate) -> String {
    let mut words = vec![
        format!("--cache-mb {}", candidate.cache_mib),
        format!("--io-threads {}", candidate.lanes),
        format!("--threads {}", candidate.threads),
        format!("--overlap {}", if candidate.overlap { "on" } else { "off" }),
    ];
    if candidate.cache_mib > 0 {
        words.push(format!("--cache-policy {}", candidate.policy.name()));
    }
    words.join(" ")
}

impl Answer<'_> {
    fn model(&self) -> String {
        match (&self.request.model, &self.request.synth) {
            (Some(path), _) => path.display().to_string(),
            (_, Some(synth)) => format!("{} (synthetic)", synth.shape),
            _ => String::new(),
        }
    }

    /// `recipe.toml`: the winner as a matrix that `bmoe run` takes; `None` where a memory map won.
    #[must_use]
    pub fn toml(&self) -> Option<String> {
        let winner = self.winner?;
        let matrix = matrices::race(self.request, std::slice::from_ref(winner), false, 1);
        Some(matrix.replacen("name = \"race\"", "name = \"recipe\"", 1))
    }

    /// The answer in words, as Markdown.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("# Tuned: {} on {}\n\n", self.model(), self.request.target);
        let Some(leader) = self.standing.first() else {
            text += "Nothing could be measured; the reasons are below.\n";
            self.push_out(&mut text);
            return text;
        };
        let _ = writeln!(
            text,
            "Fastest: **{}**, {:.2} tok/s in {} runs, after {:.0} s of {} s.\n",
            leader.name, leader.tok_s, leader.runs, self.spent_s, self.request.time_s
        );
        text += if self.decided {
            "The intervals decide: every other one is slower, or equally fast within 1 %.\n\n"
        } else {
            "The time was up before the intervals could decide: the first below whose interval holds 0 may be as fast.\n\n"
        };
        match self.winner {
            Some(winner) => {
                let _ = write!(
                    text,
                    "```\nbmoe-engine generate -m MODEL.gguf -p 'TEXT' {}\n```\n\n`recipe.toml` is the same as a matrix.\n",
                    options(winner)
                );
                self.push_why(&mut text, winner);
                self.push_next(&mut text, winner);
            }
            None => {
                text += "A memory map is the fastest here: the model fits into memory, and streaming has nothing to give. \
                         `bmoe-engine generate -m MODEL.gguf --mode mmap`\n";
            }
        }
        self.push_lossy(&mut text);
        self.push_standing(&mut text);
        self.push_out(&mut text);
        text
    }

    fn prediction(&self, of: &dyn Fn(&Candidate) -> bool) -> Option<&Predicted> {
        self.predicted.iter().find(|p| of(&p.candidate))
    }

    /// Each knob with what the alternatives were predicted or measured at.
    fn push_why(&self, text: &mut String, winner: &Candidate) {
        text.push_str("\n## Why\n\n");
        let mut line = |knob: &str, why: String| {
            let _ = writeln!(text, "- **{knob}**: {why}");
        };
        let rates: Vec<String> = self
            .device
            .disk
            .pread
            .iter()
            .map(|(lanes, rate)| format!("{lanes}: {rate:.0}"))
            .collect();
        line(
            "lanes",
            format!("{}. The storage reads MiB/s with lanes {}.", winner.lanes, rates.join(", ")),
        );
        let compute: Vec<String> = self
            .device
            .compute_s
            .iter()
            .map(|(threads, seconds)| format!("{threads}: {:.1}", seconds * 1e3))
            .collect();
        line(
            "threads",
            format!(
                "{}. Computing a token takes ms with threads {}.",
                winner.threads,
                compute.join(", ")
            ),
        );
        line(
            "overlap",
            format!(
                "{}. It hides {:.0} % of the shorter of computing and reading, as far as a run without a cache shows.",
                if winner.overlap { "on" } else { "off" },
                100.0 * self.device.overlap
            ),
        );
        let at_budget = |mib: u64| {
            let same = |c: &Candidate| {
                c.cache_mib == mib
                    && (c.lanes, c.threads, c.overlap)
                        == (winner.lanes, winner.threads, winner.overlap)
            };
            self.prediction(&same)
        };
        let mut budgets: Vec<u64> = self.predicted.iter().map(|p| p.candidate.cache_mib).collect();
        budgets.sort_unstable();
        budgets.dedup();
        let budgets: Vec<String> = budgets
            .into_iter()
            .filter_map(|mib| {
                let p = at_budget(mib)?;
                Some(format!(
                    "{mib}: {:.1} % hits, {:.0} MiB a token, {:.2} tok/s",
                    p.hit_pct, p.mib_token, p.tok_s
                ))
            })
            .collect();
        line(
            "cache",
            format!(
                "{} MiB of {} MiB that there are for it. Predicted at MiB {}.",
                winner.cache_mib,
                self.device.cache_memory_mib,
                budgets.join("; ")
            ),
        );
        if winner.cache_mib > 0 {
            line(
                "policy",
                format!(
                    "{}, which the simulation of the recorded routes chose.",
                    winner.policy.name()
                ),
            );
        }
        let predicted = self.prediction(&|c| c == winner).map(|p| p.tok_s);
        if let (Some(predicted), Some(leader)) = (predicted, self.standing.first()) {
            line(
                "prediction",
                format!(
                    "{predicted:.2} tok/s by the device model, {:.2} measured ({:+.0} %): the model knows no queues and no heat.",
                    leader.tok_s,
                    100.0 * (leader.tok_s / predicted - 1.0)
                ),
            );
        }
    }

    /// What more cache would buy.
    fn push_next(&self, text: &mut String, winner: &Candidate) {
        let rate = self.device.disk.pread.get(&winner.lanes).copied().unwrap_or(f64::NAN);
        let token_mib = |budget_mib: u64| {
            let step = self.curve.at(budget_mib * MIB);
            step.decode.read_bytes as f64 / MIB as f64 / self.tokens.max(1) as f64
        };
        text.push_str("\n## What more cache would buy\n\n");
        for more in [100_u64, 500, 1000] {
            let saved = token_mib(winner.cache_mib) - token_mib(winner.cache_mib + more);
            let _ = writeln!(
                text,
                "- {more} MiB more: {saved:.1} MiB fewer to read per token, {:.1} ms at {rate:.0} MiB/s (LRU, the recorded routes)",
                1e3 * saved / rate
            );
        }
    }

    fn push_lossy(&self, text: &mut String) {
        if self.lossy.is_empty() {
            return;
        }
        text.push_str(
            "\n## Fewer experts per token (lossy)\n\nThe text is another one, and how much worse is not measured. What is known is the \
             share of the router's weight that is left out.\n\n| experts | tok/s | router's weight lost % |\n|---:|---:|---:|\n",
        );
        for (experts, tok_s, lost) in self.lossy {
            let lost = lost.map_or_else(|| "–".to_owned(), |lost| format!("{:.1}", 100.0 * lost));
            let _ = writeln!(text, "| {experts} | {tok_s:.2} | {lost} |");
        }
    }

    fn push_standing(&self, text: &mut String) {
        text.push_str(
            "\n## Measured\n\n| configuration | tok/s | runs | against the fastest % | 95 % interval |\n|---|---:|---:|---:|---:|\n",
        );
        for runner in self.standing {
            let (difference, interval) = match runner.behind_pct {
                Some([difference, low, high]) => {
                    (format!("{difference:+.1}"), format!("{low:+.1} to {high:+.1}"))
                }
                None => ("–".to_owned(), "–".to_owned()),
            };
            let _ = writeln!(
                text,
                "| {} | {:.2} | {} | {difference} | {interval} |",
                runner.name, runner.tok_s, runner.runs
            );
        }
        text.push_str("\nAll runs with their records: `bmoe report race` in this folder.\n");
    }

    fn push_out(&self, text: &mut String) {
        if !self.out.is_empty() {
            text.push_str("\n## Not in the race\n\n");
            for (name, reason) in self.out {
                let _ = writeln!(text, "- {name}: {reason}");
            }
        }
    }
}
