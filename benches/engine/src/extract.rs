//! From a trace to the figures of one run.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use bmoe_trace::codec::{CodecError, TraceReader};
use bmoe_trace::record::{ComputeRecord, DirectIo, Outcome, ReadRecord, Record, TokenRecord};

use crate::data::{Parts, Run, Steps};
use crate::error::BenchError;

/// Reads a trace file.
///
/// # Errors
/// It is no whole trace of a run that came to its end.
pub fn trace(path: &Path) -> Result<Run, BenchError> {
    let file = std::fs::File::open(path).map_err(BenchError::io("read", path))?;
    run(std::io::BufReader::new(file)).map_err(|message| BenchError::data(path, message))
}

/// Records of the layers, since the last token.
#[derive(Default)]
struct Since {
    compute: Vec<ComputeRecord>,
    reads: Vec<ReadRecord>,
}

fn run(input: impl Read) -> Result<Run, String> {
    let text = |e: CodecError| e.to_string();
    let mut reader = TraceReader::new(input).map_err(text)?;
    let (mut run, mut since, mut ended) = (Run::default(), Since::default(), false);
    while let Some(record) = reader.read().map_err(text)? {
        match record {
            Record::Load(load) => {
                run.load_ns = load.load_ns;
                run.dense_read_ns = load.dense_read_ns;
                run.dense_read_bytes = load.dense_read_bytes;
                run.load_expert_bytes = load.expert_read_bytes;
                run.cache_budget_bytes = load.cache_budget_bytes;
                run.event_room_bytes = load.event_room_bytes;
                run.direct_io = match load.direct_io {
                    DirectIo::Used => "used".into(),
                    DirectIo::Off => "off".into(),
                    DirectIo::Unavailable { reason } => reason,
                    DirectIo::NotApplicable => String::new(),
                };
            }
            Record::Prefill(prefill) => {
                run.prompt_tokens = prefill.prompt_tokens;
                run.prefill_ns = prefill.cost.wall_ns;
                run.prefill_wait_ns = prefill.cost.io_wait_ns;
                run.prefill_read_bytes = prefill.cost.expert_read_bytes;
                run.first_token_ns = prefill.time_to_first_token_ns;
                since = Since::default();
            }
            Record::Compute(record) => since.compute.push(record),
            Record::Read(record) => since.reads.push(record),
            Record::Token(token) => {
                push(&mut run.steps, &token);
                let since = std::mem::take(&mut since);
                if !since.compute.is_empty() {
                    parts(&mut run.parts, &since);
                }
            }
            Record::End(end) => {
                if end.outcome != Outcome::Complete {
                    return Err(format!("the run did not come to its end: {:?}", end.outcome));
                }
                ended = true;
                run.peak_rss_bytes = end.peak_rss_bytes;
                run.logits_sha256 = end.logits_sha256;
                run.text = end.text;
            }
            Record::Start(_) | Record::Turn(_) | Record::Route(_) | Record::Budget(_) => {}
        }
    }
    if ended { Ok(run) } else { Err("the trace has no end".into()) }
}

fn push(steps: &mut Steps, token: &TokenRecord) {
    let cost = &token.cost;
    steps.wall_ns.push(cost.wall_ns);
    steps.compute_ns.push(cost.compute_ns);
    steps.io_wait_ns.push(cost.io_wait_ns);
    steps.mgmt_ns.push(cost.mgmt_ns);
    steps.io_active_ns.push(cost.io_active_ns);
    steps.expert_read_bytes.push(cost.expert_read_bytes);
    steps.device_read_bytes.push(cost.device_read_bytes);
    steps.hits.push(cost.hits);
    steps.misses.push(cost.misses);
    steps.cpu_ns.push(cost.cpu_ns);
    steps.major_faults.push(cost.major_faults);
    steps.cache_resident_bytes.push(token.cache_resident_bytes);
}

