//! Logs, device metrics, and binary traces, which hold both.

use super::*;

fn log(text: &str) -> Result<(LogHeader, LogChunk, Vec<String>)> {
    let Import::Log(mut reader) = open(text.as_bytes())? else { panic!("this is a log") };
    let mut all = LogChunk::default();
    while let Some(chunk) = reader.next()? {
        all = chunk;
    }
    Ok((reader.header().clone(), all, reader.notes().to_vec()))
}

pub(super) const LOG: &str = "# bmoe_metrics v1\n# model=m.gguf arch=a new_key=x%20y\nstep,wall_ms,read_bytes,cache_hit_pct,mood\n\
    1,10.5,100,-1.00,good\n2,20.25,-1,12.50,\n# summary tokens=2 s/tok=0.015 tok/s=65.041 cache_hit_pct=12.5\n";

#[test]
fn logs_of_every_generation_are_read_by_column_name() {
    let (header, chunk, notes) = log(LOG).unwrap();
    assert_eq!((header.version, header.keys.get("new_key")), (Some(1), Some("x y")));
    assert_eq!(header.summary.unwrap().get("s/tok"), Some("0.015"));
    assert_eq!(chunk.columns[1], LogValues::Real(vec![Some(10.5), Some(20.25)]));
    assert_eq!(chunk.columns[2], LogValues::Count(vec![Some(100), None]));
    assert_eq!(chunk.columns[3], LogValues::Real(vec![None, Some(12.5)]));
    assert_eq!(chunk.columns[4], LogValues::Text(vec!["good".into(), String::new()]));
    assert!(notes.is_empty());
    let bare = LOG.split_once("y\n").unwrap().1;
    assert_eq!(log(bare).unwrap().0.version, None);
    assert_eq!(log(&LOG.replace("v1", "v2")).unwrap().0.version, Some(2));
    let (header, chunk, notes) = log(&LOG[..LOG.find("# summary").unwrap() + 4]).unwrap();
    assert_eq!((header.summary, chunk.rows, notes.len()), (None, 2, 2));
    let changed = |from: &str, to: &str| log(&LOG.replacen(from, to, 1)).unwrap_err().to_string();
    let all = [
        ("another version", changed("v1", "v3")),
        ("no wall_ms", log("# bmoe_metrics v1\nstep,ms\n").unwrap_err().to_string()),
        ("a column twice", changed("mood", "step")),
        ("no number", changed("20.25", "fast")),
        ("infinite", changed("20.25", "inf")),
        ("negative", changed("20.25", "-1")),
        ("a fraction of a byte", changed(",100,", ",100.5,")),
        ("a step again", changed("2,20.25", "1,20.25")),
        ("a field short", changed(",12.50,", ",12.50")),
        ("a step lost", changed("2,20.25", "3,20.25")),
        ("no time at all", changed("20.25", "0")),
        ("a year", changed("20.25", "31536000000")),
        ("more hits than look-ups", changed("12.50", "250")),
        ("more bytes than there are", changed(",100,", ",18446744073709551615,")),
        ("a row lost", changed("2,20.25,-1,12.50,\n", "")),
        ("another rate", changed("tok/s=65.041", "tok/s=66")),
        ("another hit rate", changed("cache_hit_pct=12.5", "cache_hit_pct=99.9")),
        ("behind the summary", changed("pct=12.5\n", "pct=12.5\n3,1.0,1,1,x\n")),
        ("two summaries", changed("pct=12.5\n", "pct=12.5\n# summary tokens=2\n")),
    ];
    let list: Vec<String> = all.iter().map(|(what, error)| format!("{what}: {error}")).collect();
    insta::assert_snapshot!(list.join("\n"));
}

