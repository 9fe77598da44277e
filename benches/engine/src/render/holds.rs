//! What keeps the bars that were missed from being met, as far as the figures tell.

use std::fmt::Write as _;

use super::PERF;
use super::bars::Bar;
use super::rates::number;
use super::results::{Results, sum};
use crate::data::Run;

type Column = fn(&Run) -> &Vec<u64>;

/// Some lines on each missed bar; `perf` = there is a profile.
#[must_use]
pub fn text(results: &Results<'_>, bars: &[Bar], perf: bool) -> String {
    let missed = |number: &str| bars.iter().any(|b| b.number == number && b.met() == Some(false));
    let mut text = String::new();
    if missed("1") {
        text += &speed(results);
    }
    if missed("2") {
        text += &whole(results);
    }
    if missed("3") {
        text += &overlap(results);
    }
    if missed("6") {
        text += &start(results);
    }
    if perf {
        let _ = writeln!(text, "- Profile of the streamed run: [{PERF}]({PERF}).");
    }
    if text.is_empty() { text } else { format!("### What holds the missed ones\n\n{text}\n") }
}

/// Milliseconds of an average token, the median of the runs.
fn per_token(results: &Results<'_>, name: &'static str, column: Column) -> Option<f64> {
    results.median(name, |r| sum(column(r)) / column(r).len() as f64 / 1e6)
}

fn speed(results: &Results<'_>) -> String {
    let mut text = String::new();
    let wall = |name| per_token(results, name, |r| &r.steps.wall_ns);
    if let (Some(resident), Some(mmap)) = (wall("resident"), wall("mmap")) {
        let most = mmap / resident;
        let _ = write!(
            text,
            "- Bar 1: a resident token without any limit takes {resident:.1} ms, one of mmap {mmap:.1} ms: an engine that \
             never waited for a read would be {most:.2} times as fast as mmap here"
        );
        text += if most < 3.0 {
            ", so 3 can't be reached on this machine by any streaming.\n"
        } else {
            ".\n"
        };
    }
    if let (Some(own), Some(resident)) = (wall("stream"), wall("resident")) {
        let of = |column: Column| per_token(results, "stream", column);
        let _ = writeln!(
            text,
            "- A streamed token takes {own:.1} ms, {:.1} ms more than a resident one: compute {} ms (resident {}), waiting \
             for reads {} ms, cache management {} ms.",
            own - resident,
            number(of(|r| &r.steps.compute_ns), 1),
            number(per_token(results, "resident", |r| &r.steps.compute_ns), 1),
            number(of(|r| &r.steps.io_wait_ns), 1),
            number(of(|r| &r.steps.mgmt_ns), 2),
        );
    }
    if let (Some(dense), Some(experts)) = (
        per_token(results, "layers", |r| &r.parts.dense_ns),
        per_token(results, "layers", |r| &r.parts.experts_ns),
    ) {
        let _ = writeln!(
            text,
            "- Of its computing {dense:.1} ms are attention and other dense work, {experts:.1} ms products with experts \
             (traced run)."
        );
    }
    text
}

fn whole(results: &Results<'_>) -> String {
    let of = |name, column: Column| number(per_token(results, name, column), 2);
    format!(
        "- Bar 2: compute {} ms (resident {}), cache management {} ms, waiting {} ms.\n",
        of("stream-whole", |r| &r.steps.compute_ns),
        of("resident", |r| &r.steps.compute_ns),
        of("stream-whole", |r| &r.steps.mgmt_ns),
        of("stream-whole", |r| &r.steps.io_wait_ns),
    )
}

fn overlap(results: &Results<'_>) -> String {
    let of = |column: Column| per_token(results, "layers", column);
    let rest = of(|r| &r.steps.wall_ns).zip(of(|r| &r.parts.bound_ns)).map(|(w, b)| w - b);
    format!(
        "- Bar 3: {} ms of a token are above the bound: waiting inside the products {} ms, of which the bound allows what \
         reads exceed products by; fetch (looking up, asking for reads) {} ms.\n",
        number(rest, 1),
        number(of(|r| &r.parts.stall_ns), 1),
        number(of(|r| &r.parts.fetch_ns), 1),
    )
}

fn start(results: &Results<'_>) -> String {
    let seconds = |figure: fn(&Run) -> u64| results.median("stream", |r| figure(r) as f64 / 1e9);
    let mib = results.median("stream", |r| r.prefill_read_bytes as f64 / f64::from(1 << 20));
    let at_ceiling = mib.zip(results.ceiling_mib_s()).map(|(mib, rate)| mib / rate);
    format!(
        "- Bar 6: the first token takes {} s to load and {} s for the prompt, which reads {} MiB of experts ({} s at the \
         disk's ceiling) and waits for them {} s; resident, the prompt takes {} s.\n",
        number(seconds(|r| r.load_ns), 2),
        number(seconds(|r| r.prefill_ns), 2),
        number(mib, 0),
        number(at_ceiling, 2),
        number(seconds(|r| r.prefill_wait_ns), 2),
        number(results.median("resident", |r| r.prefill_ns as f64 / 1e9), 2),
    )
}
