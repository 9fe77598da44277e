//! What was asked for, and whether it was reached.

use std::fmt::Write as _;

use super::rates::{number, over_bound};
use super::results::{Results, sum};
use super::stats::{median, range};
use crate::data::Run;

/// Which way is good.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Asked {
    /// At least so much.
    AtLeast(f64),
    /// At most so much.
    AtMost(f64),
}

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Its number.
    pub number: &'static str,
    /// What it says.
    pub what: String,
    /// The limit.
    pub asked: Asked,
    /// What was measured; `None` when it was not.
    pub measured: Option<f64>,
    /// The figures that it was made from.
    pub detail: String,
}

impl Bar {
    /// Whether it was reached; `None` when it was not measured.
    #[must_use]
    pub fn met(&self) -> Option<bool> {
        self.measured.filter(|m| m.is_finite()).map(|measured| match self.asked {
            Asked::AtLeast(limit) => measured >= limit,
            Asked::AtMost(limit) => measured <= limit,
        })
    }

    fn verdict(&self) -> String {
        let (Some(met), Some(measured)) = (self.met(), self.measured) else {
            return "not measured".into();
        };
        if met {
            return "**met**".into();
        }
        match self.asked {
            Asked::AtLeast(limit) => {
                format!("**missed by {:.1} %**", 100.0 * (1.0 - measured / limit))
            }
            Asked::AtMost(0.0) => "**missed**".into(),
            Asked::AtMost(limit) => {
                format!("**missed by {:.1} %**", 100.0 * (measured / limit - 1.0))
            }
        }
    }
}

/// The table of all bars.
#[must_use]
pub fn table(bars: &[Bar]) -> String {
    let mut table =
        "| # | what | asked | measured | verdict | from |\n|---|---|---:|---:|---|---|\n"
            .to_owned();
    for bar in bars {
        let asked = match bar.asked {
            Asked::AtLeast(limit) => format!("≥ {limit}"),
            Asked::AtMost(limit) => format!("≤ {limit}"),
        };
        let _ = writeln!(
            table,
            "| {} | {} | {asked} | {} | {} | {} |",
            bar.number,
            bar.what,
            number(bar.measured, 3),
            bar.verdict(),
            bar.detail
        );
    }
    table
}

/// All bars.
#[must_use]
pub fn bars(results: &Results<'_>) -> Vec<Bar> {
    let mut bars = Vec::new();
    bars.extend(speed(results));
    bars.extend([whole(results), overlap(results), device(results)]);
    bars.extend(bytes(results));
    bars.extend(start(results));
    bars.extend(telemetry(results));
    bars
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

/// Ratios of the runs of one repeat, which shared their surroundings.
fn paired(results: &Results<'_>, name: &'static str, base: &'static str) -> String {
    let ratio = |entry: &crate::data::Entry| {
        let other = results.of(base).find(|b| b.round == entry.round)?;
        Some(super::results::rate(entry.run.as_ref()?) / super::results::rate(other.run.as_ref()?))
    };
    let ratios: Vec<f64> = results.of(name).filter_map(ratio).collect();
    range(&ratios).map_or_else(String::new, |(a, b)| format!("; by repeat {a:.2} to {b:.2}"))
}

fn speed(results: &Results<'_>) -> [Bar; 2] {
    let rate = results.rate("stream");
    let against = |number, base: &'static str, what: String, asked| {
        let other = results.rate(base);
        Bar {
            number,
            what,
            asked,
            measured: rate.zip(other).map(|(own, other)| own / other),
            detail: format!(
                "{} against {} tok/s{}",
                self::number(rate, 2),
                self::number(other, 2),
                paired(results, "stream", base)
            ),
        }
    };
    let cache = results.settings().cache_mib;
    [
        against(
            "1",
            "mmap",
            format!(
                "stream, cache {cache} MiB, over mmap at readahead 128 KiB, both limited: tok/s"
            ),
            Asked::AtLeast(3.0),
        ),
        against(
            "1",
            "resident",
            format!("stream, cache {cache} MiB, limited, over resident without a limit: tok/s"),
            Asked::AtLeast(0.6),
        ),
    ]
}

