//! `bmoe_metrics v1`: what each decode step cost.

use std::io::{self, Write};

use super::{out_of_order, preamble_value};
use crate::config::{CacheBudget, Mode, RunConfig};
use crate::record::{
    Cost, DirectIo, LoadRecord, Outcome, PrefillRecord, Record, RunEnd, RunStart, TokenRecord,
};

const MIB: f64 = 1024.0 * 1024.0;

/// The published columns in their published order, then ours.
const HEADER: &str = "step,steps,wall_ms,io_ms,compute_ms,read_bytes,cache_hit_pct,stall_ms,mgmt_ms,\
majflt,cpu_ms,dense_resident_frac,turn,majflt_mib,cache_budget_mib,rss_mib,rss_anon_mib,rss_file_mib,\
swap_mib,mem_available_mib,mem_free_mib,swap_free_mib,\
io_wait_ms,lane_busy_ms,other_ms,reads,device_read_bytes,hits,misses";

/// Writes the per-token file of one run.
///
/// The preamble appears with [`Record::Load`], the `# summary` trailer with [`Record::End`]; a file
/// without a trailer is of a run that was ended from outside.
#[derive(Debug)]
pub struct MetricsCsv<W: Write> {
    out: W,
    start: Option<RunStart>,
    load: Option<LoadRecord>,
    prefill: Option<PrefillRecord>,
    /// Sums over the decode steps.
    sum: Cost,
    last: Option<TokenRecord>,
}

impl<W: Write> MetricsCsv<W> {
    /// A writer that has written nothing yet.
    pub fn new(out: W) -> Self {
        Self { out, start: None, load: None, prefill: None, sum: Cost::default(), last: None }
    }

