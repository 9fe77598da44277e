//! Every format, and what is refused of it.

mod logs;

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
        ("more bytes than an expert has", line("0,0,1,0,1,1,0.5,0,641")),
        ("bytes of a hit", line("0,0,1,0,1,1,0.5,1,640")),
        ("a negative weight", line("0,0,1,0,1,1,-0.5,2,0")),
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

/// Rows of top-1, without a header's list of layers: (phase, step, layer).
fn steps(rows: &[(u32, u32, u32)]) -> String {
    let rows = rows.iter().map(|(phase, step, layer)| format!("{phase},{step},{layer},0,0\n"));
    "phase,step,layer,slot,expert\n".to_owned() + &rows.collect::<String>()
}

/// Three layers, a prompt of three tokens whose last layer has its last token only, and three decoded ones.
const STEPS: [(u32, u32, u32); 16] = [
    (0, 5, 0),
    (0, 6, 0),
    (0, 7, 0),
    (0, 5, 1),
    (0, 6, 1),
    (0, 7, 1),
    (0, 7, 3),
    (1, 8, 0),
    (1, 8, 1),
    (1, 8, 3),
    (1, 9, 0),
    (1, 9, 1),
    (1, 9, 3),
    (1, 10, 0),
    (1, 10, 1),
    (1, 10, 3),
];

