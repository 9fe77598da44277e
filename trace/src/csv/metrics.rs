//! `bmoe_metrics v2`: what each decode step cost.

use std::io::{self, Write};

use super::{out_of_order, preamble_value};
use crate::config::{CacheBudget, ComputeTrace, Mode, RunConfig};
use crate::record::{
    Cost, DirectIo, LoadRecord, Outcome, PrefillRecord, Published, Record, RunEnd, RunStart,
    TokenRecord,
};

const MIB: f64 = 1024.0 * 1024.0;

/// The published columns in their published order, then ours.
const HEADER: &str = "step,steps,wall_ms,io_ms,compute_ms,read_bytes,cache_hit_pct,stall_ms,mgmt_ms,\
majflt,cpu_ms,dense_resident_frac,turn,majflt_mib,cache_budget_mib,rss_mib,rss_anon_mib,rss_file_mib,\
swap_mib,mem_available_mib,mem_free_mib,swap_free_mib,\
loop_overhead_ms,mtp_batch,mtp_draft_ms,drain_ms,adopt_ms,ra_issue_ms,ra_wd_ms,\
io_wait_ms,lane_busy_ms,io_active_ms,other_ms,reads,device_read_bytes,hits,misses,\
speculated,speculated_bytes,speculated_hits,speculated_wasted";

/// Writes the per-token file of one run.
///
/// The preamble appears with [`Record::Load`], the `# summary` trailer with [`Record::End`]; a file
/// without a trailer is of a run that was ended from outside.
#[derive(Debug)]
pub struct MetricsCsv<W: Write> {
    out: W,
    start: Option<RunStart>,
    load: Option<LoadRecord>,
    prefill: Prefills,
    turn: u32,
    /// Tokens that the running turn may have; the configuration's number outside of sessions.
    turn_steps: Option<u32>,
    /// Changes of the cache's budget.
    resizes: u64,
    /// Sums over the decode steps.
    sum: Cost,
    last: Option<TokenRecord>,
}

/// The prompts of all turns.
#[derive(Debug, Default)]
struct Prefills {
    prompt_tokens: u32,
    wall_ns: u64,
    /// Of the first turn.
    first_token_ns: Option<u64>,
}

impl Prefills {
    fn add(&mut self, prefill: &PrefillRecord) {
        self.prompt_tokens += prefill.prompt_tokens;
        self.wall_ns += prefill.cost.wall_ns;
        self.first_token_ns.get_or_insert(prefill.time_to_first_token_ns);
    }
}

impl<W: Write> MetricsCsv<W> {
    /// A writer that has written nothing yet.
    pub fn new(out: W) -> Self {
        Self {
            out,
            start: None,
            load: None,
            prefill: Prefills::default(),
            turn: 0,
            turn_steps: None,
            resizes: 0,
            sum: Cost::default(),
            last: None,
        }
    }

