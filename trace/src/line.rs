//! The published line protocol: `BMOE_<TAG> {json}`, one line an event, on standard output.
//!
//! Names and meanings follow the protocol of the BigMoeOnEdge engine, which existing consumers read;
//! the fields that this engine measures better stand beside them under names of their own
//! (`io_wait_ms`, `lane_busy_ms`, `other_ms`). `io` is blocked time when reads are serial and the summed
//! busy time of the lanes when they overlap with computation; `stall` exists under overlap only
//! ([`Published`](crate::record::Published)).

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A line of the protocol.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// The model is loaded.
    Ready(Ready),
    /// The prompt is computed.
    Prefill(Prefill),
    /// A token was generated.
    Progress(Progress),
    /// The run came to its end.
    Done(Done),
    /// The run failed.
    Error(ErrorLine),
}

/// `BMOE_READY`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Seconds from process start to a usable context.
    pub load_s: f64,
    /// Architecture.
    pub arch: String,
    /// Context length, tokens.
    pub n_ctx: u32,
    /// Experts per token.
    pub n_expert_used: u32,
}

/// `BMOE_PREFILL` (ours)
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prefill {
    /// Prompt tokens.
    pub n_prompt: u32,
    /// Seconds.
    pub prefill_s: f64,
    /// Seconds from process start to the first sampled token.
    pub ttft_s: f64,
}

/// `BMOE_PROGRESS`; times in milliseconds, -1 = not measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Decode step, from 1.
    pub step: u32,
    /// Steps asked for.
    pub steps: u32,
    /// The whole step.
    pub wall_ms: f64,
    /// Reading, as published: blocked when serial, the lanes' busy time under overlap.
    pub io_ms: f64,
    /// Computing.
    pub compute_ms: f64,
    /// Cache management.
    pub mgmt_ms: f64,
    /// Computation waited for reads although they overlap with it; 0 when reads are serial, as in the
    /// published logs.
    pub stall_ms: f64,
    /// MiB of expert weights read, those read ahead included.
    pub read_mb: f64,
    /// Cumulative, percent; -1 without a cache.
    pub cache_hit_pct: f64,
    /// Major faults.
    pub majflt: u64,
    /// CPU time of all threads.
    pub cpu_ms: f64,
    /// Share of the dense weights that is in memory.
    #[serde(default = "unmeasured")]
    pub dense_resident_frac: f64,
    /// Text of the token.
    pub delta_text: String,
    /// The graph was blocked on reads, or stalled for them under overlap.
    #[serde(default = "unmeasured")]
    pub io_wait_ms: f64,
    /// Summed busy time of the read lanes.
    pub lane_busy_ms: f64,
    /// Residual of the step.
    pub other_ms: f64,
}

const fn unmeasured() -> f64 {
    -1.0
}

/// `BMOE_DONE`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Done {
    /// Decode steps done.
    pub tokens: u32,
    /// Tokens over decode seconds.
    pub tok_s: f64,
    /// Seconds.
    pub prefill_s: f64,
    /// Prompt tokens a second.
    pub prefill_tps: f64,
    /// Seconds.
    pub load_s: f64,
    /// Cumulative, percent; -1 without a cache.
    pub cache_hit_pct: f64,
    /// Prompt tokens.
    pub n_prompt: u32,
    /// Computing, seconds a token.
    pub compute_s_tok: f64,
    /// Reading as published, seconds a token: blocked when serial, the lanes' busy time under overlap.
    pub io_s_tok: f64,
    /// Computation waited for reads although they overlap with it, seconds a token; 0 when serial.
    pub stall_s_tok: f64,
    /// Cache management, seconds a token.
    pub mgmt_s_tok: f64,
    /// CPU time, seconds a token.
    pub cpu_s_tok: f64,
    /// Major faults a token.
    pub majflt_tok: f64,
    /// MiB of expert weights read by all decode steps, those read ahead included.
    pub read_mib: f64,
    /// Held by the cache at the end.
    pub cache_resident_mib: f64,
    /// The cache's budget at the end.
    pub cache_budget_mib: f64,
    /// What one token touches, all layers.
    pub token_demand_mib: f64,
    /// Blocked on reads, or stalled for them under overlap, seconds a token.
    pub io_wait_s_tok: f64,
    /// Rate of the reads while any was outstanding, MiB/s; -1 = not measured.
    pub io_rate_mib_s: f64,
    /// Experts read ahead of need by all decode steps.
    pub spec_experts: u64,
    /// MiB of their slices.
    pub spec_read_mib: f64,
    /// Those of them that were used.
    pub spec_useful: u64,
    /// Those of them that left the cache unused.
    pub spec_wasted: u64,
    /// Changes of the cache's budget.
    pub cache_resizes: u64,
    /// The budget at the start.
    pub cache_first_budget_mib: f64,
    /// Residual, seconds a token.
    pub other_s_tok: f64,
    /// Seconds from process start to the first sampled token.
    pub ttft_s: f64,
    /// Part of `load_s` spent reading dense weights.
    pub dense_read_s: f64,
    /// Dense weights read while loading.
    pub dense_read_mib: f64,
    /// Experts read while loading.
    pub load_expert_read_mib: f64,
    /// Memory for the experts in use, beside the budget.
    pub event_room_mib: f64,
    /// Most that the cache held.
    pub peak_cache_mib: f64,
    /// Most that was in use beyond the budget.
    pub peak_event_mib: f64,
    /// Highest resident memory of the process.
    pub peak_rss_mib: f64,
    /// Whether O_DIRECT was used, or why not.
    pub o_direct: String,
    /// What handed the reads to the kernel.
    pub io_engine: String,
    /// The generated text.
    pub text: String,
}

/// `BMOE_ERROR`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorLine {
    /// The engine ends.
    pub fatal: bool,
    /// One line.
    pub msg: String,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        fn put<T: Serialize>(
            f: &mut std::fmt::Formatter<'_>,
            tag: &str,
            body: &T,
        ) -> std::fmt::Result {
            let json = serde_json::to_string(body).map_err(|_| std::fmt::Error)?;
            write!(f, "BMOE_{tag} {json}")
        }
        match self {
            Self::Ready(b) => put(f, "READY", b),
            Self::Prefill(b) => put(f, "PREFILL", b),
            Self::Progress(b) => put(f, "PROGRESS", b),
            Self::Done(b) => put(f, "DONE", b),
            Self::Error(b) => put(f, "ERROR", b),
        }
    }
}

impl Line {
    /// Reads a line; `None` when it isn't of the protocol, has a tag of a later version, or is
    /// damaged (the engine's output is followed while it is being written).
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        fn body<T: DeserializeOwned>(json: &str) -> Option<T> {
            serde_json::from_str(json).ok()
        }
        let (tag, json) = line.trim_end().strip_prefix("BMOE_")?.split_once(' ')?;
        match tag {
            "READY" => body(json).map(Self::Ready),
            "PREFILL" => body(json).map(Self::Prefill),
            "PROGRESS" => body(json).map(Self::Progress),
            "DONE" => body(json).map(Self::Done),
            "ERROR" => body(json).map(Self::Error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_round_trip_and_others_are_passed_over() {
        let line = Line::Error(ErrorLine { fatal: true, msg: "no \"such\"\nfile".into() });
        let text = line.to_string();
        assert!(text.starts_with("BMOE_ERROR {") && !text.contains('\n'), "{text}");
        assert_eq!(Line::parse(&text), Some(line));
        assert_eq!(Line::parse("llama_context: n_ctx = 512"), None);
        assert_eq!(Line::parse("BMOE_DONE {\"tokens\":"), None);
    }
}
