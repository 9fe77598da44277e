//! `bmoe-bench render`: everything that people read, from the data alone.

pub mod bars;
pub mod holds;
pub mod rates;
pub mod results;
pub mod stats;

use std::fmt::Write as _;

use crate::contender::{self, CONTENDERS, Part};
use crate::data::{Entry, Environment, RUNS};

use results::Results;

/// Name of the file that is made.
pub const REPORT: &str = "table.md";

/// Name of a profile beside it, which the report mentions when it is there.
pub const PERF: &str = "perf.txt";

/// The report.
#[must_use]
pub fn report(environment: &Environment, entries: &[Entry], perf: bool) -> String {
    let results = Results { environment, entries };
    let bars = bars::bars(&results);
    let (settings, model, machine) =
        (&environment.settings, &environment.model, &environment.machine);
    let mut text = format!(
        "# The engine's benchmark: {} of {} layers, {} MiB in {} MiB\n\n\
         Made from `{RUNS}` by `cargo run -p bmoe-bench -- render .` in this folder. Measured with\n\n\
         ```\ncargo run -p bmoe-bench -- run --shape {} --layers {} --repeats {} --tokens {} --cache-mb {} \
         --limit-mb {} --threads {} --io-threads {} --out .\n```\n\n",
        model.shape,
        model.layers,
        model.file_bytes >> 20,
        settings.limit_mib,
        settings.shape,
        settings.layers,
        settings.repeats,
        settings.tokens,
        settings.cache_mib,
        settings.limit_mib,
        settings.threads,
        settings.lanes
    );
    text += "## Bars\n\n";
    let marked = entries.iter().filter(|e| e.noise.others_at_work()).count();
    if marked > 0 {
        let _ = writeln!(
            text,
            "**{marked} of {} runs were disturbed by others** (see Noise); what rests on them is no evidence.\n",
            entries.len()
        );
    }
    let _ = writeln!(text, "{}", bars::table(&bars));
    text += &holds::text(&results, &bars, perf);
    let _ = writeln!(text, "## Rates\n\n{}", rates::rates(&results));
    let _ = writeln!(text, "## Where the time of a token goes, ms\n\n{}", rates::times(&results));
    let _ = writeln!(
        text,
        "### By layer, from the compute and I/O traces, ms\n\n{}",
        rates::parts(&results)
    );
    text += &equality(&results);
    text += &noise(&results);
    let _ = write!(text, "{}", DEFINITIONS);
    let _ = write!(
        text,
        "\n## Environment\n\n| what | value |\n|---|---|\n| started | {} |\n| engine | {} |\n| commit | {} |\n\
         | engine binary, SHA-256 | {} |\n| CPU | {} |\n| cores | {} |\n| memory | {} MiB |\n| kernel | {} |\n\
         | disk | {}, readahead {} KiB as found |\n| transparent huge pages | {} |\n| model | {}, {} MiB dense, \
         {} MiB experts |\n",
        environment.started,
        environment.engine,
        environment.commit,
        environment.engine_sha256,
        machine.cpu,
        machine.cores,
        machine.mem_total_mib,
        machine.kernel,
        machine.disk,
        machine.read_ahead_kib,
        machine.huge_pages,
        model.file,
        model.dense_bytes >> 20,
        model.expert_bytes >> 20
    );
    text
}

/// Whether all contenders generated the same.
fn equality(results: &Results<'_>) -> String {
    let mut text = "## Equality\n\n".to_owned();
    let runs: Vec<(&str, &str)> = CONTENDERS
        .iter()
        .flat_map(|c| results.runs(c.name).map(|r| (c.name, r.text.as_str())))
        .collect();
    // Shorter runs are compared as far as they go.
    let longest = runs.iter().map(|(_, text)| *text).max_by_key(|text| text.len());
    let longest = longest.unwrap_or_default();
    let compared = runs.len();
    let mut unequal: Vec<&str> =
        runs.iter().filter(|(_, t)| !longest.starts_with(*t)).map(|(name, _)| *name).collect();
    unequal.dedup();
    if unequal.is_empty() {
        let _ = writeln!(text, "The texts of all {compared} runs are equal, as far as each goes.");
    } else {
        let _ = writeln!(text, "**Other text**: {}.", unequal.join(", "));
    }
    let hashes: Vec<(&str, &str)> = CONTENDERS
        .iter()
        .filter(|c| c.part == Part::Check)
        .flat_map(|c| {
            results.runs(c.name).filter_map(|r| Some((c.name, r.logits_sha256.as_deref()?)))
        })
        .collect();
    if let Some((_, first)) = hashes.first() {
        let other: Vec<&str> = hashes.iter().filter(|(_, h)| h != first).map(|(n, _)| *n).collect();
        if other.is_empty() {
            let _ = writeln!(
                text,
                "\nThe logits of {} configurations are equal to the last bit, prompt included (SHA-256 `{first}`).",
                hashes.len()
            );
        } else {
            let _ = writeln!(text, "\n**Other logits**: {}.", other.join(", "));
        }
    }
    text + "\n"
}