    /// Takes the next record of the run; records of single events are passed over.
    ///
    /// # Errors
    /// The writer failed, or the records do not begin with [`Record::Start`].
    pub fn record(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::Start(start) => self.start = Some((**start).clone()),
            Record::Load(load) => {
                let preamble = self.preamble(load)?;
                self.load = Some(load.clone());
                self.put(&preamble)?;
            }
            Record::Turn(turn) => {
                self.turn = turn.turn;
                self.turn_steps = Some(turn.n_predict);
            }
            Record::Budget(_) => self.resizes += 1,
            Record::Route(_) | Record::Read(_) | Record::Compute(_) => {}
            Record::Prefill(prefill) => self.prefill.add(prefill),
            Record::Token(token) => {
                let row = self.row(token)?;
                self.sum += &token.cost;
                self.last = Some(token.clone());
                self.put(&row)?;
            }
            Record::End(end) => {
                let summary = self.summary(end)?;
                self.put(&summary)?;
            }
        }
        Ok(())
    }

    /// The writer underneath, to look at.
    pub(crate) fn written(&self) -> &W {
        &self.out
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

    /// The line of the model begins with `model=` and that of the engine stands alone: readers look for
    /// a run's name at the beginning of a line.
    fn preamble(&self, load: &LoadRecord) -> io::Result<String> {
        let RunStart { run_id, engine_version, llama_version, config, model, .. } =
            self.start("load")?;
        let stream = config.mode == Mode::Stream;
        let sampling = &config.sampling;
        Ok(format!(
            "# bmoe_metrics v2\n\
             # engine=bmoe-engine-{engine}\n\
             # model={model_file} arch={arch} n_layer={n_layer} n_expert={n_expert} \
             n_expert_used={used} threads={threads} n_ctx={ctx} n_ubatch={n_ubatch} chatml={chat}\n\
             # moe_stream={moe_stream} cache_mb={cache_mb} cache_auto={auto} cache_floor_mb={floor} \
             cache_ceil_mb={ceil} force_cache={force} io_threads={lanes} o_direct={o_direct} \
             overlap={overlap} prefetch={prefetch} predict_prefetch={predicts} predict_spec_max={predict} \
             dense_weights={dense}\n\
             # temp={temp} top_k={top_k} top_p={top_p} seed={seed} \
             compute_trace_layers={layer_trace} spec=off\n\
             # mode={mode} llama_cpp={llama} run_id={run_id} cache_policy={policy} io_engine={io_engine} \
             min_p={min_p} think={think} cpu_mask={cpu_mask} io_trace={io_trace} \
             compute_trace={compute_trace} event_room_mib={event_room:.1}{replayed}\n\
             {HEADER}\n",
            replayed = config.replay_routes.as_ref().map_or_else(String::new, |trace| {
                format!(" replay_routes={}", preamble_value(&trace.to_string_lossy()))
            }),
            engine = preamble_value(engine_version),
            model_file = preamble_value(&model_file(config)),
            arch = preamble_value(&model.arch),
            n_layer = model.n_layer,
            n_expert = model.n_expert,
            used = model.n_expert_used,
            threads = config.threads,
            ctx = config.ctx_tokens,
            n_ubatch = config.ubatch_tokens,
            chat = u8::from(config.chat),
            moe_stream = u8::from(stream),
            cache_mb = if stream { load.cache_budget_bytes >> 20 } else { 0 },
            auto = u8::from(stream && config.cache_mib == CacheBudget::Auto),
            floor = config.cache_floor_mib,
            ceil = config.cache_ceil_mib,
            force = u8::from(config.force_cache),
            lanes = if stream { config.io_threads } else { 0 },
            o_direct = u8::from(load.direct_io == DirectIo::Used),
            overlap = u8::from(config.overlaps()),
            prefetch = if stream { config.prefetch_layers } else { 0 },
            predicts = u8::from(stream && config.predict_experts > 0),
            predict = if stream { config.predict_experts } else { 0 },
            dense = match config.mode {
                Mode::Mmap => "mmap",
                Mode::Resident => "anon",
                Mode::Stream => config.dense_weights.as_str(),
            },
            temp = sampling.temperature,
            top_k = sampling.top_k,
            top_p = sampling.top_p,
            seed = sampling.seed,
            layer_trace = u8::from(config.compute_trace == ComputeTrace::Layers),
            mode = config.mode,
            llama = preamble_value(llama_version),
            run_id = preamble_value(run_id),
            policy = preamble_value(&config.cache_policy),
            io_engine = load.io_engine.as_str(),
            min_p = sampling.min_p,
            think = config.think,
            cpu_mask = match config.cpu_mask.as_str() {
                "" => "any".to_owned(),
                mask => preamble_value(mask),
            },
            io_trace = u8::from(config.io_trace),
            compute_trace = config.compute_trace,
            event_room = load.event_room_bytes as f64 / MIB,
        ))
    }

    fn row(&self, token: &TokenRecord) -> io::Result<String> {
        let config = &self.start("token")?.config;
        // The other modes leave reading to llama.cpp and the kernel, where none of this is seen.
        let reads_experts = config.mode == Mode::Stream;
        let time = |ns| if reads_experts { ms(ns) } else { -1.0 };
        let count = |n: u64| if reads_experts { n.to_string() } else { "-1".to_owned() };
        let (cost, memory) = (&token.cost, &token.memory);
        let budget = token.cache_budget_bytes;
        let published = Published::of(cost, config.overlaps());
        let mib = |bytes: Option<u64>| bytes.map_or(-1.0, |b| b as f64 / MIB);
        Ok(format!(
            "{step},{steps},{wall:.3},{io:.3},{compute:.3},{read_bytes},{hit:.2},{stall:.3},{mgmt:.3},\
             {majflt},{cpu:.3},{dense:.3},{turn},-1.00,{budget:.1},{rss:.1},{anon:.1},{file:.1},\
             {swap:.1},{available:.1},{free:.1},{swap_free:.1},\
             -1.000,-1,-1.000,-1.000,-1.000,-1.000,-1.000,\
             {io_wait:.3},{lanes:.3},{io_active:.3},{other:.3},{reads},{device},{hits},{misses},\
             {speculated},{speculated_bytes},{speculated_hits},{speculated_wasted}\n",
            step = token.step,
            steps = self.turn_steps.unwrap_or(config.n_predict),
            wall = ms(cost.wall_ns),
            dense = memory
                .dense_resident_permille
                .map_or(-1.0, |permille| f64::from(permille) / 1000.0),
            io = time(published.io_ns),
            compute = ms(cost.compute_ns),
            read_bytes = count(published.read_bytes),
            hit = hit_pct(budget, token.cumulative_hit_rate),
            stall = ms(published.stall_ns),
            mgmt = time(cost.mgmt_ns),
            majflt = cost.major_faults,
            cpu = ms(cost.cpu_ns),
            turn = self.turn,
            budget = budget as f64 / MIB,
            rss = token.rss_bytes as f64 / MIB,
            anon = mib(memory.anon_bytes),
            file = mib(memory.file_bytes),
            swap = mib(memory.swap_bytes),
            available = mib(memory.available_bytes),
            free = mib(memory.free_bytes),
            swap_free = mib(memory.swap_free_bytes),
            io_wait = time(cost.io_wait_ns),
            lanes = time(cost.lane_busy_ns),
            io_active = time(cost.io_active_ns),
            other = ms(cost.other_ns),
            reads = count(cost.reads),
            device = count(cost.device_read_bytes),
            hits = count(cost.hits),
            misses = count(cost.misses),
            speculated = count(cost.speculated),
            speculated_bytes = count(cost.speculated_bytes),
            speculated_hits = count(cost.speculated_hits),
            speculated_wasted = count(cost.speculated_wasted),
        ))
    }

    fn summary(&self, end: &RunEnd) -> io::Result<String> {
        let RunStart { model, config, .. } = self.start("end")?;
        let reads_experts = |value: f64| if config.mode == Mode::Stream { value } else { -1.0 };
        let (sum, last) = (&self.sum, self.last.as_ref());
        let loaded_budget = self.load.as_ref().map_or(0, |l| l.cache_budget_bytes);
        let budget = last.map_or(loaded_budget, |t| t.cache_budget_bytes);
        let tokens = f64::from(end.tokens);
        let per_token = |sum: f64| if end.tokens == 0 { -1.0 } else { sum / tokens };
        let decode_s = seconds(end.decode_ns);
        let rate = if end.decode_ns == 0 { -1.0 } else { tokens / decode_s };
        let published = Published::of(sum, config.overlaps());
        let prefill = &self.prefill;
        let (prefill_s, prefill_tps) = match (prefill.first_token_ns, prefill.wall_ns) {
            (None, _) => (-1.0, -1.0),
            (Some(_), 0) => (0.0, -1.0),
            (Some(_), ns) => (seconds(ns), f64::from(prefill.prompt_tokens) / seconds(ns)),
        };
        let largest = model.layers.iter().map(|l| l.expert_bytes).max().unwrap_or(0);
        Ok(format!(
            "# summary tokens={n} s/tok={s_tok:.3} tok/s={rate:.3} read_MiB={read:.1} io_s={io_s:.2} \
             compute_s/tok={compute:.3} io_s/tok={io:.3} cache_hit_pct={hit:.1} n_prompt={n_prompt} \
             load_s={load_s:.3} prefill_s={prefill_s:.3} prefill_tps={prefill_tps:.2} \
             stall_s/tok={stall:.3} mgmt_s/tok={mgmt:.3} cache_resident_MiB={resident:.1} \
             cache_budget_MiB={budget_mib:.1} cache_resizes={resizes} spec_read_MiB={spec_read:.1} \
             spec_experts={spec} spec_useful={spec_useful} majflt/tok={majflt:.2} cpu_s/tok={cpu:.4} \
             token_demand_MiB={demand:.1} layer_demand_MiB={layer:.1} other_s/tok={other:.3} \
             ttft_s={ttft_s:.3} spec_wasted={spec_wasted} peak_rss_MiB={peak_rss:.1} \
             peak_cache_MiB={peak_cache:.1} peak_event_MiB={peak_event:.1} outcome={outcome}\n",
            n = end.tokens,
            s_tok = per_token(decode_s),
            read = reads_experts(published.read_bytes as f64 / MIB),
            io_s = reads_experts(seconds(published.io_ns)),
            compute = per_token(seconds(sum.compute_ns)),
            io = reads_experts(per_token(seconds(published.io_ns))),
            hit = hit_pct(budget, last.map_or(f64::NAN, |t| t.cumulative_hit_rate)),
            n_prompt = prefill.prompt_tokens,
            load_s = self.load.as_ref().map_or(-1.0, |l| seconds(l.load_ns)),
            stall = if end.tokens == 0 { 0.0 } else { seconds(published.stall_ns) / tokens },
            mgmt = reads_experts(per_token(seconds(sum.mgmt_ns))),
            resident = last.map_or(0, |t| t.cache_resident_bytes) as f64 / MIB,
            budget_mib = budget as f64 / MIB,
            resizes = self.resizes,
            spec_read = sum.speculated_bytes as f64 / MIB,
            spec = sum.speculated,
            spec_useful = sum.speculated_hits,
            majflt = per_token(sum.major_faults as f64),
            cpu = per_token(seconds(sum.cpu_ns)),
            demand = model.token_demand_bytes() as f64 / MIB,
            layer = (largest * u64::from(model.n_expert_used)) as f64 / MIB,
            other = per_token(seconds(sum.other_ns)),
            ttft_s = prefill.first_token_ns.map_or(-1.0, seconds),
            spec_wasted = sum.speculated_wasted,
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

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Percent; -1 when there is no cache or nothing was looked up yet.
fn hit_pct(budget_bytes: u64, rate: f64) -> f64 {
    if budget_bytes == 0 || rate.is_nan() { -1.0 } else { 100.0 * rate }
}

#[cfg(test)]
mod tests;
