//! The screen `Chat`, its keys, and its source over a script in the engine's place.

use std::cell::RefCell;
use std::fs;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bmoe::chat::connection::Connection;
use bmoe::chat::talk::Talk;
use bmoe::chat::typed::Settings;
use bmoe::view::app::App;
use bmoe::view::screens::chat::{Asked, ChatScreen, ChatState, Entry, SharedChat};
use bmoe::view::screens::compare::CompareScreen;
use bmoe::view::screens::run::RunScreen;
use bmoe::view::screens::{Screen, ScreenId};
use bmoe::view::source::chat::ChatSource;
use bmoe::view::source::{Source, Still};
use bmoe::view::theme::{Ground, Theme};
use bmoe::view::world::World;
use bmoe_trace::config::Think;
use bmoe_trace::line::{Done, ErrorLine, Line, Prefill, Progress, Ready};
use insta::assert_snapshot;
use ratatui::crossterm::event::{
    Event, KeyCode, KeyCode::Char, KeyEvent, KeyModifiers, MouseEvent, MouseEventKind,
};

use crate::common::session;
use crate::fixed::{press, run, shown};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];
const SETTINGS: Settings = Settings { n_predict: 200, think: Think::Default, thoughts: true };

fn ready() -> Ready {
    Ready {
        load_s: 1.5,
        arch: "qwen3moe".into(),
        n_ctx: 4096,
        n_expert_used: 8,
        think_ctl: "template".into(),
    }
}

fn progress(step: u32, reasoning: &str, text: &str, reset: u8) -> Progress {
    Progress {
        step,
        steps: 200,
        wall_ms: 20.0,
        io_ms: 6.0,
        compute_ms: 15.0,
        mgmt_ms: 0.5,
        stall_ms: 4.0,
        read_mb: 3.5,
        cache_hit_pct: 87.5,
        majflt: 0,
        cpu_ms: 30.0,
        dense_resident_frac: 1.0,
        delta_reasoning: reasoning.into(),
        delta_text: text.into(),
        reset,
        io_wait_ms: 4.0,
        lane_busy_ms: 6.0,
        other_ms: 0.5,
    }
}

fn done(finish: &str) -> Box<Done> {
    Box::new(Done {
        finish: finish.into(),
        n_past: 321,
        n_prompt: 14,
        n_reused: 90,
        cache_resident_mib: 300.0,
        cache_budget_mib: 345.0,
        ..Done::default()
    })
}

fn chat_of(state: ChatState, world: World) -> (SharedChat, App) {
    let chat: SharedChat = Rc::new(RefCell::new(state));
    let app = viewer(&chat, world, Box::new(Still));
    (chat, app)
}

fn viewer(chat: &SharedChat, world: World, source: Box<dyn Source>) -> App {
    let screens: Vec<Box<dyn Screen>> = vec![
        Box::new(ChatScreen::new(Rc::clone(chat))),
        Box::new(RunScreen::default()),
        Box::new(CompareScreen::default()),
    ];
    App::new(world, source, screens, Theme::new(Ground::Plain))
}

/// A chat with a model that is loaded.
fn loaded() -> (SharedChat, App) {
    let mut state = ChatState::new(SETTINGS);
    state.ready = Some(ready());
    chat_of(state, World::default())
}

fn write(app: &mut App, text: &str) {
    text.chars().for_each(|letter| press(app, &[Char(letter)]));
}

fn control(app: &mut App, letter: char) {
    app.on_event(&Event::Key(KeyEvent::new(Char(letter), KeyModifiers::CONTROL)));
}

