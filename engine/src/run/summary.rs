//! A request's totals, for the protocol's last line and for people ([`super::people`]).

use bmoe_trace::Mode;
use bmoe_trace::line::Done;
use bmoe_trace::record::{
    Cost, DirectIo, IoEngineUsed, LoadRecord, PrefillRecord, Published, Record, RunStart,
    TokenRecord,
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
    /// Changes of the cache's budget.
    resizes: u64,
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
            Record::Budget(_) => self.resizes += 1,
            Record::Turn(_)
            | Record::Route(_)
            | Record::Read(_)
            | Record::Compute(_)
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
        let overlaps = self.start.as_ref().is_some_and(|s| s.config.overlaps());
        let published = Published::of(&self.sum, overlaps);
        let first_budget_mib = load.map_or(0.0, |l| mib(l.cache_budget_bytes));
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
            io_s_tok: measured(per_token(seconds(published.io_ns))),
            stall_s_tok: per_token(seconds(published.stall_ns)),
            mgmt_s_tok: measured(per_token(seconds(self.sum.mgmt_ns))),
            cpu_s_tok: per_token(seconds(self.sum.cpu_ns)),
            majflt_tok: per_token(self.sum.major_faults as f64),
            read_mib: measured(mib(published.read_bytes)),
            cache_resident_mib: self.last.as_ref().map_or(0.0, |t| mib(t.cache_resident_bytes)),
            cache_budget_mib: match &self.last {
                Some(token) => mib(token.cache_budget_bytes),
                None => first_budget_mib,
            },
            token_demand_mib: self
                .start
                .as_ref()
                .map_or(0.0, |s| mib(s.model.token_demand_bytes())),
            finish: report.finish.as_str().to_owned(),
            n_reused: report.reused_tokens,
            n_removed: report.removed_tokens,
            prefix: report.prefix.as_str().to_owned(),
            logits_sha256: report.logits_sha256.clone(),
            io_wait_s_tok: measured(per_token(seconds(self.sum.io_wait_ns))),
            io_rate_mib_s: io_rate(&self.sum),
            prefill_io_rate_mib_s: prefill.map_or(-1.0, |p| io_rate(&p.cost)),
            spec_experts: self.sum.speculated,
            spec_read_mib: mib(self.sum.speculated_bytes),
            spec_useful: self.sum.speculated_hits,
            spec_wasted: self.sum.speculated_wasted,
            cache_resizes: self.resizes,
            cache_first_budget_mib: first_budget_mib,
            other_s_tok: per_token(seconds(self.sum.other_ns)),
            ttft_s: prefill.map_or(0.0, |p| seconds(p.time_to_first_token_ns)),
            dense_read_s: load.map_or(0.0, |l| seconds(l.dense_read_ns)),
            dense_read_mib: load.map_or(0.0, |l| mib(l.dense_read_bytes)),
            load_expert_read_mib: load.map_or(0.0, |l| mib(l.expert_read_bytes)),
            preloaded_mib: load.map_or(0.0, |l| mib(l.preloaded_bytes)),
            preload_s: load.map_or(0.0, |l| seconds(l.preload_ns)),
            event_room_mib: load.map_or(0.0, |l| mib(l.event_room_bytes)),
            peak_cache_mib: mib(report.peak_cache_bytes),
            peak_event_mib: mib(report.peak_event_bytes),
            peak_rss_mib: mib(report.peak_rss_bytes),
            o_direct: load.map_or_else(String::new, |l| direct_io(&l.direct_io)),
            io_engine: load.map_or_else(String::new, |l| io_engine(&l.io_engine)),
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

fn io_engine(used: &IoEngineUsed) -> String {
    match used {
        IoEngineUsed::Pread => "pread".into(),
        IoEngineUsed::Uring => "io_uring".into(),
        IoEngineUsed::UringUnavailable { reason } => {
            format!("pread (io_uring is not available: {reason})")
        }
        IoEngineUsed::NotApplicable => "not applicable".into(),
    }
}

/// MiB/s while any read was outstanding; -1 = none was.
fn io_rate(cost: &Cost) -> f64 {
    match seconds(cost.io_active_ns) {
        active_s if active_s > 0.0 => mib(cost.device_read_bytes) / active_s,
        _ => -1.0,
    }
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
