//! What a person sees behind the text.

use bmoe_trace::config::DenseWeights;
use bmoe_trace::line::Done;
use bmoe_trace::{CacheBudget, Mode, RunConfig};

/// The lines of the summary.
pub(super) fn summary(done: &Done, config: &RunConfig) -> String {
    let mut text = format!(
        "load     {}\n\
         prefill  {} tokens in {:.2} s, {:.1} tok/s; first token {:.2} s after the start\n\
         decode   {} tokens, {:.2} tok/s; per token: {}\n\
         memory   peak {:.0} MiB\n",
        load(done, config),
        done.n_prompt,
        done.prefill_s,
        done.prefill_tps,
        done.ttft_s,
        done.tokens,
        done.tok_s,
        per_token(done, config),
        done.peak_rss_mib,
    );
    if config.mode == Mode::Stream {
        text += &experts(done, config);
    }
    if let Some(trace) = &config.replay_routes {
        text += &format!(
            "note     replayed the routes of {}: timing is real, the text is not\n",
            trace.display()
        );
    }
    if config.perturbed() {
        text += "note     reads or computation were traced, which takes time of its own\n";
    }
    text
}

fn load(done: &Done, config: &RunConfig) -> String {
    let seconds = done.load_s;
    let read = |what: &str, mib: f64| {
        format!("{seconds:.2} s, of which {:.2} s read {mib:.0} MiB of {what}", done.dense_read_s)
    };
    match (config.mode, config.dense_weights) {
        (Mode::Mmap, _) => {
            format!("{seconds:.2} s; the weights are mapped and read when they are used")
        }
        (Mode::Resident, _) => read("weights", done.dense_read_mib + done.load_expert_read_mib),
        (Mode::Stream, dense) => {
            let dense = match dense {
                DenseWeights::Anon => read("dense weights", done.dense_read_mib),
                DenseWeights::Warm => format!("{seconds:.2} s; dense weights mapped and touched"),
                DenseWeights::Mmap => {
                    format!("{seconds:.2} s; dense weights mapped and read when they are used")
                }
            };
            let preloaded = if done.preloaded_mib > 0.0 {
                format!(", those of the profile, in {:.2} s", done.preload_s)
            } else {
                String::new()
            };
            format!("{dense}; {:.0} MiB of experts read{preloaded}", done.load_expert_read_mib)
        }
    }
}

fn per_token(done: &Done, config: &RunConfig) -> String {
    let (compute, other) = (1e3 * done.compute_s_tok, 1e3 * done.other_s_tok);
    if config.mode != Mode::Stream {
        return format!("compute {compute:.1} ms, other {other:.2} ms");
    }
    let wait = if config.overlaps() { "stall" } else { "I/O wait" };
    format!(
        "compute {compute:.1} ms, {wait} {:.1} ms, cache management {:.2} ms, other {other:.2} ms",
        1e3 * done.io_wait_s_tok,
        1e3 * done.mgmt_s_tok
    )
}

fn experts(done: &Done, config: &RunConfig) -> String {
    let tokens = f64::from(done.tokens.max(1));
    let hits = if done.cache_hit_pct < 0.0 {
        "none (no cache)".to_owned()
    } else {
        format!("{:.1} %", done.cache_hit_pct)
    };
    let mut text = format!(
        "experts  {:.1} MiB/token read, hits {hits}; at most {:.1} of {:.1} MiB cached, {:.1} of {:.1} \
         MiB event room in use\n",
        done.read_mib / tokens,
        done.peak_cache_mib,
        done.cache_first_budget_mib,
        done.peak_event_mib,
        done.event_room_mib,
    );
    let ahead = config.prefetch_layers > 0 || config.predict_experts > 0;
    if ahead && config.cache_mib.is_on() {
        text += &format!(
            "ahead    {:.1} experts and {:.1} MiB a token read ahead: of {} experts {} used, {} left unused\n",
            done.spec_experts as f64 / tokens,
            done.spec_read_mib / tokens,
            done.spec_experts,
            done.spec_useful,
            done.spec_wasted,
        );
    }
    if config.cache_mib == CacheBudget::Auto || done.cache_resizes > 0 {
        text += &format!("budget   {:.0} MiB at the start", done.cache_first_budget_mib);
        text += &match done.cache_resizes {
            0 => ", never changed\n".to_owned(),
            1 => format!(", {:.0} MiB at the end after 1 change\n", done.cache_budget_mib),
            n => format!(", {:.0} MiB at the end after {n} changes\n", done.cache_budget_mib),
        };
    }
    text +=
        &format!("reads    O_DIRECT {}; {}{}\n", done.o_direct, done.io_engine, rate(done, config));
    text
}