#[test]
fn lost_and_misplaced_events_are_refused() {
    assert_eq!(routes(steps(&STEPS)).unwrap().2, [""; 0]);
    let listed = |rows: &[(u32, u32, u32)]| {
        let layers = [0, 1, 3].map(|layer| format!("# layer={layer} expert_bytes=640\n")).concat();
        layers + &steps(rows)
    };
    assert_eq!(routes(listed(&STEPS)).unwrap().2, [""; 0]);
    // Every single row but those that a writer may not have come to.
    for lost in 0..STEPS.len() - 1 {
        let mut rows = STEPS.to_vec();
        rows.remove(lost);
        for text in [steps(&rows), listed(&rows)] {
            // The last layer of a prompt may be without rows.
            let read = routes(&text);
            assert_eq!(read.is_ok(), lost == 6, "without row {lost}: {:?}", read.err());
        }
    }
    let without = |lost: &[usize]| {
        let kept = STEPS.iter().enumerate().filter(|(at, _)| !lost.contains(at));
        refused(steps(&kept.map(|(_, row)| *row).collect::<Vec<_>>()))
    };
    let swapped = |a: usize, b: usize| {
        let mut rows = STEPS;
        rows.swap(a, b);
        refused(steps(&rows))
    };
    let mut by_layer = STEPS.to_vec();
    by_layer.sort_by_key(|(phase, step, layer)| (*phase, *layer, *step));
    let mut decode_by_layer = by_layer[7..].to_vec();
    decode_by_layer.sort_by_key(|(_, step, layer)| (*layer, *step));
    let all = [
        ("a layer of a step", without(&[11])),
        ("the last layer of a step", without(&[12])),
        ("a whole step", without(&[10, 11, 12])),
        ("a prompt's token in one layer", without(&[4])),
        ("a prompt's last token in one layer", without(&[5])),
        ("a prompt's layer", without(&[3, 4, 5])),
        ("layers swapped", swapped(10, 11)),
        ("a step's layer in another step", swapped(8, 11)),
        ("decode layer by layer", refused(steps(&by_layer))),
        ("nothing but that", refused(steps(&decode_by_layer))),
        ("the same with a list of layers", refused(listed(&decode_by_layer))),
    ];
    let list: Vec<String> = all.iter().map(|(what, error)| format!("{what}: {error}")).collect();
    insta::assert_snapshot!(list.join("\n"));
    // A turn may end within a step, and another one begins anywhere.
    let turn = |turn: u32, rows: &[(u32, u32, u32)]| {
        let line =
            |(phase, step, layer): &(u32, u32, u32)| format!("{turn},{phase},{step},{layer},0,0\n");
        rows.iter().map(line).collect::<String>()
    };
    let text =
        format!("turn,phase,step,layer,slot,expert\n{}{}", turn(0, &STEPS[..12]), turn(1, &STEPS));
    let (_, rows, notes) = routes(text).unwrap();
    assert_eq!(rows.len(), 28);
    assert_eq!(
        notes,
        [
            "turn 0 ends within a step: position 9 has 2 of 3 layers (its writer was ended, or the request cancelled)"
        ]
    );
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
        ("a key twice", refused(ROUTES.replace("odd=kept", "arch=other"))),
        ("fewer layers", refused(ROUTES.replace("n_layer=2", "n_layer=1"))),
        ("old line ends", refused(ROUTES.replace('\n', "\r"))),
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
        // Four tokens: the decode step has its first layer only.
        let within_step = complete / 2 == 4;
        let unfinished = complete % 2 == 1 || !ROUTES[..cut].ends_with('\n') || within_step;
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
        let limit = if head.starts_with('{') { "16 MiB" } else { "1 MiB" };
        let expected = format!("longer than {limit}; expected lines of text");
        assert!(error.to_string().contains(&expected), "{error}");
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
        ("a token lost", second("{\"tok\":9,\"layers\":[[1,2],[3,4]]}")),
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
        (
            "a line lost",
            refused(
                CACHE_LAB.lines().filter(|l| !l.contains("[7,6]")).collect::<Vec<_>>().join("\n"),
            ),
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

#[test]
fn hostile_sizes_are_refused() {
    let wide = format!("phase,step,layer,slot,expert{}\n", ",x".repeat(2000));
    let slots: String = (0..1100).map(|slot| format!("1,0,0,{slot},{slot}\n")).collect();
    let many = format!("{{\"tok\":0,\"layers\":[{:?}]}}\n", (0..1100).collect::<Vec<_>>());
    let layer = format!("phase,step,layer,slot,expert\n1,0,{},0,0\n", u32::MAX);
    let all = [
        ("columns", refused(wide)),
        ("slots", refused(format!("phase,step,layer,slot,expert\n{slots}"))),
        ("experts of a token", refused(many)),
        ("layer", refused(layer)),
        ("JSON in JSON", refused(format!("{{\"tok\":0,\"layers\":{}\n", "[".repeat(100_000)))),
        (
            "size of an expert",
            refused(ROUTES.replace("expert_bytes=640", "expert_bytes=999999999999999999")),
        ),
    ];
    let list: Vec<String> = all.iter().map(|(what, error)| format!("{what}: {error}")).collect();
    insta::assert_snapshot!(list.join("\n"));
}

/// One byte changed, put in or taken away anywhere: an error or sound rows, never a panic.
#[test]
fn damage_anywhere_gives_an_error_or_sound_rows() {
    let tokens =
        "{\"tok\":0,\"layers\":[[36,38],[51,139]]}\n{\"tok\":1,\"layers\":[[1,2],[3,4]]}\n";
    for sample in [ROUTES, CACHE_LAB, tokens, logs::LOG, "peak_rss_kb=61\nbatt_dC=396\n"] {
        for at in 0..sample.len() {
            for byte in *b",\n9-\"#\0\xff" {
                for (from, new) in [(at + 1, &[byte][..]), (at, &[byte]), (at + 1, &[])] {
                    let damaged =
                        [&sample.as_bytes()[..at], new, &sample.as_bytes()[from..]].concat();
                    drain(&damaged);
                }
            }
        }
    }
}

fn drain(bytes: &[u8]) {
    match open(bytes) {
        Ok(Import::Routes(mut reader)) => {
            while let Ok(Some(chunk)) = reader.next() {
                let rows = chunk.len();
                let header = reader.header();
                assert_eq!(
                    (chunk.event.len(), chunk.read_bytes.len(), chunk.weight.len()),
                    (rows, rows, rows)
                );
                assert!(chunk.expert.iter().all(|expert| *expert < header.n_expert));
                assert!(header.top_k == 0 || rows.is_multiple_of(header.top_k as usize));
            }
        }
        Ok(Import::Log(mut reader)) => {
            while let Ok(Some(chunk)) = reader.next() {
                assert_eq!(chunk.columns.len(), reader.header().columns.len());
            }
        }
        Ok(Import::Device(_)) | Err(_) => {}
    }
}
