//! Every format, and what is refused of it.

use super::*;
use crate::record::{Phase, Residency};

const ROUTES: &str = "# route_trace v1\n\
    # model=/data/my models/q.gguf arch=qwen3moe n_layer=2 n_expert=8 n_expert_used=2 odd=kept\n\
    # layer=0 expert_bytes=640 dense_bytes=1\n\
    # layer=1 expert_bytes=700 dense_bytes=1\n\
    turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n\
    0,0,0,0,0,3,0.75,0,640\n\
    0,0,0,0,1,7,0.25,1,0\n\
    0,0,1,0,0,3,nan,0,0\n\
    0,0,1,0,1,1,0.5,2,0\n\
    0,0,1,1,0,2,0.5,0,700\n\
    0,0,1,1,1,1,0.5,1,0\n\
    0,1,2,0,0,5,0.5,1,0\n\
    0,1,2,0,1,6,0.5,1,0\n\
    0,1,2,1,0,5,0.5,-1,0\n\
    0,1,2,1,1,6,0.5,-1,0\n";

fn routes(text: impl AsRef<[u8]>) -> Result<(RouteHeader, RouteChunk, Vec<String>)> {
    let Import::Routes(mut reader) = open(text.as_ref())? else { panic!("these are routes") };
    let mut all = RouteChunk::default();
    while let Some(chunk) = reader.next()? {
        assert!(all.is_empty(), "one chunk holds these");
        all = chunk;
    }
    Ok((reader.header().clone(), all, reader.notes()))
}

fn refused(text: impl AsRef<[u8]>) -> String {
    routes(text).expect_err("it is damaged").to_string()
}

/// The rows with a line changed; `None` takes it away. Lines count from 1.
fn with_line(line: usize, new: Option<&str>) -> String {
    let mut lines: Vec<&str> = ROUTES.lines().collect();
    match new {
        Some(new) => lines[line - 1] = new,
        None => drop(lines.remove(line - 1)),
    }
    lines.join("\n") + "\n"
}

