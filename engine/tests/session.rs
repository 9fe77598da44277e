//! Conversations: streamed and resident ones agree to the last bit, what was computed is kept, and whatever
//! is cancelled or rejected leaves the rest as it was.

mod common;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bmoe_engine::chat::Delta;
use bmoe_engine::run::{
    Event, Finish, Prefix, RecordSink, Request, RunOptions, Session, TurnReport,
};
use bmoe_engine::{Engine, EngineError};
use bmoe_trace::config::{Sampling, Think};
use bmoe_trace::record::{Outcome, Record, TurnRecord};
use bmoe_trace::{CacheBudget, Mode, RunConfig};

fn request(id: &str, prompt: &str) -> Request {
    Request {
        id: id.to_owned(),
        prompt: prompt.to_owned(),
        n_predict: 8,
        think: Think::Default,
        clear: false,
    }
}

fn ask(session: &mut Session<'_, '_>, request: &Request) -> Result<TurnReport, EngineError> {
    session.ask(request, &mut |_| ControlFlow::Continue(()))
}

fn chat(model: &std::path::Path, mode: Mode) -> RunConfig {
    RunConfig { chat: true, ctx_tokens: 512, ..common::config(model, mode) }
}

fn options() -> RunOptions {
    RunOptions { poison: true, ..RunOptions::default() }
}

/// The text that tokens of one turn had.
#[derive(Default)]
struct Texts(Vec<String>);

impl RecordSink for Texts {
    fn record(&mut self, _: &Record) -> Result<(), EngineError> {
        Ok(())
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), EngineError> {
        match event {
            Event::TurnStarted { .. } => self.0.push(String::new()),
            Event::Text(Delta { text, .. }) => self.0.last_mut().unwrap().push_str(text),
            _ => {}
        }
        Ok(())
    }
}

/// Runs some requests in one session, with the trace of it.
fn converse(config: &RunConfig, requests: &[Request]) -> (Vec<TurnReport>, common::Records) {
    let mut records = common::Records::default();
    let mut engine = Engine::open(config, &options(), vec![&mut records]).unwrap();
    let mut session = engine.session();
    let reports = requests.iter().map(|r| ask(&mut session, r).unwrap()).collect();
    engine.close().unwrap();
    (reports, records)
}

#[test]
fn streamed_and_resident_conversations_agree_to_the_last_bit() {
    let _place = common::place(1);
    let folder = common::folder();
    for arch in ["qwen3moe", "gemma4", "gpt-oss", "dots3note"] {
        let model = common::model(folder.path(), &common::tiny(arch), arch, None);
        let second = Request { n_predict: 5, ..request("2", &common::prompt(40)) };
        let requests = [request("1", "Hello"), second, request("3", "And?")];
        let (expected, _) = converse(&chat(&model, Mode::Resident), &requests);
        for (cache_mib, overlap) in [(0, true), (1, true), (64, true), (1, false)] {
            let cache_mib = CacheBudget::Mib(cache_mib);
            let config = RunConfig { cache_mib, overlap, ..chat(&model, Mode::Stream) };
            let (reports, records) = converse(&config, &requests);
            for (report, expected) in reports.iter().zip(&expected) {
                let what = format!("{arch}, {cache_mib} MiB, overlap {overlap}, {}", report.id);
                assert_eq!(report.logits_sha256, expected.logits_sha256, "{what}");
                assert_eq!(report.text, expected.text, "{what}");
                assert_eq!(report.prefix, expected.prefix, "{what}");
                assert_eq!(report.reused_tokens, expected.reused_tokens, "{what}");
            }
            let turns: Vec<&TurnRecord> = records
                .0
                .iter()
                .filter_map(|r| if let Record::Turn(t) = r { Some(t) } else { None })
                .collect();
            assert_eq!(turns.iter().map(|t| t.turn).collect::<Vec<_>>(), [0, 1, 2]);
            assert_eq!(turns.iter().map(|t| t.id.as_str()).collect::<Vec<_>>(), ["1", "2", "3"]);
            let routed: Vec<u32> = records.routes().iter().map(|r| r.turn).collect();
            assert!(routed.is_sorted() && routed.first() == Some(&0) && routed.last() == Some(&2));
        }
    }
}

