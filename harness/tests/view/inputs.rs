//! Inputs of every kind: malformed, empty, tiny, huge, and growing.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bmoe::view::source::{self, Source};
use bmoe::view::terminal::Signals;
use bmoe::view::world::{Mode, World};
use bmoe::view::{App, plain};
use bmoe_trace::codec::TraceWriter;
use bmoe_trace::record::{
    Cost, LayerShape, MemoryState, ModelShape, Outcome, Phase, Record, Residency, RouteRecord,
    RunEnd, RunStart, TokenRecord,
};
use bmoe_trace::{Mode as EngineMode, RunConfig};

use crate::fixed::{app, shown};

fn start() -> Record {
    let config = RunConfig { mode: EngineMode::Stream, ..RunConfig::default() };
    let model = ModelShape {
        arch: "qwen3moe".into(),
        n_layer: 2,
        n_expert: 8,
        n_expert_used: 2,
        file_bytes: 1 << 20,
        dense_bytes: 1 << 10,
        layers: (0..2).map(|layer| LayerShape { layer, expert_bytes: 1000 }).collect(),
    };
    Record::Start(Box::new(RunStart {
        run_id: "r".into(),
        started_unix_ms: 0,
        engine_version: String::new(),
        llama_version: String::new(),
        config,
        model,
    }))
}

fn route(token: u32, layer: u32) -> Record {
    let expert = (token % 7) as u16;
    Record::Route(RouteRecord {
        turn: 0,
        ubatch: token,
        phase: Phase::Decode,
        layer,
        top_k: 2,
        positions: vec![token],
        experts: vec![expert, expert + 1],
        weights: vec![0.5, 0.5],
        distinct: vec![expert, expert + 1],
        residency: vec![Residency::Hit, Residency::Miss],
        read_bytes: vec![0, 1000],
        scored: Vec::new(),
        scores: Vec::new(),
    })
}

fn token(token: u32) -> Record {
    Record::Token(TokenRecord {
        step: token + 1,
        position: token,
        token: 1,
        cost: Cost {
            wall_ns: 1_000_000,
            compute_ns: 900_000,
            hits: 2,
            misses: 2,
            ..Cost::default()
        },
        cumulative_hit_rate: 0.5,
        cache_resident_bytes: 4000,
        cache_budget_bytes: 8000,
        rss_bytes: 1 << 20,
        memory: MemoryState::default(),
    })
}

fn end(tokens: u32) -> Record {
    Record::End(Box::new(RunEnd {
        outcome: Outcome::Complete,
        tokens,
        decode_ns: u64::from(tokens) * 1_000_000,
        peak_rss_bytes: 0,
        peak_cache_bytes: 0,
        peak_event_bytes: 0,
        text: "all of it".into(),
        logits_sha256: None,
    }))
}

fn encode(records: impl IntoIterator<Item = Record>) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new()).unwrap();
    records.into_iter().for_each(|record| writer.write(&record).unwrap());
    writer.into_inner()
}

fn of_tokens(tokens: u32) -> impl Iterator<Item = Record> {
    let step = |n| [route(n, 0), route(n, 1), token(n)];
    std::iter::once(start()).chain((0..tokens).flat_map(step)).chain([end(tokens)])
}

fn write(folder: &Path, bytes: &[u8]) -> PathBuf {
    let path = folder.join("trace.bin");
    fs::write(&path, bytes).unwrap();
    path
}

/// Old enough that nobody can be writing it.
fn let_it_age(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
}

fn settle(source: &mut dyn Source, world: &mut World) {
    (0..50).for_each(|_| source.poll(world));
}

#[test]
fn a_hundred_thousand_tokens_are_replayed_from_any_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), &encode(of_tokens(100_000)));
    let (mut source, mut world) = source::open(&path).unwrap();
    settle(source.as_mut(), &mut world);
    let run = world.run().unwrap();
    assert_eq!((run.steps().len(), run.over, world.mode), (100_000, true, Mode::Replay));
    assert_eq!(run.routes.tokens(), 100_000);
    let experts: Vec<_> = run.routes.token(77_777).map(|e| (e.layer, e.experts.to_vec())).collect();
    assert_eq!(experts, [(0, vec![0, 1]), (1, vec![0, 1])]);
    let mut app = app(world);
    for to in [100_000, 0, 50_000, 99_999, 1] {
        app.world_mut().seek(|playhead, run| playhead.seek(to, run));
        assert!(shown(&mut app, 80, 24).contains(&format!("token {to} of 100000")));
    }
    assert_eq!(app.world().run().unwrap().text(5), ("all of it", false));
}

#[test]
fn one_token_and_none_are_shown() {
    for tokens in [0, 1] {
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), &encode(of_tokens(tokens)));
        let (mut source, mut world) = source::open(&path).unwrap();
        settle(source.as_mut(), &mut world);
        world.seek(|playhead, run| playhead.to_end(run));
        let text = shown(&mut app(world), 80, 24);
        assert!(text.contains(&format!("token {tokens} of {tokens}")), "{text}");
    }
}