/// Steps in which nothing was read, of the streamed run and of the resident run with the same text.
fn whole(results: &Results<'_>) -> Bar {
    let (mut own, mut base) = (Vec::new(), Vec::new());
    let mut all = 0;
    for entry in results.of("stream-whole") {
        let Some(run) = &entry.run else { continue };
        let Some(other) = results
            .of("resident")
            .filter(|e| e.round == entry.round)
            .find_map(|e| e.run.as_ref().filter(|r| r.text == run.text))
        else {
            continue;
        };
        let (steps, others) = (&run.steps, &other.steps);
        for (i, (wall, read)) in steps.wall_ns.iter().zip(&steps.device_read_bytes).enumerate() {
            all += 1;
            if let (0, Some(theirs)) = (read, others.wall_ns.get(i)) {
                own.push(*wall as f64 / 1e6);
                base.push(*theirs as f64 / 1e6);
            }
        }
    }
    let times = median(&own).zip(median(&base));
    Bar {
        number: "2",
        what: "all experts cached, over resident, steps without a read: rate".into(),
        asked: Asked::AtLeast(0.98),
        measured: times.map(|(own, base)| base / own),
        detail: format!(
            "median token {} ms against {} ms of the same steps; {} of {all} steps read nothing",
            number(times.map(|t| t.0), 2),
            number(times.map(|t| t.1), 2),
            own.len()
        ),
    }
}

fn overlap(results: &Results<'_>) -> Bar {
    let bound = |name| results.median(name, over_bound);
    let wall =
        |name| results.median(name, |r| sum(&r.steps.wall_ns) / r.steps.wall_ns.len() as f64 / 1e6);
    // The bound of the traced run against the time of the one that was not slowed down by tracing.
    let untraced = results
        .median("layers", |r| sum(&r.parts.bound_ns) / r.parts.bound_ns.len() as f64 / 1e6)
        .zip(wall("stream"))
        .map(|(bound, wall)| wall / bound);
    Bar {
        number: "3",
        what: "overlap: wall over the sum over layers of dense + max(experts, reads)".into(),
        asked: Asked::AtMost(1.10),
        measured: bound("layers"),
        detail: format!(
            "the same without tracing {}; cache off {}; serial {}",
            number(untraced, 3),
            number(bound("layers-off"), 3),
            number(bound("layers-serial"), 3)
        ),
    }
}

fn device(results: &Results<'_>) -> Bar {
    let rate = |name| {
        results.median(name, |r| {
            mib(sum(&r.steps.device_read_bytes)) / (sum(&r.steps.io_active_ns) / 1e9)
        })
    };
    let (own, ceiling) = (rate("stream-off"), results.ceiling_mib_s());
    Bar {
        number: "4",
        what: "cache off: rate while reads are outstanding, over the disk's ceiling".into(),
        asked: Asked::AtLeast(0.9),
        measured: own.zip(ceiling).map(|(own, ceiling)| own / ceiling),
        detail: format!(
            "{} of {} MiB/s; serial {} MiB/s",
            number(own, 0),
            number(ceiling, 0),
            number(rate("stream-off-serial"), 0)
        ),
    }
}

fn bytes(results: &Results<'_>) -> [Bar; 2] {
    let streams = ["stream", "stream-serial", "stream-off", "stream-off-serial", "stream-whole"];
    let over = |r: &Run| sum(&r.steps.device_read_bytes) / sum(&r.steps.expert_read_bytes);
    let worst = |values: Vec<f64>| range(&values).map(|(_, worst)| worst);
    let read = streams.iter().flat_map(|n| results.runs(n)).map(over).filter(|o| o.is_finite());
    // Buffers are the same whatever the cache, so those of the run without one.
    let buffers = results
        .median("stream-off", |r| {
            r.peak_rss_bytes as f64 - (r.event_room_bytes + r.dense_read_bytes) as f64
        })
        .unwrap_or(f64::NAN);
    let allowed =
        |r: &Run| (r.cache_budget_bytes + r.event_room_bytes + r.dense_read_bytes) as f64 + buffers;
    let cached = || ["stream", "stream-serial"].into_iter().flat_map(|n| results.runs(n));
    let peak = worst(cached().map(|r| r.peak_rss_bytes as f64 / allowed(r)).collect());
    // The run without a cache can't be its own measure: the resident run's buffers are.
    let model = &results.environment.model;
    let resident = results
        .median("resident", |r| r.peak_rss_bytes as f64)
        .map(|peak| peak - (model.dense_bytes + model.expert_bytes) as f64);
    let first = cached().next();
    [
        Bar {
            number: "5",
            what: "bytes read over bytes of the routed slices (worst run)".into(),
            asked: Asked::AtMost(1.02),
            measured: worst(read.collect()),
            detail: "decode steps of all streamed runs".into(),
        },
        Bar {
            number: "5",
            what: "peak RSS over budget + event room + dense + buffers (worst run)".into(),
            asked: Asked::AtMost(1.05),
            measured: peak,
            detail: format!(
                "{} MiB; {} + {} + {} + {} MiB; the resident run's buffers are {} MiB",
                number(worst(cached().map(|r| mib(r.peak_rss_bytes as f64)).collect()), 0),
                number(first.map(|r| mib(r.cache_budget_bytes as f64)), 0),
                number(first.map(|r| mib(r.event_room_bytes as f64)), 0),
                number(first.map(|r| mib(r.dense_read_bytes as f64)), 0),
                number(Some(mib(buffers)), 0),
                number(resident.map(mib), 0),
            ),
        },
    ]
}

