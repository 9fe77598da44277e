//! The matrices of a tune: ordinary ones, which `bmoe run` runs.

use std::fmt::Write;

use super::Request;
use super::candidates::Candidate;

/// The name of the model in all of them.
pub const MODEL: &str = "model";

/// Tokens of a probe of compute threads.
const PROBE_TOKENS: u32 = 16;

fn head(request: &Request, name: &str, repetitions: u32) -> String {
    let text = |value: &str| toml::Value::from(value).to_string();
    let model = match (&request.model, &request.synth) {
        (Some(path), _) => format!("path = {}", text(&path.to_string_lossy())),
        (None, Some(synth)) => {
            let layers = synth.layers.map_or_else(String::new, |n| format!(", layers = {n}"));
            format!("synth = {{ shape = {}{layers}, seed = {} }}", text(&synth.shape), synth.seed)
        }
        (None, None) => String::new(),
    };
    let ctx_tokens = (request.tokens + 512).next_multiple_of(512);
    format!(
        "name = \"{name}\"\nrepetitions = {repetitions}\ntimeout_s = 3600\n\n[[model]]\nname = \"{MODEL}\"\n{model}\n\n\
         [base]\nprompt = {}\nn_predict = {}\nctx_tokens = {ctx_tokens}\n",
        text(&request.prompt),
        request.tokens
    )
}

/// What is measured first: one run without a cache and without overlap, whose records have computation apart from
/// reads and the routes; the computation with other numbers of threads; and what overlap hides.
#[must_use]
pub fn probe(request: &Request, threads: &[u32]) -> String {
    let mut toml = head(request, "probe", 1);
    for (place, threads) in threads.iter().enumerate() {
        let _ = write!(
            toml,
            "\n[[cell]]\nmode = \"stream\"\ncache_mib = 0\noverlap = false\nthreads = {threads}\n"
        );
        if place > 0 {
            let _ = writeln!(toml, "n_predict = {PROBE_TOKENS}");
        }
    }
    if let Some(threads) = threads.first() {
        let _ = write!(
            toml,
            "\n[[cell]]\nmode = \"stream\"\ncache_mib = 0\noverlap = true\nthreads = {threads}\nn_predict = {PROBE_TOKENS}\n"
        );
    }
    toml
}

/// The race: the first candidate is the baseline, whose text all have to have. A memory map runs beside them where the
/// model fits into memory.
#[must_use]
pub fn race(request: &Request, candidates: &[Candidate], mapped: bool, repetitions: u32) -> String {
    let mut toml = head(request, "race", repetitions);
    let Some(first) = candidates.first() else { return toml };
    let baseline = format!("baseline = {{ {} }}\n", settings(first).join(", "));
    toml = toml.replacen("timeout_s", &format!("{baseline}timeout_s"), 1);
    for candidate in candidates {
        let _ = write!(toml, "\n[[cell]]\n{}\n", settings(candidate).join("\n"));
    }
    if mapped {
        let _ = write!(toml, "\n[[cell]]\nmode = \"mmap\"\nthreads = {}\n", first.threads);
    }
    toml
}

/// The winner with fewer experts per token, and with its own.
#[must_use]
pub fn lossy(request: &Request, winner: &Candidate, experts: &[u32], repetitions: u32) -> String {
    let mut toml = head(request, "lossy", repetitions);
    for experts in experts {
        let _ = write!(
            toml,
            "\n[[cell]]\n{}\nn_expert_used = {experts}\n",
            settings(winner).join("\n")
        );
    }
    toml
}

/// A candidate's settings, as lines of TOML.
#[must_use]
pub fn settings(candidate: &Candidate) -> Vec<String> {
    let mut lines = vec![
        "mode = \"stream\"".to_owned(),
        format!("cache_mib = {}", candidate.cache_mib),
        format!("io_threads = {}", candidate.lanes),
        format!("threads = {}", candidate.threads),
        format!("overlap = {}", candidate.overlap),
    ];
    if candidate.cache_mib > 0 {
        lines.push(format!("cache_policy = \"{}\"", candidate.policy.name()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use bmoe_cache::PolicyKind;

    use super::*;
    use crate::matrix::{Matrix, Synth};

    #[test]
    fn they_are_matrices() {
        let request = Request {
            model: None,
            synth: Some(Synth { shape: "quickstart".into(), layers: Some(2), seed: 3 }),
            target: "local".into(),
            engine: None,
            models: "models".into(),
            time_s: 60,
            memory_mib: None,
            lossy: true,
            prompt: "A \"quoted\"\nprompt".into(),
            tokens: 32,
        };
        let one = |cache_mib, overlap| Candidate {
            cache_mib,
            policy: PolicyKind::LfuAged,
            lanes: 4,
            threads: 2,
            overlap,
        };
        let candidates = [one(100, true), one(100, false), one(0, true)];
        let cells = |text: String| {
            let matrix: Matrix = toml::from_str(&text).unwrap();
            let schedule = matrix.schedule().unwrap();
            (schedule.cells.len(), schedule.runs.len(), schedule.cells[0].baseline)
        };
        assert_eq!(cells(probe(&request, &[2, 1])), (3, 3, false));
        assert_eq!(cells(race(&request, &candidates, true, 3)), (4, 12, true));
        assert_eq!(cells(lossy(&request, &candidates[0], &[8, 7, 6], 2)), (3, 6, false));
    }
}
