//! The published line protocol: `BMOE_<TAG> {json}`, one line an event, on standard output.
//!
//! Names and meanings follow the protocol of the BigMoeOnEdge engine, which existing consumers read;
//! the fields that this engine measures better stand beside them under names of their own
//! (`io_wait_ms`, `lane_busy_ms`, ...). `io` is blocked time when reads are serial and the summed busy
//! time of the lanes when they overlap with computation; `stall` exists under overlap only
//! ([`Published`](crate::record::Published)). What a session is asked for is in
//! [`crate::command`].

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

/// A line of the protocol.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// The model is loaded.
    Ready(Ready),
    /// A request begins.
    Begin(Begin),
    /// The prompt is computed.
    Prefill(Prefill),
    /// Experts were read for a token; comes before its `Progress`.
    Load(Load),
    /// A token was generated.
    Progress(Progress),
    /// The request (in a one-shot run: the run) came to its end.
    Done(Box<Done>),
    /// The request was rejected, or the engine failed.
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
    /// How thinking is switched off: `template` (the chat template knows a switch), `prefill` (an empty
    /// block of thoughts is put in front of the answer) or `none` (not at all).
    #[serde(default)]
    pub think_ctl: String,
}

/// `BMOE_BEGIN`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// The request's name, as it came; null in a one-shot run.
    #[serde(default)]
    pub id: Value,
}

/// `BMOE_LOAD`, only when something was read
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// MiB of expert weights read for the token.
    pub mb: f64,
    /// Time of the reads, as in [`Progress::io_ms`].
    pub ms: f64,
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
    /// Share of the dense weights that is in memory; -1 = not measured.
    #[serde(default = "unmeasured")]
    pub dense_resident_frac: f64,
    /// What came to the thoughts.
    #[serde(default)]
    pub delta_reasoning: String,
    /// What came to the answer.
    pub delta_text: String,
    /// 1 = the deltas are all of thoughts and answer so far and replace what was sent (a mark showed
    /// that what had looked like the answer were thoughts).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reset: u8,
    /// The graph was blocked on reads, or stalled for them under overlap.
    #[serde(default = "unmeasured")]
    pub io_wait_ms: f64,
    /// Summed busy time of the read lanes.
    pub lane_busy_ms: f64,
    /// Residual of the step.
    pub other_ms: f64,
}

fn unmeasured() -> f64 {
    -1.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(n: &u8) -> bool {
    *n == 0
}

/// `BMOE_DONE`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Done {
    /// The request's name, as it came; null in a one-shot run.
    pub id: Value,
    /// The request was cancelled: the conversation is as it was before it.
    pub cancelled: bool,
    /// Decode steps done.
    pub tokens: u32,
    /// Tokens over decode seconds.
    pub tok_s: f64,
    /// Seconds.
    pub prefill_s: f64,
    /// Computed prompt tokens a second.
    pub prefill_tps: f64,
    /// Seconds.
    pub load_s: f64,
    /// Cumulative, percent; -1 without a cache.
    pub cache_hit_pct: f64,
    /// Prompt tokens that were computed; those of a prefix that was kept are in `n_reused`.
    pub n_prompt: u32,
    /// Tokens of the whole text, prompt and answer, at the end.
    pub n_past: u32,
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
    /// Why no more tokens came: `stop` (the model ended its text), `length` (as many as were asked for),
    /// `context` (it is full), `trace` (the replayed trace has no more tokens) or `cancelled`.
    pub finish: String,
    /// Tokens whose state was kept from earlier requests.
    pub n_reused: u32,
    /// Tokens of earlier requests that had to go, because the text now continues differently.
    pub n_removed: u32,
    /// How the kept tokens were kept: `new` (there were none), `kept`, `checkpoint` (the state was
    /// restored from a copy) or `prefilled` (nothing could be kept).
    pub prefix: String,
    /// SHA-256 of the request's logits, when they are hashed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logits_sha256: Option<String>,
    /// Blocked on reads, or stalled for them under overlap, seconds a token.
    pub io_wait_s_tok: f64,
    /// Rate of the decode steps' reads while any was outstanding, MiB/s; -1 = not measured.
    pub io_rate_mib_s: f64,
    /// The same of the prompt's reads.
    pub prefill_io_rate_mib_s: f64,
    /// Experts read ahead of need by all decode steps.
    pub spec_experts: u64,
    /// MiB of their slices.
    pub spec_read_mib: f64,
    /// Those of them that were used.
    pub spec_useful: u64,
    /// Those of them that left the cache unused.
    pub spec_wasted: u64,
    /// Changes of the cache's budget since the start of the process.
    pub cache_resizes: u64,
    /// The budget when the model was loaded.
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
    /// Those of them that a profile asked for.
    pub preloaded_mib: f64,
    /// Part of `load_s` spent on them.
    pub preload_s: f64,
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
    /// The model's thoughts.
    pub reasoning: String,
    /// The answer; without a chat template all of the generated text.
    pub text: String,
}

/// `BMOE_ERROR`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorLine {
    /// The rejected request's name; null when it has none.
    #[serde(default)]
    pub id: Value,
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
            Self::Begin(b) => put(f, "BEGIN", b),
            Self::Prefill(b) => put(f, "PREFILL", b),
            Self::Load(b) => put(f, "LOAD", b),
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
            "BEGIN" => body(json).map(Self::Begin),
            "PREFILL" => body(json).map(Self::Prefill),
            "LOAD" => body(json).map(Self::Load),
            "PROGRESS" => body(json).map(Self::Progress),
            "DONE" => body(json).map(|done| Self::Done(Box::new(done))),
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
        let line = Line::Error(ErrorLine {
            id: Value::Null,
            fatal: true,
            msg: "no \"such\"\nfile".into(),
        });
        let text = line.to_string();
        assert!(text.starts_with("BMOE_ERROR {") && !text.contains('\n'), "{text}");
        assert_eq!(Line::parse(&text), Some(line));
        assert_eq!(Line::parse("llama_context: n_ctx = 512"), None);
        assert_eq!(Line::parse("BMOE_DONE {\"tokens\":"), None);
    }
}