#[test]
fn device_metrics_are_keys_and_values() {
    let text = "peak_rss_kb=6107056\nbatt_temp_before_dC=396\n";
    let Import::Device(metrics) = open(text.as_bytes()).unwrap() else {
        panic!("this is of a device")
    };
    assert_eq!(metrics.keys.parsed::<u64>("peak_rss_kb"), Some(6_107_056));
    let error = open("a=1\nb=2\na=3\n".as_bytes()).unwrap_err().to_string();
    assert_eq!(error, "line 3, `a`: `3`; expected each key once");
    for wrong in ["peak_rss_kb=-5", "peak_rss_kb=nan", "cpu_temp_max_mC=abc", "mem_kb=1e308"] {
        let error = open(format!("{wrong}\n").as_bytes()).unwrap_err().to_string();
        assert!(error.contains("expected a number") && error.starts_with("line 1, `"), "{error}");
    }
    let Import::Device(cut) = open("a=1\nb=2".as_bytes()).unwrap() else {
        panic!("this is of a device")
    };
    assert_eq!((cut.keys.0.len(), cut.unfinished_line), (1, Some(2)));
}

#[test]
fn a_binary_trace_and_its_csv_files_hold_the_same() {
    use crate::codec::TraceWriter;
    use crate::csv::RouteCsv;
    use crate::record::{LayerShape, ModelShape, Record, RouteRecord, RunStart};

    let start = Record::Start(Box::new(RunStart {
        run_id: "r-1".into(),
        started_unix_ms: 0,
        engine_version: "0".into(),
        llama_version: "0".into(),
        config: crate::RunConfig { model: "models/m.gguf".into(), ..crate::RunConfig::default() },
        model: ModelShape {
            arch: "qwen3moe".into(),
            n_layer: 1,
            n_expert: 8,
            n_expert_used: 2,
            file_bytes: 1,
            dense_bytes: 1,
            layers: vec![LayerShape { layer: 0, expert_bytes: 640 }],
        },
    }));
    let event = |phase, positions: Vec<u32>, experts: Vec<u16>| {
        let mut distinct = experts.clone();
        distinct.sort_unstable();
        distinct.dedup();
        Record::Route(RouteRecord {
            turn: 0,
            ubatch: positions[0],
            phase,
            layer: 0,
            top_k: 2,
            weights: vec![0.5; experts.len()],
            residency: vec![Residency::Miss; distinct.len()],
            read_bytes: vec![640; distinct.len()],
            scored: [4, 5, 6].repeat(positions.len()),
            scores: [0.5, 0.25, 0.125].repeat(positions.len()),
            positions,
            experts,
            distinct,
        })
    };
    let records = [
        start,
        event(Phase::Prefill, vec![0, 1], vec![3, 7, 7, 1]),
        event(Phase::Decode, vec![2], vec![2, 3]),
    ];
    let (mut binary, mut csv) = (TraceWriter::new(Vec::new()).unwrap(), RouteCsv::new(Vec::new()));
    for record in &records {
        binary.write(record).unwrap();
        csv.record(record).unwrap();
    }
    let binary = binary.into_inner();
    let (header, rows, notes) = routes(&binary).unwrap();
    let (of_csv, csv_rows, _) = routes(csv.into_inner()).unwrap();
    assert_eq!((header.run_id.as_deref(), notes.len()), (Some("r-1"), 1));
    assert_eq!(header.layers, of_csv.layers);
    assert_eq!(
        (rows.scores.rank.as_slice(), rows.scores.position[3]),
        (&[0, 1, 2].repeat(3)[..], 1)
    );
    // The CSV has no micro-batches of its own and no scores.
    let rows =
        RouteChunk { ubatch: csv_rows.ubatch.clone(), scores: ScoreChunk::default(), ..rows };
    assert_eq!(rows, csv_rows);
    let (_, rows, notes) = routes(&binary[..binary.len() - 1]).unwrap();
    assert_eq!((rows.len(), notes.len()), (4, 2));
    let mut damaged = binary;
    damaged[30] ^= 1;
    assert!(refused(&damaged).contains("checksum"));
}