fn start(results: &Results<'_>) -> [Bar; 3] {
    let load = |name| results.median(name, |r| r.load_ns as f64 / 1e9);
    let dense = results.median("stream", |r| r.dense_read_ns as f64 / 1e9);
    let rest = results.median("stream", |r| r.load_ns.saturating_sub(r.dense_read_ns) as f64 / 1e9);
    let first = |name| results.median(name, |r| r.first_token_ns as f64 / 1e9);
    let experts: Vec<f64> = ["stream", "stream-off"]
        .iter()
        .flat_map(|n| results.runs(n))
        .map(|r| r.load_expert_bytes as f64)
        .collect();
    let prompt = results.runs("stream").next().map_or(0, |r| r.prompt_tokens);
    [
        Bar {
            number: "6",
            what: "expert bytes read while loading (worst streamed run)".into(),
            asked: Asked::AtMost(0.0),
            measured: range(&experts).map(|(_, worst)| worst),
            detail: "`rchar` of the process".into(),
        },
        Bar {
            number: "6",
            what: "load less reading dense weights, over mmap's load".into(),
            asked: Asked::AtMost(0.1),
            measured: rest.zip(load("mmap")).map(|(rest, mmap)| rest / mmap),
            detail: format!(
                "{} s (+ {} s reading dense weights) against {} s",
                number(rest, 3),
                number(dense, 2),
                number(load("mmap"), 2)
            ),
        },
        Bar {
            number: "6",
            what: format!("time to first token of a prompt of {prompt} tokens, over mmap's"),
            asked: Asked::AtMost(0.5),
            measured: first("stream").zip(first("mmap")).map(|(own, mmap)| own / mmap),
            detail: format!(
                "{} s against {} s",
                number(first("stream"), 2),
                number(first("mmap"), 2)
            ),
        },
    ]
}

fn telemetry(results: &Results<'_>) -> [Bar; 2] {
    let step = |run: &Run| {
        let times: Vec<f64> = run.arrivals_ns.iter().map(|ns| *ns as f64 / 1e6).collect();
        median(&times).unwrap_or(f64::NAN)
    };
    let none = results.median("telemetry-none", step);
    let bar = |name: &'static str, what: &str| {
        let own = results.median(name, step);
        let pair = |entry: &crate::data::Entry| {
            let other = results.of("telemetry-none").find(|e| e.round == entry.round)?;
            Some(100.0 * (step(entry.run.as_ref()?) / step(other.run.as_ref()?) - 1.0))
        };
        let pairs: Vec<f64> = results.of(name).filter_map(pair).collect();
        let spread = range(&pairs)
            .map_or_else(String::new, |(a, b)| format!("; by pair {a:+.1} % to {b:+.1} %"));
        Bar {
            number: "7",
            what: what.into(),
            asked: Asked::AtMost(1.01),
            measured: own.zip(none).map(|(own, none)| own / none),
            detail: format!(
                "median token {} ms against {} ms, {} runs each{spread}",
                number(own, 3),
                number(none, 3),
                pairs.len()
            ),
        }
    };
    [
        bar("telemetry-trace-csv", "time of a token with the binary trace and the CSV, over none"),
        bar("telemetry-routes", "time of a token with the route trace, over none"),
    ]
}