#[test]
fn route_csv_gives_events_and_keeps_what_it_does_not_know() {
    let (header, rows, notes) = routes(ROUTES).unwrap();
    assert_eq!(header.model.as_deref(), Some("/data/my models/q.gguf"));
    assert_eq!((header.arch.as_deref(), header.n_expert, header.top_k), (Some("qwen3moe"), 8, 2));
    assert_eq!(header.layers[1], ImportedLayer { index: 1, expert_bytes: Some(700) });
    assert_eq!((header.keys.get("odd"), header.keys.get("dense_bytes")), (Some("kept"), Some("1")));
    assert_eq!(rows.event, [0, 0, 0, 0, 1, 1, 2, 2, 3, 3]);
    assert_eq!(rows.ubatch, [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(rows.position, [0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
    assert_eq!(rows.expert, [3, 7, 3, 1, 2, 1, 5, 6, 5, 6]);
    assert_eq!((rows.phase[5], rows.phase[6]), (Phase::Prefill, Phase::Decode));
    assert!(rows.weight[2].is_nan());
    let (hit, miss) = (Some(Residency::Hit), Some(Residency::Miss));
    assert_eq!(rows.residency[..4], [miss, hit, miss, Some(Residency::PrefetchHit)]);
    assert_eq!((rows.residency[9], &rows.read_bytes[..5]), (None, &[640, 0, 0, 0, 700][..]));
    assert!(notes.is_empty());
}

#[test]
fn line_ends_marks_orders_of_columns_and_further_ones_do_not_matter() {
    let (header, rows, _) = routes(ROUTES).unwrap();
    let crlf = ROUTES.replace('\n', "\r\n");
    let bom = format!("\u{feff}{ROUTES}");
    for text in [crlf, bom] {
        assert_eq!(routes(&text).unwrap().1.expert, rows.expert);
    }
    let reordered =
        "expert,slot,layer,why,step,phase\n4,0,3,a b,0,1\n5,1,3,,0,1\n1,0,3,x,1,1\n2,1,3,y,1,1\n";
    let (found, rows, _) = routes(reordered).unwrap();
    assert_eq!(
        (found.extra_columns.as_slice(), &rows.extra[0][..2]),
        (&["why".to_owned()][..], &["a b".to_owned(), String::new()][..])
    );
    assert_eq!((found.n_expert, found.n_expert_known, found.top_k), (6, false, 2));
    assert_eq!(found.layers, [ImportedLayer { index: 3, expert_bytes: None }]);
    assert_eq!(rows.event, [0, 0, 1, 1]);
    assert!(header.extra_columns.is_empty());
}

#[test]
fn damaged_rows_are_refused_with_line_column_value_and_what_was_expected() {
    let line = |new: &str| refused(with_line(9, Some(new)));
    let all = [
        ("no layer of the header", line("0,0,1,5,1,1,0.5,2,0")),
        ("no expert of the header", line("0,0,1,0,1,8,0.5,2,0")),
        ("no number", line("0,0,1,0,1,x,0.5,2,0")),
        ("empty", line("0,0,1,0,1,,0.5,2,0")),
        ("negative", line("0,0,-1,0,1,1,0.5,2,0")),
        ("too large", line("0,0,4294967296,0,1,1,0.5,2,0")),
        ("phase", line("0,2,1,0,1,1,0.5,2,0")),
        ("residency", line("0,0,1,0,1,1,0.5,3,0")),
        ("weight", line("0,0,1,0,1,1,inf,2,0")),
        ("bytes", line("0,0,1,0,1,1,0.5,2,18446744073709551616")),
        ("a field short", line("0,0,1,0,1,1,0.5,2")),
        ("a field long", line("0,0,1,0,1,1,0.5,2,0,0")),
        ("NUL", line("0,0,1,0,1,1\0,0.5,2,0")),
        ("an expert twice", line("0,0,1,0,1,3,0.5,2,0")),
        ("a row lost", refused(with_line(8, None))),
        ("a token's last row lost", refused(with_line(9, None))),
        ("a row repeated", line("0,0,1,0,1,1,0.5,2,0\n0,0,1,0,1,1,0.5,2,0")),
        ("a token repeated", refused(ROUTES.to_owned() + "0,1,2,1,0,5,0.5,-1,0\n")),
        ("an earlier token", refused(ROUTES.to_owned() + "0,1,1,0,0,5,0.5,-1,0\n")),
        ("prefill behind decode", refused(ROUTES.to_owned() + "0,0,3,0,0,5,0.5,-1,0\n")),
        (
            "an earlier turn",
            refused(
                ROUTES.to_owned()
                    + "1,0,0,0,0,5,0.5,1,0\n1,0,0,0,1,6,0.5,1,0\n0,1,3,0,0,5,0.5,1,0\n",
            ),
        ),
    ];
    let list: Vec<String> = all.iter().map(|(what, error)| format!("{what}: {error}")).collect();
    insta::assert_snapshot!(list.join("\n"));
}

#[test]
fn damaged_heads_are_refused() {
    let header = "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n";
    let all = [
        ("no header", refused(ROUTES.replace(header, ""))),
        ("no expert column", refused(ROUTES.replace("slot,expert", "slot,experts"))),
        ("a column twice", refused(ROUTES.replace("residency,expert_bytes", "residency,slot"))),
        ("another version", refused(ROUTES.replace("trace v1", "trace v2"))),
        ("a layer twice", refused(ROUTES.replace("# layer=1", "# layer=0"))),
        ("no number of experts", refused(ROUTES.replace("n_expert=8", "n_expert=many"))),
        ("only a preamble", refused("# route_trace v1\n")),
        ("bytes that are no text", refused(b"# route_trace v1\n# model=\xff\n")),
        ("empty", refused("")),
        ("something else", refused("Dear reader,\n")),
        ("UTF-16", refused(b"\xff\xfes\0t\0")),
        ("another JSON", refused("{\"a\": 1}\n")),
        ("an ELF file", refused(b"\x7fELF\x02\x01\x01\0\0\0")),
    ];
    let list: Vec<String> = all.iter().map(|(what, error)| format!("{what}: {error}")).collect();
    insta::assert_snapshot!(list.join("\n"));
}

#[test]
fn what_an_ended_writer_leaves_unfinished_is_left_out_and_told() {
    let whole = routes(ROUTES).unwrap().1;
    let rows_begin = ROUTES.find("0,0,0,0,0,3").unwrap();
    for cut in rows_begin + 60..ROUTES.len() {
        let (_, rows, notes) = routes(&ROUTES[..cut]).unwrap();
        assert_eq!(rows.len() % 2, 0, "whole tokens only");
        assert_eq!(rows.expert, whole.expert[..rows.len()]);
        let complete = ROUTES[..cut].matches('\n').count() - 5;
        assert_eq!(rows.len(), complete / 2 * 2, "at {cut}");
        let unfinished = complete % 2 == 1 || !ROUTES[..cut].ends_with('\n');
        assert_eq!(notes.is_empty(), !unfinished, "at {cut}: {notes:?}");
    }
}

/// An endless line of one byte.
struct Endless;

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        buffer.fill(b'7');
        Ok(buffer.len())
    }
}

#[test]
fn lines_without_an_end_are_refused_before_they_fill_the_memory() {
    for head in [ROUTES, "step,wall_ms\n", "{\"tok\":1,\"layers\":[[", "k=v\nx="] {
        let error = match open(head.as_bytes().chain(Endless)) {
            Err(e) => e,
            Ok(Import::Routes(mut reader)) => reader.next().unwrap_err(),
            Ok(Import::Log(mut reader)) => reader.next().unwrap_err(),
            Ok(Import::Device(_)) => panic!("it has no end"),
        };
        assert!(
            error.to_string().contains("longer than 16 MiB; expected lines of text"),
            "{error}"
        );
    }
}

#[test]
fn several_chunks_end_where_tokens_do() {
    let mut text = String::from("phase,step,layer,slot,expert\n");
    let tokens = CHUNK_ROWS / 3 + 10;
    for token in 0..tokens {
        for slot in 0..3 {
            text += &format!("1,{token},0,{slot},{}\n", (token + slot) % 7);
        }
    }
    let Import::Routes(mut reader) = open(text.as_bytes()).unwrap() else {
        panic!("these are routes")
    };
    let mut rows = 0;
    while let Some(chunk) = reader.next().unwrap() {
        assert_eq!((chunk.len() % 3, chunk.slot[0]), (0, 0));
        assert_eq!(chunk.event[0] as usize, rows / 3);
        rows += chunk.len();
    }
    assert_eq!(rows, 3 * tokens);
}

#[test]
fn token_json_lines_are_decode_tokens() {
    let text = "{\"tok\": 0, \"layers\": [[36, 38], [51, 139]]}\n\n{\"tok\": 1, \"layers\": [[1, 2], [3, 4]], \"ms\": 5}\n";
    let (header, rows, notes) = routes(text).unwrap();
    assert_eq!((header.layers.len(), header.n_expert, header.top_k), (2, 140, 2));
    assert_eq!(rows.event, [0, 0, 1, 1, 2, 2, 3, 3]);
    assert_eq!(rows.ubatch, [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(rows.expert, [36, 38, 51, 139, 1, 2, 3, 4]);
    assert_eq!(notes, ["keys besides `tok` and `layers` are not imported: ms"]);
    let first = "{\"tok\":7,\"layers\":[[1,2],[3,4]]}\n";
    let (_, rows, notes) = routes(first.to_owned() + "{\"tok\":8,\"layers\":[[1,2],[3").unwrap();
    assert_eq!((rows.len(), notes.len()), (4, 1));
    // A whole object needs no end of its line.
    assert_eq!(routes(first.trim_end()).unwrap().1.len(), 4);
    let second = |line: &str| refused(format!("{first}{line}\n"));
    let all = [
        ("repeated", second("{\"tok\":7,\"layers\":[[1,2],[3,4]]}")),
        ("a layer lost", second("{\"tok\":8,\"layers\":[[1,2]]}")),
        ("an expert lost", second("{\"tok\":8,\"layers\":[[1,2],[3]]}")),
        ("an expert twice", second("{\"tok\":8,\"layers\":[[1,2],[3,3]]}")),
        ("too large", second("{\"tok\":8,\"layers\":[[1,2],[3,70000]]}")),
        ("negative", second("{\"tok\":8,\"layers\":[[1,2],[3,-4]]}")),
        ("no tok", second("{\"layers\":[[1,2],[3,4]]}")),
        ("cut off in the middle", second("{\"tok\":8,\"layers\":[[1,2],[3")),
        ("no experts", refused("{\"tok\":0,\"layers\":[[],[]]}\n")),
    ];
    let list: Vec<String> = all.iter().map(|(what, error)| format!("{what}: {error}")).collect();
    insta::assert_snapshot!(list.join("\n"));
}

const CACHE_LAB: &str = r#"{"record_type":"metadata","format":"moe-cache-lab.routing-jsonl","format_version":1,"model_id":"org/m","num_experts":8,"experts_per_token":2,"source_text":null,"capture_method":"hook"}
{"record_type":"routing_selection","phase":"prompt","token_position":0,"layer":1,"selected_experts":[3,1],"selected_probabilities":[0.5,0.25]}
{"record_type":"routing_selection","phase":"prompt","token_position":1,"layer":1,"selected_experts":[3,2],"selected_probabilities":[0.5,0.25],"token_id":9}
{"record_type":"routing_selection","phase":"prompt","token_position":1,"layer":4,"selected_experts":[0,2]}
{"record_type":"routing_selection","phase":"generated","token_position":2,"layer":1,"selected_experts":[7,6],"selected_probabilities":[]}
{"record_type":"routing_selection","phase":"generated","token_position":2,"layer":4,"selected_experts":[7,5]}
"#;

#[test]
fn cache_lab_prompts_are_one_event_a_layer_and_generated_tokens_one_each() {
    let (header, rows, notes) = routes(CACHE_LAB).unwrap();
    assert_eq!((header.model.as_deref(), header.n_expert, header.top_k), (Some("org/m"), 8, 2));
    assert_eq!(header.keys.get("capture_method"), Some("hook"));
    let layers: Vec<u32> = header.layers.iter().map(|l| l.index).collect();
    assert_eq!(layers, [1, 4]);
    assert_eq!(rows.event, [0, 0, 0, 0, 1, 1, 2, 2, 3, 3]);
    assert_eq!(rows.ubatch, [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(rows.weight[..4], [0.5, 0.25, 0.5, 0.25]);
    assert!(rows.weight[4..].iter().all(|w| w.is_nan()));
    assert!(notes.is_empty());
    let changed = |from: &str, to: &str| refused(CACHE_LAB.replacen(from, to, 1));
    let all = [
        ("version 2", changed("\"format_version\":1", "\"format_version\":2")),
        ("no metadata", refused(CACHE_LAB.split_once('\n').unwrap().1)),
        ("another record", changed("routing_selection", "note")),
        ("an unknown field", changed("\"token_id\"", "\"token\"")),
        ("an expert of another model", changed("[7,6]", "[7,8]")),
        ("an expert twice", changed("[7,6]", "[7,7]")),
        ("too few experts", changed("[7,6]", "[7]")),
        ("too few probabilities", changed("[0.5,0.25]", "[0.5]")),
        ("an improbable one", changed("[0.5,0.25]", "[0.5,1.5]")),
        (
            "a prompt's position again",
            changed("\"generated\",\"token_position\":2", "\"generated\",\"token_position\":1"),
        ),
        ("a repeated line", refused(CACHE_LAB.to_owned() + CACHE_LAB.lines().last().unwrap())),
        (
            "a prompt behind",
            changed(
                "\"generated\",\"token_position\":2,\"layer\":4",
                "\"prompt\",\"token_position\":3,\"layer\":4",
            ),
        ),
        (
            "a prompt token by token",
            changed("\"token_position\":1,\"layer\":4", "\"token_position\":1,\"layer\":0"),
        ),
    ];
    let list: Vec<String> = all.iter().map(|(what, error)| format!("{what}: {error}")).collect();
    insta::assert_snapshot!(list.join("\n"));
}

fn log(text: &str) -> Result<(LogHeader, LogChunk, Vec<String>)> {
    let Import::Log(mut reader) = open(text.as_bytes())? else { panic!("this is a log") };
    let mut all = LogChunk::default();
    while let Some(chunk) = reader.next()? {
        all = chunk;
    }
    Ok((reader.header().clone(), all, reader.notes().to_vec()))
}

const LOG: &str = "# bmoe_metrics v1\n# model=m.gguf arch=a new_key=x%20y\nstep,wall_ms,read_bytes,cache_hit_pct,mood\n\
    1,10.5,100,-1.00,good\n2,20.25,-1,12.50,\n# summary tokens=2 s/tok=0.015\n";

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
    let (_, _, notes) = log(&LOG.replace("2,20.25,-1,12.50,\n", "")).unwrap();
    assert_eq!(notes, ["its summary counts 2 tokens, and it has 1 rows"]);
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
        ("behind the summary", changed("s/tok=0.015\n", "s/tok=0.015\n3,1.0,1,1,x\n")),
        ("two summaries", changed("0.015\n", "0.015\n# summary tokens=2\n")),
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
            scored: vec![4, 5, 6].repeat(positions.len()),
            scores: vec![0.5, 0.25, 0.125].repeat(positions.len()),
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