#[test]
fn chat_at_three_sizes() {
    for (width, height) in SIZES {
        let mut state = ChatState::new(SETTINGS);
        state.ready = Some(ready());
        state.typed(
            "What is a lighthouse keeper called in Japanese, and what does one look after? 🗼",
        );
        state.progress(&progress(
            1,
            "A lighthouse is 灯台 (とうだい), and one who keeps it is a 灯台守.",
            "",
            0,
        ));
        state.progress(&progress(
            2,
            "",
            "灯台守 (とうだいもり). They look after the lamp 💡, the lens and the 霧笛.\n\n",
            0,
        ));
        state.progress(&progress(3, "", "1. The lamp\n2. The lens\n3. The fog horn", 0));
        state.done(done("stop"));
        state.typed("/tokens 64");
        state.typed("Go on.");
        state.progress(&progress(1, "They want more", "", 0));
        let mut world = World::default();
        world.name = "models/qwen3.gguf".into();
        let mut answer = run(40);
        answer.over = false;
        world.add_run(answer);
        let (_, mut app) = chat_of(state, world);
        write(&mut app, "And 夜 👩‍🚀?");
        assert_snapshot!(format!("chat_{width}x{height}"), shown(&mut app, width, height));
    }
}

#[test]
fn a_chat_before_anything_was_said_and_its_help() {
    let (chat, mut app) = chat_of(ChatState::new(SETTINGS), World::default());
    let text = shown(&mut app, 80, 24);
    assert!(text.contains("the model is being loaded"), "{text}");
    write(&mut app, "Hello");
    press(&mut app, &[KeyCode::Enter]);
    assert!(chat.borrow().asked.is_empty());
    assert!(shown(&mut app, 80, 24).contains("the model is still being loaded"));
    // What was typed is not lost.
    chat.borrow_mut().ready = Some(ready());
    press(&mut app, &[KeyCode::Enter]);
    assert_eq!(chat.borrow().asked, [Asked::Answer("Hello".into(), SETTINGS)]);
    press(&mut app, &[KeyCode::F(1)]);
    assert_snapshot!(shown(&mut app, 80, 24));
    press(&mut app, &[Char('q'), KeyCode::Esc]);
    assert!(!app.is_left() && !shown(&mut app, 80, 24).contains("Chat: keys"));
}

#[test]
fn letters_are_text_and_commands_change_the_next_message() {
    let (chat, mut app) = loaded();
    write(&mut app, "q? 1 jk");
    assert!(shown(&mut app, 80, 24).contains("│q? 1 jk "));
    press(&mut app, &[KeyCode::Esc]);
    assert!(!shown(&mut app, 80, 24).contains("q? 1 jk"));
    for command in ["/think off", "/tokens 9", "/thoughts off", "/dance"] {
        write(&mut app, command);
        press(&mut app, &[KeyCode::Enter]);
    }
    let now = Settings { n_predict: 9, think: Think::Off, thoughts: false };
    assert_eq!(chat.borrow().settings, now);
    assert!(shown(&mut app, 80, 24).contains("/dance is no command"));
    write(&mut app, "Hi");
    press(&mut app, &[KeyCode::Enter]);
    let off = Settings { think: Think::Off, ..SETTINGS };
    let asked = std::mem::take(&mut chat.borrow_mut().asked);
    assert_eq!(asked, [Asked::Check(off), Asked::Answer("Hi".into(), now)]);
    // Thoughts that are not shown are said to be there.
    chat.borrow_mut().progress(&progress(1, "secret", "", 0));
    let text = shown(&mut app, 80, 24);
    assert!(text.contains("┊ thoughts of 6 letters") && !text.contains("secret"), "{text}");
    // One answer at a time; nothing typed is lost.
    write(&mut app, "More");
    press(&mut app, &[KeyCode::Enter]);
    let text = shown(&mut app, 80, 24);
    assert!(text.contains("an answer is being written") && text.contains("│More "), "{text}");
    assert!(chat.borrow().asked.is_empty());
    chat.borrow_mut().done(done("length"));
    press(&mut app, &[KeyCode::Enter, KeyCode::Up]);
    assert!(shown(&mut app, 80, 24).contains("│More "), "the last message comes back");
    control(&mut app, 'u');
    write(&mut app, "/clear");
    chat.borrow_mut().done(done("stop"));
    press(&mut app, &[KeyCode::Enter]);
    assert_eq!(chat.borrow().entries.len(), 1);
    write(&mut app, "/quit");
    press(&mut app, &[KeyCode::Enter]);
    assert!(app.is_left() && !chat.borrow().interrupted);
}