#[test]
fn only_what_is_new_is_computed() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let requests = [request("a", "Hello"), request("b", "And?")];
    let config = RunConfig { cache_mib: CacheBudget::Mib(64), ..chat(&model, Mode::Stream) };
    let (reports, records) = converse(&config, &requests);
    let (first, second) = (&reports[0], &reports[1]);
    assert_eq!((first.prefix, first.reused_tokens), (Prefix::New, 0));
    assert_eq!(first.total_tokens, first.prompt_tokens + first.tokens);
    assert_eq!((first.tokens, first.finish), (8, Finish::Length));
    assert_eq!((second.prefix, second.removed_tokens), (Prefix::Kept, 0));
    assert_eq!(second.reused_tokens, first.total_tokens);
    assert_eq!(second.total_tokens, second.reused_tokens + second.prompt_tokens + second.tokens);
    // The end of the answer, a user's message, the beginning of an answer.
    assert!(second.prompt_tokens < 40, "{}", second.prompt_tokens);
    let positions: Vec<u32> = records
        .routes()
        .iter()
        .filter(|r| r.layer == 0)
        .flat_map(|r| r.positions.clone())
        .collect();
    assert_eq!(positions, (0..second.total_tokens).collect::<Vec<u32>>());
    // The experts stayed, too: the second prompt finds most of its own.
    let hits = records
        .0
        .iter()
        .filter_map(|r| if let Record::Prefill(p) = r { Some(&p.cost) } else { None });
    let hits: Vec<u64> = hits.map(|c| c.hits).collect();
    assert!(hits[1] > 0, "{hits:?}");
}

#[test]
fn a_new_conversation_is_as_the_first_one() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let again = Request { clear: true, ..request("c", "Hello") };
    let requests = [request("a", "Hello"), request("b", "And?"), again];
    for temperature in [0.0, 0.8] {
        let sampling = Sampling { temperature, ..Sampling::default() };
        let config = RunConfig { sampling, ..chat(&model, Mode::Stream) };
        let (reports, _) = converse(&config, &requests);
        assert_eq!(reports[2].logits_sha256, reports[0].logits_sha256);
        assert_eq!(reports[2].text, reports[0].text);
        assert_eq!((reports[2].prefix, reports[2].reused_tokens), (Prefix::New, 0));
    }
}

#[test]
fn a_template_that_rewrites_what_was_said_costs_the_tokens_that_change() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    common::set_template(&model, common::THINKING);
    // An answer that was generated behind an empty block of thoughts stands without one in later prompts.
    let off = |id, prompt| Request { think: Think::Off, ..request(id, prompt) };
    let requests = [off("1", "Hello"), off("2", "And?"), off("3", "So?")];
    let (expected, _) = converse(&chat(&model, Mode::Resident), &requests);
    // The tokenizer has one merge in the block, which is there twice: "hi".
    let empty = "<think>\n\n</think>\n\n".len() as u32 - 2;
    for (before, after) in expected.iter().zip(&expected[1..]) {
        assert_eq!(after.prefix, Prefix::Kept);
        assert_eq!(after.removed_tokens, empty + before.tokens);
        assert_eq!(after.reused_tokens, before.total_tokens - after.removed_tokens);
        assert!(after.prompt_tokens > after.removed_tokens - empty);
    }
    let (streamed, _) = converse(&chat(&model, Mode::Stream), &requests);
    let hashes = |reports: &[TurnReport]| -> Vec<_> {
        reports.iter().map(|r| r.logits_sha256.clone()).collect()
    };
    assert_eq!(hashes(&streamed), hashes(&expected));
}

#[test]
fn raw_prompts_go_on_where_the_text_ends() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let config = RunConfig { ctx_tokens: 64, ..common::config(&model, Mode::Stream) };
    let mut texts = Texts::default();
    let mut engine = Engine::open(&config, &options(), vec![&mut texts]).unwrap();
    let mut session = engine.session();
    let first = ask(&mut session, &request("1", &common::prompt(7))).unwrap();
    assert_eq!(first.total_tokens, 15);
    let second = ask(&mut session, &request("2", "%&")).unwrap();
    assert_eq!((second.prompt_tokens, second.reused_tokens, second.total_tokens), (2, 15, 25));
    // As many tokens as fit.
    let third = ask(&mut session, &Request { n_predict: 100, ..request("3", "()") }).unwrap();
    assert_eq!((third.finish, third.tokens, third.total_tokens), (Finish::Context, 37, 64));
    let error = ask(&mut session, &request("4", "*")).unwrap_err();
    let EngineError::Request(message) = &error else { panic!("{error}") };
    assert!(message.contains("65 tokens") && message.contains("holds 64"), "{message}");
    // A rejected request changed nothing; a new conversation has room.
    let fifth = Request { clear: true, ..request("5", &common::prompt(7)) };
    assert_eq!(ask(&mut session, &fifth).unwrap().logits_sha256, first.logits_sha256);
    let error = ask(&mut session, &request("6", "")).unwrap_err().to_string();
    assert!(error.contains("prompt is empty"), "{error}");
    let end = engine.close().unwrap();
    assert_eq!((end.outcome, end.tokens), (Outcome::Complete, 8 + 8 + 37 + 8));
    assert_eq!(texts.0, [&first.text, &second.text, &third.text, &first.text].map(String::clone));
}