/// What else the machine did.
fn noise(results: &Results<'_>) -> String {
    let marked: Vec<&Entry> = results.entries.iter().filter(|e| e.noise.others_at_work()).collect();
    let mut text = "## Noise\n\n".to_owned();
    if marked.is_empty() {
        let _ =
            writeln!(text, "Nobody else was at work in any of the {} runs.", results.entries.len());
    } else {
        let _ = writeln!(
            text,
            "In {} of {} runs others used more than a twentieth of a core, or the hypervisor took more than 1 % of \
             the time; they are in the figures:\n",
            marked.len(),
            results.entries.len()
        );
        text += "| run | repeat | others, cores | stolen % | load average before, after |\n|---|---:|---:|---:|---:|\n";
        for entry in marked {
            let noise = &entry.noise;
            let _ = writeln!(
                text,
                "| {} | {} | {:.2} | {:.2} | {:.1}, {:.1} |",
                entry.name,
                entry.round + 1,
                noise.others_cores,
                100.0 * noise.steal_share,
                noise.load_before,
                noise.load_after
            );
        }
    }
    let failed: Vec<&Entry> = results.entries.iter().filter(|e| e.failure.is_some()).collect();
    for entry in failed {
        let failure = entry.failure.as_deref().unwrap_or_default();
        let _ = writeln!(text, "\n{}, repeat {}, failed: {failure}", entry.name, entry.round + 1);
    }
    if results.of(contender::CEILING).next().is_none() {
        let _ = writeln!(text, "\nThe disk's ceiling was not measured.");
    }
    text + "\n"
}

const DEFINITIONS: &str = "\
## Definitions

- All contenders run once in each repeat, each repeat begins with another one, and each run begins with an empty
  page cache (`drop_caches`). *Limited* ones run in a version 1 memory control group, page cache counted. The
  readahead of the disk is 128 KiB but where the row says otherwise.
- **tok/s**: decoded tokens over the seconds of decoding, loading and prompt excluded; the median of the runs.
  *Token p5, median, p95* are over single tokens of all runs, by linear interpolation.
- **steady tok/s**: the same over the tokens from the one on at which the cache was 99 % as full as it got: before,
  reads fill pages that the system has yet to hand out. Without a cache it is the whole run.
- **× mmap, × resident**: over the medians of those rows. mmap with a large readahead runs an eighth of the tokens; no
  ratio is made from it.
- **all experts cached**: they are read into the cache before the prompt (a profile that names them all, in the time
  of loading). Bar 2 takes those steps in which nothing was read, and the same steps of the resident run.
- **bound** (bar 3): for each token the sum over its layers of dense + max(experts, reads), and what belongs to no
  layer. *Reads* of a layer are the union of the times from asking for a read to its end. Looking up and asking for
  reads, sampling and telemetry are in the wall time, not in the bound.
- **ceiling** (bar 4): `bmoe-engine iobench` with the slices of this model, as many lanes, nobody computing; for a token
  the rates of the sizes are weighted by the bytes that it reads of each.
- **buffers** (bar 5): the KV cache and compute buffers, taken to be the peak RSS of the run without a cache, less its
  event room and the dense weights.
- **telemetry** (bar 7): over a memory map without a limit, all of it in the page cache, so that nothing but computing
  is in a token's time. That is taken outside of the engine, from one token's text to the next one's: the median of a run,
  and the median of the runs.
";