#[test]
fn an_answer_is_ended_once_and_the_chat_left_by_two_more() {
    let (chat, mut app) = loaded();
    write(&mut app, "long");
    press(&mut app, &[KeyCode::Enter, KeyCode::Esc, KeyCode::Esc]);
    let asked = std::mem::take(&mut chat.borrow_mut().asked);
    assert_eq!(asked, [Asked::Answer("long".into(), SETTINGS), Asked::Cancel]);
    assert!(shown(&mut app, 80, 24).contains("ending the answer"));
    chat.borrow_mut().done(done("cancelled"));
    assert!(shown(&mut app, 120, 40).contains("cancelled: the conversation is as it was before"));
    write(&mut app, "again");
    press(&mut app, &[KeyCode::Enter]);
    control(&mut app, 'c');
    assert_eq!(chat.borrow().asked.last(), Some(&Asked::Cancel));
    chat.borrow_mut().done(done("cancelled"));
    control(&mut app, 'c');
    assert!(!app.is_left() && shown(&mut app, 80, 24).contains("Ctrl-C again leaves"));
    // Whoever types in between does not want to leave.
    write(&mut app, "a");
    control(&mut app, 'c');
    assert!(!app.is_left());
    control(&mut app, 'c');
    assert!(app.is_left() && chat.borrow().interrupted);
    let (chat, mut app) = loaded();
    write(&mut app, "x");
    control(&mut app, 'd');
    assert!(!app.is_left());
    press(&mut app, &[KeyCode::Backspace]);
    control(&mut app, 'd');
    assert!(app.is_left() && !chat.borrow().interrupted);
}

#[test]
fn what_looked_like_an_answer_becomes_thoughts() {
    let (chat, mut app) = loaded();
    let mut state = chat.borrow_mut();
    state.typed("Hi");
    state.progress(&progress(1, "", "hmm", 0));
    state.progress(&progress(2, "hmm", "Yes", 1));
    state.progress(&progress(3, "", ".", 0));
    let answer = state.entries[1].clone();
    drop(state);
    let (thoughts, text) = ("hmm".to_owned(), "Yes.".to_owned());
    assert_eq!(answer, Entry::Answer { thoughts, text, over: false });
    let text = shown(&mut app, 80, 24);
    assert!(text.contains("┊ hmm") && text.contains("  Yes."), "{text}");
}

#[test]
fn long_conversations_are_scrolled() {
    let (chat, mut app) = loaded();
    for number in 0..40 {
        let mut state = chat.borrow_mut();
        state.typed(&format!("question {number}"));
        state.progress(&progress(1, "", "answer\n", 0));
        state.done(done("stop"));
    }
    let text = shown(&mut app, 80, 24);
    assert!(text.contains("question 39") && !text.contains("question 20"), "{text}");
    press(&mut app, &[KeyCode::PageUp; 5]);
    let text = shown(&mut app, 80, 24);
    assert!(text.contains("40 lines below") && !text.contains("question 39"), "{text}");
    let wheel = |kind| MouseEvent { kind, column: 3, row: 5, modifiers: KeyModifiers::NONE };
    app.on_event(&Event::Mouse(wheel(MouseEventKind::ScrollDown)));
    assert!(shown(&mut app, 80, 24).contains("37 lines below"));
    // Beyond the beginning there is nothing.
    press(&mut app, &[KeyCode::PageUp; 60]);
    assert!(shown(&mut app, 80, 24).contains("question 0"));
    press(&mut app, &[KeyCode::Esc]);
    assert!(shown(&mut app, 80, 24).contains("question 39"));
}

struct Place {
    folder: tempfile::TempDir,
    chat: SharedChat,
    app: App,
}