/// Adds up one token's layers.
fn parts(parts: &mut Parts, since: &Since) {
    #[derive(Default)]
    struct Layer {
        dense: u64,
        experts: u64,
        io: u64,
    }
    let mut layers: BTreeMap<Option<u32>, Layer> = BTreeMap::new();
    let (mut fetch, mut stall) = (0, 0);
    for record in &since.compute {
        let layer = layers.entry(record.layer).or_default();
        match record.part.as_str() {
            "dense" => layer.dense += record.ns,
            "experts" => layer.experts += record.ns,
            "fetch" => fetch += record.ns,
            "stall" => stall += record.ns,
            _ => {}
        }
    }
    let mut spans: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for read in &since.reads {
        let end = read.queued_ns + read.wait_ns + read.service_ns;
        spans.entry(read.layer).or_default().push((read.queued_ns, end));
    }
    for (layer, spans) in spans {
        layers.entry(Some(layer)).or_default().io = union(spans);
    }
    let sum = |of: fn(&Layer) -> u64| layers.values().map(of).sum();
    parts.dense_ns.push(sum(|l| l.dense));
    parts.experts_ns.push(sum(|l| l.experts));
    parts.io_ns.push(sum(|l| l.io));
    parts.bound_ns.push(sum(|l| l.dense + l.experts.max(l.io)));
    parts.serial_ns.push(sum(|l| l.dense + l.experts + l.io));
    parts.fetch_ns.push(fetch);
    parts.stall_ns.push(stall);
}

/// Length of the union of intervals.
fn union(mut spans: Vec<(u64, u64)>) -> u64 {
    spans.sort_unstable();
    let (mut total, mut reached) = (0, 0);
    for (start, end) in spans {
        total += end.saturating_sub(start.max(reached));
        reached = reached.max(end);
    }
    total
}

#[cfg(test)]
mod tests {
    use bmoe_trace::record::{Cost, ReadPurpose};

    use super::*;

    #[test]
    fn intervals_count_once() {
        assert_eq!(union(vec![(5, 7), (0, 3), (2, 4), (2, 3)]), 6);
        assert_eq!(union(Vec::new()), 0);
    }

    #[test]
    fn a_layer_is_bound_by_the_slower_of_reads_and_products() {
        let compute = |layer, part: &str, ns| ComputeRecord {
            ubatch: 1,
            layer,
            part: part.into(),
            node: String::new(),
            ns,
        };
        let read = |layer, queued_ns, service_ns| ReadRecord {
            ubatch: 1,
            layer,
            expert: 0,
            projection: 0,
            lane: 0,
            purpose: ReadPurpose::Demand,
            wanted_bytes: 1,
            read_bytes: 1,
            queued_ns,
            wait_ns: 10,
            service_ns,
        };
        let since = Since {
            compute: vec![
                compute(Some(0), "dense", 100),
                compute(Some(0), "fetch", 7),
                compute(Some(0), "experts", 50),
                compute(Some(0), "stall", 30),
                compute(Some(1), "dense", 100),
                compute(Some(1), "experts", 50),
                compute(None, "dense", 40),
            ],
            reads: vec![read(0, 1000, 60), read(0, 1020, 50), read(1, 2000, 10)],
        };
        let mut found = Parts::default();
        parts(&mut found, &since);
        assert_eq!((found.fetch_ns[0], found.stall_ns[0]), (7, 30));
        assert_eq!(found.io_ns, [80 + 20]);
        assert_eq!(found.bound_ns, [100 + 80 + 100 + 50 + 40]);
        assert_eq!(found.serial_ns, [100 + 50 + 80 + 100 + 50 + 20 + 40]);
    }

    #[test]
    fn a_trace_without_an_end_is_refused() {
        let mut writer = bmoe_trace::codec::TraceWriter::new(Vec::new()).unwrap();
        let token = TokenRecord {
            step: 1,
            position: 0,
            token: 0,
            cost: Cost::default(),
            cumulative_hit_rate: f64::NAN,
            cache_resident_bytes: 0,
            cache_budget_bytes: 0,
            rss_bytes: 0,
            memory: bmoe_trace::record::MemoryState::default(),
        };
        writer.write(&Record::Token(token)).unwrap();
        let error = run(&writer.into_inner()[..]).unwrap_err();
        assert_eq!(error, "the trace has no end");
    }
}