#[test]
fn a_trace_that_is_appended_to_is_followed_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = encode(of_tokens(20));
    let path = write(folder.path(), &bytes[..40]);
    let (mut source, mut world) = source::open(&path).unwrap();
    source.poll(&mut world);
    assert_eq!((world.mode, world.shown_tokens()), (Mode::Live, 0));
    let mut before = 0;
    // Pieces end in the middle of records.
    for piece in bytes[40..].chunks(97) {
        fs::File::options().append(true).open(&path).unwrap().write_all(piece).unwrap();
        source.poll(&mut world);
        assert!(world.shown_tokens() >= before);
        before = world.shown_tokens();
    }
    let run = world.run().unwrap();
    assert_eq!((before, run.over, run.trouble.as_deref()), (20, true, None));
}

#[test]
fn a_trace_without_an_end_says_that_it_was_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = encode(of_tokens(5));
    let path = write(folder.path(), &bytes[..bytes.len() - 9]);
    let_it_age(&path);
    let (mut source, mut world) = source::open(&path).unwrap();
    settle(source.as_mut(), &mut world);
    let run = world.run().unwrap();
    assert_eq!(run.steps().len(), 5);
    assert!(run.trouble.as_deref().unwrap().contains("cut off"), "{:?}", run.trouble);
}

#[test]
fn damage_in_the_middle_is_named_and_what_was_before_it_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = encode(of_tokens(50));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    let path = write(folder.path(), &bytes);
    let_it_age(&path);
    let (mut source, mut world) = source::open(&path).unwrap();
    settle(source.as_mut(), &mut world);
    let run = world.run().unwrap();
    assert!(run.steps().len() > 10 && run.trouble.as_deref().unwrap().contains("damaged"));
    assert!(shown(&mut app(world), 120, 40).contains("! the trace is damaged"));
}

#[test]
fn what_is_no_trace_and_no_folder_of_results_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |path: &Path| source::open(path).err().unwrap().to_string();
    assert!(refused(folder.path()).contains("is no result folder"));
    assert!(refused(&folder.path().join("absent")).contains("absent"));
    for target in ["local", "adb-1"] {
        let below = folder.path().join("both").join(target);
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join("journal.jsonl"), "").unwrap();
    }
    let both = folder.path().join("both");
    fs::write(both.join("matrix.toml"), "").unwrap();
    let said = refused(&both);
    assert!(said.contains("give one of them: ") && said.contains("both/adb-1, "), "{said}");
    let path = write(folder.path(), b"");
    assert!(!refused(&path).is_empty());
    let path = write(folder.path(), b"hello\nworld\n");
    assert!(!refused(&path).is_empty());
}

#[test]
fn a_journal_with_a_damaged_line_is_told_and_the_rest_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let records = fs::read_to_string("../results/quickstart/cells.jsonl").unwrap();
    fs::write(folder.path().join("cells.jsonl"), format!("nonsense\n{records}")).unwrap();
    let (mut source, mut world) = source::open(folder.path()).unwrap();
    settle(source.as_mut(), &mut world);
    assert!(world.notice.as_deref().unwrap().contains("cells.jsonl has a damaged line"));
    assert_eq!((world.cells.len(), world.runs.len()), (7, 14));
    // Without traces and tables there is nothing to show of the runs themselves.
    assert!(world.runs.iter().all(|run| run.over && run.steps().is_empty()));
    let text = shown(&mut app(world), 80, 24);
    assert!(text.contains("token 0 of 0"), "{text}");
}

#[test]
fn results_are_replayed_from_their_tables() {
    let (mut source, mut world) = source::open(Path::new("../results/quickstart")).unwrap();
    settle(source.as_mut(), &mut world);
    assert!(source.is_settled());
    assert_eq!((world.runs.len(), world.mode, world.selected()), (14, Mode::Replay, 0));
    let last = world.runs.last().unwrap();
    assert_eq!((last.steps().len(), last.routes.tokens()), (64, 64));
    assert_eq!(last.routes.token(0).count(), 12);
    let cell = world.cells.iter().find(|cell| cell.id == last.key.cell).unwrap();
    // As the report of the folder has it.
    let report = fs::read_to_string("../results/quickstart/report.md").unwrap();
    let row = report.lines().find(|line| line.starts_with(&format!("| {} |", cell.name))).unwrap();
    let (tok_s, hit_pct) = (cell.tok_s.unwrap(), 100.0 * cell.hit_rate.unwrap());
    assert!(
        row.contains(&format!("| {tok_s:.2} (")) && row.contains(&format!("| {hit_pct:.1} |")),
        "{row}"
    );
    let mut app: App = app(world);
    assert!(shown(&mut app, 80, 24).contains("run 1 of 14"));
}

#[test]
fn plain_lines_end_when_everything_is_told() {
    let (mut source, mut world) = source::open(Path::new("../results/quickstart")).unwrap();
    let mut out = Vec::new();
    plain::run(source.as_mut(), &mut world, &mut out, &Signals::default()).unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap());
}
