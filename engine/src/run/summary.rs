//! A request's totals, for the protocol's last line and for people.

use bmoe_trace::Mode;
use bmoe_trace::line::Done;
use bmoe_trace::record::{
    Cost, DirectIo, LoadRecord, PrefillRecord, Record, RunStart, TokenRecord,
};
use serde_json::Value;

use super::request::TurnReport;

/// Adds up the records of a run, request by request.
#[derive(Debug, Default)]
pub(super) struct Totals {
    start: Option<RunStart>,
    load: Option<LoadRecord>,
    prefill: Option<PrefillRecord>,
    sum: Cost,
    last: Option<TokenRecord>,
    done: Option<Done>,
}

impl Totals {
    pub(super) fn add(&mut self, record: &Record) {
        match record {
            Record::Start(start) => self.start = Some((**start).clone()),
            Record::Load(load) => self.load = Some(load.clone()),
            Record::Prefill(prefill) => self.prefill = Some(prefill.clone()),
            Record::Token(token) => {
                self.sum += &token.cost;
                self.last = Some(token.clone());
            }
            Record::Turn(_)
            | Record::Route(_)
            | Record::Read(_)
            | Record::Compute(_)
            | Record::Budget(_)
            | Record::End(_) => {}
        }
    }

    /// A request begins.
    pub(super) fn start_turn(&mut self) {
        self.prefill = None;
        self.sum = Cost::default();
    }

    /// A request came to its end.
    pub(super) fn end_turn(&mut self, report: &TurnReport, id: Value) {
        self.done = Some(Done { id, ..self.done(report) });
    }

    /// `BMOE_DONE` of the last request that ended.
    pub(super) fn last_done(&self) -> Option<&Done> {
        self.done.as_ref()
    }

    /// Cumulative hit rate in percent; -1 without a cache.
    pub(super) fn hit_pct(&self, token: &TokenRecord) -> f64 {
        let cached = self.load.as_ref().is_some_and(|l| l.cache_budget_bytes > 0);
        let rate = token.cumulative_hit_rate;
        if cached && !rate.is_nan() { 100.0 * rate } else { -1.0 }
    }

    /// The fields of `BMOE_DONE`; what was not reached is 0.
    fn done(&self, report: &TurnReport) -> Done {
        let load = self.load.as_ref();
        let prefill = self.prefill.as_ref();
        let prefill_s = prefill.map_or(0.0, |p| seconds(p.cost.wall_ns));
        let (n_prompt, tokens) = (report.prompt_tokens, report.tokens);
        let streaming = self.start.as_ref().is_some_and(|s| s.config.mode == Mode::Stream);
        // The kernel or nobody reads experts in the other modes: -1 = not measured.
        let measured = |value: f64| if streaming { value } else { -1.0 };
        let overlap = streaming && self.start.as_ref().is_some_and(|s| s.config.overlap);
        let wait_ns = self.sum.io_wait_ns;
        let per_token = |total: f64| if tokens == 0 { 0.0 } else { total / f64::from(tokens) };
        Done {
            id: Value::Null,
            cancelled: report.cancelled(),
            tokens,
            tok_s: rate(tokens, seconds(report.decode_ns)),
            prefill_s,
            prefill_tps: rate(n_prompt, prefill_s),
            load_s: load.map_or(0.0, |l| seconds(l.load_ns)),
            cache_hit_pct: self.last.as_ref().map_or(-1.0, |t| self.hit_pct(t)),
            n_prompt,
            n_past: report.total_tokens,
            compute_s_tok: per_token(seconds(self.sum.compute_ns)),
            io_s_tok: measured(per_token(seconds(if overlap {
                self.sum.lane_busy_ns
            } else {
                wait_ns
            }))),
            stall_s_tok: if overlap { per_token(seconds(wait_ns)) } else { 0.0 },
            mgmt_s_tok: measured(per_token(seconds(self.sum.mgmt_ns))),
            cpu_s_tok: per_token(seconds(self.sum.cpu_ns)),
            majflt_tok: per_token(self.sum.major_faults as f64),
            read_mib: measured(mib(self.sum.expert_read_bytes)),
            cache_resident_mib: self.last.as_ref().map_or(0.0, |t| mib(t.cache_resident_bytes)),
            cache_budget_mib: load.map_or(0.0, |l| mib(l.cache_budget_bytes)),
            token_demand_mib: self
                .start
                .as_ref()
                .map_or(0.0, |s| mib(s.model.token_demand_bytes())),
            finish: report.finish.as_str().to_owned(),
            n_reused: report.reused_tokens,
            n_removed: report.removed_tokens,
            prefix: report.prefix.as_str().to_owned(),
            logits_sha256: report.logits_sha256.clone(),
            other_s_tok: per_token(seconds(self.sum.other_ns)),
            ttft_s: prefill.map_or(0.0, |p| seconds(p.time_to_first_token_ns)),
            dense_read_s: load.map_or(0.0, |l| seconds(l.dense_read_ns)),
            dense_read_mib: load.map_or(0.0, |l| mib(l.dense_read_bytes)),
            load_expert_read_mib: load.map_or(0.0, |l| mib(l.expert_read_bytes)),
            event_room_mib: load.map_or(0.0, |l| mib(l.event_room_bytes)),
            peak_cache_mib: mib(report.peak_cache_bytes),
            peak_event_mib: mib(report.peak_event_bytes),
            peak_rss_mib: mib(report.peak_rss_bytes),
            o_direct: load.map_or_else(String::new, |l| direct_io(&l.direct_io)),
            reasoning: report.reasoning.clone(),
            text: report.text.clone(),
        }
    }
}