/// How fast reads were while any was outstanding, and beside it what the storage can do.
fn rate(done: &Done, config: &RunConfig) -> String {
    let ceiling = config.io_ceiling_mib_s;
    let of_ceiling = |rate: f64| {
        if ceiling > 0.0 { format!(" ({:.0} %)", 100.0 * rate / ceiling) } else { String::new() }
    };
    let phases = [("prefill", done.prefill_io_rate_mib_s), ("decode", done.io_rate_mib_s)];
    let rates: Vec<_> = phases
        .into_iter()
        .filter(|(_, rate)| *rate > 0.0)
        .map(|(phase, rate)| format!("{rate:.0} MiB/s{} in {phase}", of_ceiling(rate)))
        .collect();
    if rates.is_empty() {
        return String::new();
    }
    let storage = if ceiling > 0.0 {
        format!("; the storage can do {ceiling:.0} MiB/s")
    } else {
        String::new()
    };
    format!("; while any was outstanding {}{storage}", rates.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done() -> Done {
        Done {
            tokens: 32,
            tok_s: 40.0,
            prefill_s: 0.25,
            prefill_tps: 32.0,
            load_s: 0.6,
            cache_hit_pct: 75.0,
            n_prompt: 8,
            compute_s_tok: 0.02,
            io_s_tok: 0.012,
            stall_s_tok: 0.004,
            mgmt_s_tok: 0.0002,
            read_mib: 320.0,
            cache_budget_mib: 1200.0,
            cache_first_budget_mib: 1500.0,
            cache_resizes: 2,
            io_wait_s_tok: 0.004,
            io_rate_mib_s: 1350.0,
            prefill_io_rate_mib_s: 1440.0,
            spec_experts: 64,
            spec_read_mib: 96.0,
            spec_useful: 40,
            spec_wasted: 20,
            other_s_tok: 0.0008,
            ttft_s: 0.85,
            dense_read_s: 0.45,
            dense_read_mib: 130.0,
            event_room_mib: 24.0,
            peak_cache_mib: 1490.0,
            peak_event_mib: 18.0,
            peak_rss_mib: 1800.0,
            o_direct: "used".into(),
            io_engine: "pread".into(),
            ..Done::default()
        }
    }

    #[test]
    fn a_streamed_run_says_what_overlapped_and_what_was_read_ahead() {
        let config = RunConfig {
            cache_mib: CacheBudget::Auto,
            prefetch_layers: 2,
            io_ceiling_mib_s: 1500.0,
            ..RunConfig::default()
        };
        insta::assert_snapshot!(summary(&done(), &config));
    }

    #[test]
    fn a_serial_run_says_how_long_it_was_blocked() {
        let config = RunConfig {
            cache_mib: CacheBudget::Mib(1500),
            overlap: false,
            dense_weights: DenseWeights::Warm,
            io_trace: true,
            ..RunConfig::default()
        };
        let done =
            Done { cache_resizes: 0, io_rate_mib_s: -1.0, prefill_io_rate_mib_s: -1.0, ..done() };
        insta::assert_snapshot!(summary(&done, &config));
    }

    #[test]
    fn mapped_weights_are_not_said_to_be_read() {
        let config = RunConfig { mode: Mode::Mmap, ..RunConfig::default() };
        let text = summary(&done(), &config);
        assert!(
            text.starts_with(
                "load     0.60 s; the weights are mapped and read when they are used\n"
            )
        );
        assert!(!text.contains("stall") && !text.contains("experts"), "{text}");
    }
}