#[test]
fn a_callback_ends_an_answer_and_keeps_it() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let mut engine = Engine::open(&chat(&model, Mode::Stream), &options(), vec![]).unwrap();
    let mut session = engine.session();
    let mut text = String::new();
    let report = session.ask(&request("1", "Hello"), &mut |token| {
        text += &token.delta.text;
        assert!(token.cost.wall_ns > 0);
        if token.step == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let report = report.unwrap();
    assert_eq!((report.tokens, report.finish), (3, Finish::Callback));
    assert_eq!(report.text, text);
    assert_eq!(session.history().len(), 2);
    assert_eq!(
        ask(&mut session, &request("2", "And?")).unwrap().reused_tokens,
        report.total_tokens
    );
}

/// Cancels when so many records of a kind came.
struct CancelAt {
    stop: Arc<AtomicUsize>,
    wanted: fn(&Record) -> bool,
    records: Vec<Record>,
}

impl RecordSink for CancelAt {
    fn record(&mut self, record: &Record) -> Result<(), EngineError> {
        if (self.wanted)(record) {
            let _ = self.stop.compare_exchange(
                0,
                bmoe_engine::error::CANCEL,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
        }
        self.records.push(record.clone());
        Ok(())
    }
}

#[test]
fn a_cancelled_answer_leaves_the_conversation_as_it_was() {
    let _place = common::place(1);
    let folder = common::folder();
    for arch in ["qwen3moe", "gemma4"] {
        let model = common::model(folder.path(), &common::tiny(arch), arch, None);
        let requests = [request("1", "Hello"), request("3", "And?")];
        // With a temperature the random numbers, too, go on as if nothing had been.
        for (mode, cache_mib, temperature) in [
            (Mode::Resident, 0, 0.0),
            (Mode::Stream, 0, 0.0),
            (Mode::Stream, 1, 0.0),
            (Mode::Stream, 1, 0.9),
        ] {
            let config = RunConfig {
                cache_mib: CacheBudget::Mib(cache_mib),
                sampling: Sampling { temperature, seed: 3, ..Sampling::default() },
                ..chat(&model, mode)
            };
            let (expected, _) = converse(&config, &requests);
            let options = options();
            let mut sink = CancelAt {
                stop: Arc::clone(&options.stop),
                wanted: |r| matches!(r, Record::Token(t) if t.position > 80 && t.step == 4),
                records: Vec::new(),
            };
            let mut engine = Engine::open(&config, &options, vec![&mut sink]).unwrap();
            let mut session = engine.session();
            let first = ask(&mut session, &requests[0]).unwrap();
            let long = Request { n_predict: 200, ..request("2", &common::prompt(90)) };
            let cancelled = ask(&mut session, &long).unwrap();
            assert_eq!((cancelled.finish, cancelled.tokens), (Finish::Cancelled, 4));
            assert_eq!(cancelled.total_tokens, first.total_tokens);
            assert_eq!(session.history().len(), 2);
            let third = ask(&mut session, &requests[1]).unwrap();
            assert_eq!(third.logits_sha256, expected[1].logits_sha256, "{arch}, {mode}");
            assert_eq!(third.text, expected[1].text, "{arch}, {mode}, temperature {temperature}");
            assert_eq!(third.reused_tokens, expected[1].reused_tokens);
            engine.close().unwrap();
        }
    }
}

/// Wherever in a prompt or a token a cancel comes, what follows is right.
#[test]
fn a_cancel_may_come_at_any_moment() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = common::model(folder.path(), &common::tiny("qwen3moe"), "m", None);
    let requests = [request("1", "Hello"), request("3", "And?")];
    // The long prompt's events fit into memory, or they come in rounds.
    for (cache_mib, overlap) in [(64, true), (1, true), (1, false)] {
        let cache_mib = CacheBudget::Mib(cache_mib);
        let config =
            RunConfig { cache_mib, overlap, ubatch_tokens: 32, ..chat(&model, Mode::Stream) };
        let (expected, _) = converse(&config, &requests);
        let mut records = common::Records::default();
        let mut engine = Engine::open(&config, &options(), vec![&mut records]).unwrap();
        let canceller = engine.canceller();
        let mut session = engine.session();
        ask(&mut session, &requests[0]).unwrap();
        let long = Request { n_predict: 20, ..request("2", &common::prompt(300)) };
        let mut before_the_first_token = 0;
        for attempt in 0..12u64 {
            let canceller = canceller.clone();
            let delay = std::time::Duration::from_micros(700 * attempt * attempt);
            // The first one comes before the request.
            if attempt == 0 {
                canceller.cancel();
            }
            let thread = std::thread::spawn(move || {
                std::thread::sleep(delay);
                canceller.cancel();
            });
            let report = ask(&mut session, &long).unwrap();
            thread.join().unwrap();
            session.engine().canceller().clear();
            if !report.cancelled() {
                // The machine was too fast for the delay.
                break;
            }
            assert_eq!(report.total_tokens, expected[0].total_tokens);
            before_the_first_token += u32::from(report.prompt_tokens == 0);
        }
        assert!(before_the_first_token > 0);
        let third = Request { clear: true, ..requests[0].clone() };
        assert_eq!(ask(&mut session, &third).unwrap().logits_sha256, expected[0].logits_sha256);
        let fourth = ask(&mut session, &requests[1]).unwrap();
        assert_eq!(fourth.logits_sha256, expected[1].logits_sha256);
        engine.close().unwrap();
        // The cancelled prompt did not run to its end.
        let ubatches: std::collections::BTreeSet<u32> =
            records.routes().iter().filter(|r| r.turn == 1).map(|r| r.ubatch).collect();
        assert!(ubatches.len() < 300 / 32, "{ubatches:?}");
    }
}

/// A running state can't be cut: it is restored from copies, and what lies behind them is computed again.
#[test]
fn models_with_a_running_state_go_back_to_checkpoints() {
    let _place = common::place(1);
    let folder = common::folder();
    for arch in ["qwen3next", "qwen35moe", "lfm2moe", "glm5-next"] {
        let model = common::model(folder.path(), &common::tiny(arch), arch, None);
        // Nothing is rewritten: the state goes on.
        let requests = [request("1", "Hello"), request("2", "And?"), request("3", "So?")];
        let (plain, _) = converse(&chat(&model, Mode::Resident), &requests);
        for report in &plain[1..] {
            assert_eq!((report.prefix, report.removed_tokens), (Prefix::Kept, 0), "{arch}");
        }
        // A cancelled request is taken back to where it began.
        for mode in [Mode::Resident, Mode::Stream] {
            let config = RunConfig { cache_mib: CacheBudget::Mib(1), ..chat(&model, mode) };
            let options = options();
            let mut sink = CancelAt {
                stop: Arc::clone(&options.stop),
                wanted: |r| matches!(r, Record::Token(t) if t.position > 80 && t.step == 4),
                records: Vec::new(),
            };
            let mut engine = Engine::open(&config, &options, vec![&mut sink]).unwrap();
            let canceller = engine.canceller();
            let mut session = engine.session();
            let first = ask(&mut session, &requests[0]).unwrap();
            assert_eq!(first.logits_sha256, plain[0].logits_sha256, "{arch}, {mode}");
            let long = Request { n_predict: 200, ..request("x", &common::prompt(90)) };
            let cancelled = ask(&mut session, &long).unwrap();
            assert_eq!((cancelled.finish, cancelled.tokens), (Finish::Cancelled, 4));
            assert_eq!(cancelled.total_tokens, first.total_tokens);
            canceller.cancel();
            assert!(ask(&mut session, &long).unwrap().cancelled());
            let second = ask(&mut session, &requests[1]).unwrap();
            assert_eq!(second.logits_sha256, plain[1].logits_sha256, "{arch}, {mode}");
            assert_eq!(second.prefix, Prefix::Kept);
            engine.close().unwrap();
        }

        // Answers behind an empty block of thoughts stand without it in later prompts.
        common::set_template(&model, common::THINKING);
        let requests = requests.map(|r| Request { think: Think::Off, ..r });
        let (resident, _) = converse(&chat(&model, Mode::Resident), &requests);
        let config = RunConfig { cache_mib: CacheBudget::Mib(1), ..chat(&model, Mode::Stream) };
        let (streamed, _) = converse(&config, &requests);
        for (streamed, resident) in streamed.iter().zip(&resident) {
            assert_eq!(streamed.logits_sha256, resident.logits_sha256, "{arch}");
        }
        // A copy was made where the prompt ends and the answer was asked for: from there on, the last answer is
        // computed again.
        for (before, after) in resident.iter().zip(&resident[1..]) {
            assert_eq!(after.prefix, Prefix::Checkpoint, "{arch}");
            assert!(after.reused_tokens > before.reused_tokens, "{arch}");
            assert_eq!(after.reused_tokens, before.total_tokens - after.removed_tokens);
            assert!(after.prompt_tokens > before.tokens);
        }
    }
}