    /// Takes the next record of the run; route records are passed over.
    ///
    /// # Errors
    /// The writer failed, or the records do not begin with [`Record::Start`].
    pub fn record(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::Start(start) => {
                self.start = Some((**start).clone());
                Ok(())
            }
            Record::Load(load) => {
                let preamble = self.preamble(load)?;
                self.load = Some(load.clone());
                self.put(&preamble)
            }
            Record::Turn(_)
            | Record::Route(_)
            | Record::Read(_)
            | Record::Compute(_)
            | Record::Budget(_) => Ok(()),
            Record::Prefill(prefill) => {
                self.prefill = Some(prefill.clone());
                Ok(())
            }
            Record::Token(token) => {
                let row = self.row(token)?;
                self.sum += &token.cost;
                self.last = Some(token.clone());
                self.put(&row)
            }
            Record::End(end) => {
                let summary = self.summary(end)?;
                self.put(&summary)
            }
        }
    }

    /// The writer underneath.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn put(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    fn start(&self, wanted_by: &str) -> io::Result<&RunStart> {
        self.start.as_ref().ok_or_else(|| out_of_order(wanted_by))
    }

    fn budget_bytes(&self) -> u64 {
        self.load.as_ref().map_or(0, |l| l.cache_budget_bytes)
    }

    fn preamble(&self, load: &LoadRecord) -> io::Result<String> {
        let RunStart { run_id, engine_version, llama_version, config, model, .. } =
            self.start("load")?;
        let stream = config.mode == Mode::Stream;
        Ok(format!(
            "# bmoe_metrics v1\n\
             # model={model_file} arch={arch} n_layer={n_layer} n_expert={n_expert} \
             n_expert_used={used} threads={threads} n_ctx={ctx}\n\
             # moe_stream={moe_stream} cache_mb={cache_mb} cache_auto={auto} cache_ceil_mb={ceil} force_cache={force} \
             io_threads={lanes} o_direct={o_direct} overlap={overlap} prefetch={prefetch} dense_weights={dense}\n\
             # mode={mode} engine=bmoe-engine-{engine} llama_cpp={llama} run_id={run_id} \
             n_ubatch={n_ubatch} event_room_mib={event_room:.1}\n\
             {HEADER}\n",
            model_file = preamble_value(&model_file(config)),
            arch = preamble_value(&model.arch),
            n_layer = model.n_layer,
            n_expert = model.n_expert,
            used = model.n_expert_used,
            threads = config.threads,
            ctx = config.ctx_tokens,
            moe_stream = u8::from(stream),
            cache_mb = if stream { load.cache_budget_bytes >> 20 } else { 0 },
            auto = u8::from(stream && config.cache_mib == CacheBudget::Auto),
            ceil = config.cache_ceil_mib,
            force = u8::from(config.force_cache),
            overlap = u8::from(stream && config.overlap),
            prefetch = config.prefetch_layers,
            lanes = if stream { config.io_threads } else { 0 },
            o_direct = u8::from(load.direct_io == DirectIo::Used),
            dense = match config.mode {
                Mode::Mmap => "mmap",
                Mode::Resident => "anon",
                Mode::Stream => config.dense_weights.as_str(),
            },
            mode = config.mode,
            engine = preamble_value(engine_version),
            llama = preamble_value(llama_version),
            run_id = preamble_value(run_id),
            n_ubatch = config.ubatch_tokens,
            event_room = load.event_room_bytes as f64 / MIB,
        ))
    }

    fn row(&self, token: &TokenRecord) -> io::Result<String> {
        let RunConfig { n_predict: steps, mode, .. } = self.start("token")?.config;
        // The other modes leave reading to llama.cpp and the kernel, where none of this is seen.
        let reads_experts = mode == Mode::Stream;
        let time = |ns| if reads_experts { ms(ns) } else { -1.0 };
        let count = |n: u64| if reads_experts { n.to_string() } else { "-1".to_owned() };
        let cost = &token.cost;
        let budget = token.cache_budget_bytes;
        // Reads are serial with computation, so the published `io_ms` is the blocked time and
        // `stall_ms`, which exists only under overlap, is 0 in the published files too.
        Ok(format!(
            "{step},{steps},{wall:.3},{io:.3},{compute:.3},{read_bytes},{hit:.2},0.000,{mgmt:.3},\
             {majflt},{cpu:.3},-1.000,0,-1.00,{budget:.1},{rss:.1},-1.0,-1.0,\
             -1.0,-1.0,-1.0,-1.0,\
             {io:.3},{lanes:.3},{other:.3},{reads},{device},{hits},{misses}\n",
            step = token.step,
            wall = ms(cost.wall_ns),
            io = time(cost.io_wait_ns),
            compute = ms(cost.compute_ns),
            read_bytes = count(cost.expert_read_bytes),
            hit = hit_pct(budget, token.cumulative_hit_rate),
            mgmt = time(cost.mgmt_ns),
            majflt = cost.major_faults,
            cpu = ms(cost.cpu_ns),
            budget = budget as f64 / MIB,
            rss = token.rss_bytes as f64 / MIB,
            lanes = time(cost.lane_busy_ns),
            other = ms(cost.other_ns),
            reads = count(cost.reads),
            device = count(cost.device_read_bytes),
            hits = count(cost.hits),
            misses = count(cost.misses),
        ))
    }

    fn summary(&self, end: &RunEnd) -> io::Result<String> {
        let RunStart { model, config, .. } = self.start("end")?;
        let reads_experts = |value: f64| if config.mode == Mode::Stream { value } else { -1.0 };
        let budget = self.budget_bytes();
        let tokens = f64::from(end.tokens);
        let per_token = |sum: f64| if end.tokens == 0 { -1.0 } else { sum / tokens };
        let decode_s = end.decode_ns as f64 / 1e9;
        let rate = if end.decode_ns == 0 { -1.0 } else { tokens / decode_s };
        let load_s = self.load.as_ref().map_or(-1.0, |l| l.load_ns as f64 / 1e9);
        let (n_prompt, prefill_s, prefill_tps, ttft_s) =
            self.prefill.as_ref().map_or((0, -1.0, -1.0, -1.0), |p| {
                let s = p.cost.wall_ns as f64 / 1e9;
                let tps = if s > 0.0 { f64::from(p.prompt_tokens) / s } else { -1.0 };
                (p.prompt_tokens, s, tps, p.time_to_first_token_ns as f64 / 1e9)
            });
        let largest = model.layers.iter().map(|l| l.expert_bytes).max().unwrap_or(0);
        Ok(format!(
            "# summary tokens={n} s/tok={s_tok:.3} tok/s={rate:.3} read_MiB={read:.1} io_s={io_s:.2} \
             compute_s/tok={compute:.3} io_s/tok={io:.3} cache_hit_pct={hit:.1} n_prompt={n_prompt} \
             load_s={load_s:.3} prefill_s={prefill_s:.3} prefill_tps={prefill_tps:.2} \
             stall_s/tok=0.000 mgmt_s/tok={mgmt:.3} cache_resident_MiB={resident:.1} \
             cache_budget_MiB={budget_mib:.1} cache_resizes=0 spec_read_MiB=0.0 spec_experts=0 \
             spec_useful=0 majflt/tok={majflt:.2} cpu_s/tok={cpu:.4} token_demand_MiB={demand:.1} \
             layer_demand_MiB={layer:.1} other_s/tok={other:.3} ttft_s={ttft_s:.3} \
             peak_rss_MiB={peak_rss:.1} peak_cache_MiB={peak_cache:.1} peak_event_MiB={peak_event:.1} \
             outcome={outcome}\n",
            n = end.tokens,
            s_tok = per_token(decode_s),
            read = reads_experts(self.sum.expert_read_bytes as f64 / MIB),
            io_s = reads_experts(self.sum.io_wait_ns as f64 / 1e9),
            compute = per_token(self.sum.compute_ns as f64 / 1e9),
            io = reads_experts(per_token(self.sum.io_wait_ns as f64 / 1e9)),
            hit = hit_pct(budget, self.last.as_ref().map_or(f64::NAN, |t| t.cumulative_hit_rate)),
            mgmt = reads_experts(per_token(self.sum.mgmt_ns as f64 / 1e9)),
            resident = self.last.as_ref().map_or(0, |t| t.cache_resident_bytes) as f64 / MIB,
            budget_mib = budget as f64 / MIB,
            majflt = per_token(self.sum.major_faults as f64),
            cpu = per_token(self.sum.cpu_ns as f64 / 1e9),
            demand = model.token_demand_bytes() as f64 / MIB,
            layer = (largest * u64::from(model.n_expert_used)) as f64 / MIB,
            other = per_token(self.sum.other_ns as f64 / 1e9),
            peak_rss = end.peak_rss_bytes as f64 / MIB,
            peak_cache = end.peak_cache_bytes as f64 / MIB,
            peak_event = end.peak_event_bytes as f64 / MIB,
            outcome = match end.outcome {
                Outcome::Complete => "complete",
                Outcome::Interrupted { .. } => "interrupted",
                Outcome::Failed { .. } => "failed",
            },
        ))
    }
}