impl Place {
    fn new(refused: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let error = |fatal, msg: &str| {
            Line::Error(ErrorLine { id: serde_json::Value::Null, fatal, msg: msg.into() })
        };
        let prefill = Prefill { n_prompt: 14, prefill_s: 0.2, ttft_s: 0.3 };
        let lines = vec![
            ("ready", vec![Line::Ready(ready())]),
            (
                "first",
                vec![
                    Line::Prefill(prefill),
                    Line::Progress(progress(1, "hm 灯", "", 0)),
                    Line::Progress(progress(2, "", "Yes 🗼.", 0)),
                ],
            ),
            ("done", vec![Line::Done(done("stop"))]),
            ("cancelled", vec![Line::Done(done("cancelled"))]),
            ("rejected", vec![error(false, "the prompt is too long")]),
            ("broken", vec![error(true, "a read failed")]),
            ("refused", vec![error(true, "m.gguf is no model")]),
        ];
        let engine = session::write(folder.path(), lines);
        let model = if refused { "none.gguf" } else { "m.gguf" };
        let mut command = Command::new(engine);
        command.args(["session", "--ctx", "64", "--model", model]);
        let chat: SharedChat = Rc::new(RefCell::new(ChatState::new(SETTINGS)));
        let talk = Talk::new(Connection::start(&mut command).unwrap(), SETTINGS);
        let (source, world) = ChatSource::new(talk, Rc::clone(&chat), "m.gguf".into());
        let app = viewer(&chat, world, Box::new(source));
        Self { folder, chat, app }
    }

    /// Goes on until something holds; a minute is for the busiest of machines.
    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !holds(self) {
            assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
            self.app.tick(Duration::from_millis(5));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn say(&mut self, text: &str) {
        write(&mut self.app, text);
        press(&mut self.app, &[KeyCode::Enter]);
    }
}

#[test]
fn each_answer_is_a_run_with_its_figures() {
    let mut place = Place::new(false);
    place.until("loaded", |p| p.chat.borrow().ready.is_some());
    place.say("Hello");
    place.until("answered", |p| p.chat.borrow().last.is_some());
    let text = shown(&mut place.app, 80, 24);
    assert!(text.contains("┊ hm 灯") && text.contains("  Yes 🗼."), "{text}");
    assert!(text.contains("tok/s           50.0    50.0"), "{text}");
    assert!(text.contains("hit %, all              87.5"), "{text}");
    assert!(text.contains("context          321 of 4096"), "{text}");
    place.say("long");
    place.until("text", |p| p.app.world().runs.get(1).is_some_and(|run| run.steps().len() == 2));
    press(&mut place.app, &[KeyCode::Esc]);
    place.until("cancelled", |p| !p.chat.borrow().answering());
    place.say("reject");
    place.until("refused", |p| !p.chat.borrow().answering());
    assert!(shown(&mut place.app, 80, 24).contains("! the prompt is too long"));
    assert_eq!(place.app.world().runs.len(), 3);
    // The other screens have the same answers.
    press(&mut place.app, &[KeyCode::Tab]);
    assert_eq!(place.app.screen(), ScreenId::Run);
    press(&mut place.app, &[Char('p')]);
    assert!(shown(&mut place.app, 80, 24).contains("answer 2"));
    press(&mut place.app, &[Char('5')]);
    assert_eq!(place.app.screen(), ScreenId::Chat);
    drop(place.app);
    let asked = fs::read_to_string(place.folder.path().join("asked")).unwrap();
    let asked: Vec<&str> = asked.lines().collect();
    assert_eq!(asked.len(), 5);
    assert!(asked[0].contains(r#""id":1,"prompt":"Hello","n_predict":200"#), "{}", asked[0]);
    assert_eq!((asked[2], asked[4]), (r#"{"cmd":"cancel"}"#, r#"{"cmd":"close"}"#));
}

#[test]
fn an_engine_that_fails_is_told_and_one_that_does_not_load_ends_the_chat() {
    let mut place = Place::new(false);
    place.until("loaded", |p| p.chat.borrow().ready.is_some());
    place.say("break");
    place.until("ended", |p| p.chat.borrow().end.is_some());
    let text = shown(&mut place.app, 80, 24);
    assert!(text.contains("! a read failed") && text.contains("the engine has ended"), "{text}");
    assert!(!place.app.is_left());
    place.say("Hello?");
    assert!(shown(&mut place.app, 80, 24).contains("/quit leaves"));
    control(&mut place.app, 'c');
    assert!(place.app.is_left());
    let mut place = Place::new(true);
    place.until("left", |p| p.app.is_left());
    assert_eq!(place.chat.borrow().end.as_ref().unwrap().to_string(), "m.gguf is no model");
}