fn direct_io(how: &DirectIo) -> String {
    match how {
        DirectIo::Used => "used".into(),
        DirectIo::Off => "off, as asked for".into(),
        DirectIo::Unavailable { reason } => format!("not available: {reason}"),
        DirectIo::NotApplicable => "not applicable".into(),
    }
}

/// The lines that a person sees behind the text.
pub(super) fn for_people(done: &Done, streaming: bool, overlap: bool) -> String {
    let wait_s_tok = if overlap { done.stall_s_tok } else { done.io_s_tok };
    let reads = if streaming {
        format!(
            "compute {:.1} ms, I/O wait {:.1} ms, cache management {:.2} ms",
            1e3 * done.compute_s_tok,
            1e3 * wait_s_tok,
            1e3 * done.mgmt_s_tok
        )
    } else {
        format!("compute {:.1} ms", 1e3 * done.compute_s_tok)
    };
    let mut text = format!(
        "load     {:.2} s, of which {:.2} s read {:.0} MiB of dense weights; {:.0} MiB of experts read\n\
         prefill  {} tokens in {:.2} s, {:.1} tok/s; first token {:.2} s after the start\n\
         decode   {} tokens, {:.2} tok/s; per token: {reads}, other {:.2} ms\n\
         memory   peak {:.0} MiB\n",
        done.load_s,
        done.dense_read_s,
        done.dense_read_mib,
        done.load_expert_read_mib,
        done.n_prompt,
        done.prefill_s,
        done.prefill_tps,
        done.ttft_s,
        done.tokens,
        done.tok_s,
        1e3 * done.other_s_tok,
        done.peak_rss_mib,
    );
    if streaming {
        let hits = if done.cache_hit_pct < 0.0 {
            "none (no cache)".to_owned()
        } else {
            format!("{:.1} %", done.cache_hit_pct)
        };
        text += &format!(
            "experts  {:.1} MiB/token read, hits {hits}; at most {:.1} of {:.1} MiB cached, {:.1} of {:.1} \
             MiB event room in use\n\
             reads    O_DIRECT {}\n",
            done.read_mib / f64::from(done.tokens.max(1)),
            done.peak_cache_mib,
            done.cache_budget_mib,
            done.peak_event_mib,
            done.event_room_mib,
            done.o_direct,
        );
    }
    text
}

pub(super) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn rate(tokens: u32, seconds: f64) -> f64 {
    if seconds > 0.0 { f64::from(tokens) / seconds } else { 0.0 }
}