fn model_file(config: &RunConfig) -> String {
    config.model.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Percent; -1 when there is no cache or nothing was looked up yet.
fn hit_pct(budget_bytes: u64, rate: f64) -> f64 {
    if budget_bytes == 0 || rate.is_nan() { -1.0 } else { 100.0 * rate }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::record::{IoEngineUsed, LayerShape, ModelShape};

    fn start() -> Record {
        Record::Start(Box::new(RunStart {
            run_id: "r-1".into(),
            started_unix_ms: 0,
            engine_version: "0.1.0".into(),
            llama_version: "0.1.161".into(),
            config: RunConfig {
                model: "models/my model.gguf".into(),
                cache_mib: CacheBudget::Mib(8),
                n_predict: 2,
                threads: 2,
                ..RunConfig::default()
            },
            model: ModelShape {
                arch: "qwen3moe".into(),
                n_layer: 2,
                n_expert: 8,
                n_expert_used: 2,
                file_bytes: 40 << 20,
                dense_bytes: 16 << 20,
                layers: (0..2)
                    .map(|layer| LayerShape { layer, expert_bytes: (1 + u64::from(layer)) << 20 })
                    .collect(),
            },
        }))
    }

    fn load(direct_io: DirectIo) -> Record {
        Record::Load(LoadRecord {
            load_ns: 1_500_000_000,
            dense_read_ns: 1,
            dense_read_bytes: 16 << 20,
            expert_read_bytes: 0,
            cache_budget_bytes: 8 << 20,
            event_room_bytes: 4 << 20,
            direct_io,
            io_engine: IoEngineUsed::Pread,
            rss_bytes: 30 << 20,
            preloaded_bytes: 0,
            preload_ns: 0,
        })
    }

    fn token(step: u32) -> Record {
        Record::Token(TokenRecord {
            step,
            position: 10 + step,
            token: 5,
            cost: Cost {
                wall_ns: 100_000_000,
                io_wait_ns: 40_000_000,
                compute_ns: 55_000_000,
                mgmt_ns: 1_000_000,
                lane_busy_ns: 90_000_000,
                io_active_ns: 50_000_000,
                other_ns: 4_000_000,
                expert_read_bytes: 3 << 20,
                device_read_bytes: (3 << 20) + 8192,
                reads: 2,
                hits: 2,
                misses: 2,
                speculated: 0,
                speculated_bytes: 0,
                speculated_hits: 0,
                speculated_wasted: 0,
                major_faults: 1,
                cpu_ns: 110_000_000,
            },
            cumulative_hit_rate: 0.5,
            cache_resident_bytes: 7 << 20,
            cache_budget_bytes: 8 << 20,
            rss_bytes: 50 << 20,
        })
    }

    fn end(tokens: u32) -> Record {
        Record::End(Box::new(RunEnd {
            outcome: Outcome::Complete,
            tokens,
            decode_ns: 100_000_000 * u64::from(tokens),
            peak_rss_bytes: 60 << 20,
            peak_cache_bytes: 8 << 20,
            peak_event_bytes: 2 << 20,
            text: "two words".into(),
            logits_sha256: None,
        }))
    }

    fn write(records: &[Record]) -> String {
        let mut csv = MetricsCsv::new(Vec::new());
        for record in records {
            csv.record(record).unwrap();
        }
        String::from_utf8(csv.into_inner()).unwrap()
    }

    #[test]
    fn a_row_names_every_column() {
        let text = write(&[start(), load(DirectIo::Used), token(1), token(2), end(2)]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "# bmoe_metrics v1");
        assert!(lines[1].starts_with("# model=my%20model.gguf arch=qwen3moe n_layer=2 "), "{text}");
        assert!(lines[2].contains(" cache_mb=8 ") && lines[2].contains(" o_direct=1 "), "{text}");
        let names: Vec<_> = lines[4].split(',').collect();
        let values: Vec<_> = lines[5].split(',').collect();
        assert_eq!(names.len(), values.len());
        let row: HashMap<_, _> = names.iter().zip(&values).collect();
        for (name, value) in [
            ("step", "1"),
            ("steps", "2"),
            ("wall_ms", "100.000"),
            ("io_ms", "40.000"),
            ("compute_ms", "55.000"),
            ("read_bytes", "3145728"),
            ("cache_hit_pct", "50.00"),
            ("rss_mib", "50.0"),
            ("swap_mib", "-1.0"),
            ("lane_busy_ms", "90.000"),
            ("misses", "2"),
        ] {
            assert_eq!(**row[&name], *value, "{name}");
        }
        assert!(lines[7].starts_with("# summary tokens=2 s/tok=0.100 tok/s=10.000 read_MiB=6.0 "));
        assert!(lines[7].contains(" token_demand_MiB=6.0 layer_demand_MiB=4.0 "), "{text}");
        assert!(lines[7].ends_with(" outcome=complete"), "{text}");
    }

    #[test]
    fn what_a_mode_does_not_measure_is_minus_one() {
        for mode in [Mode::Mmap, Mode::Resident] {
            let mut start = start();
            if let Record::Start(start) = &mut start {
                start.config.mode = mode;
            }
            let text = write(&[start, load(DirectIo::NotApplicable), token(1), end(1)]);
            let lines: Vec<_> = text.lines().collect();
            let row: HashMap<_, _> = lines[4].split(',').zip(lines[5].split(',')).collect();
            for name in ["io_ms", "mgmt_ms", "io_wait_ms", "lane_busy_ms"] {
                assert_eq!(row[name], "-1.000", "{name}");
            }
            for name in ["read_bytes", "reads", "device_read_bytes", "hits", "misses"] {
                assert_eq!(row[name], "-1", "{name}");
            }
            assert_eq!((row["compute_ms"], row["other_ms"]), ("55.000", "4.000"));
            let summary = lines.last().unwrap();
            for pair in
                [" read_MiB=-1.0 ", " io_s=-1.00 ", " io_s/tok=-1.000 ", " mgmt_s/tok=-1.000 "]
            {
                assert!(summary.contains(pair), "{pair}: {summary}");
            }
        }
    }

    #[test]
    fn direct_io_that_was_not_used_is_not_claimed() {
        let refused = DirectIo::Unavailable { reason: "tmpfs".into() };
        assert!(write(&[start(), load(refused)]).contains(" o_direct=0 "));
    }

    #[test]
    fn no_tokens_leave_unmeasured_rates_and_no_nan() {
        let text = write(&[start(), load(DirectIo::Used), end(0)]);
        assert!(text.contains("tokens=0 s/tok=-1.000 tok/s=-1.000"), "{text}");
        assert!(!text.to_lowercase().contains("nan"), "{text}");
    }

    #[test]
    fn the_start_record_is_needed() {
        assert!(MetricsCsv::new(Vec::new()).record(&token(1)).is_err());
    }

    #[test]
    fn the_published_columns_come_first_in_their_order() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../shared/data/published/2026-07-17/qwen_k6.csv"
        );
        let Ok(published) = std::fs::read_to_string(path) else {
            eprintln!("skipped: the published metrics are not beside this repository");
            return;
        };
        let header = published.lines().find(|l| l.starts_with("step,")).unwrap();
        assert!(HEADER.starts_with(&format!("{header},")), "{header}\n{HEADER}");
    }
}
