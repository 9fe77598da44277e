//! The screen `Experts`.

use bmoe::view::app::App;
use bmoe::view::screens::ScreenId;
use bmoe::view::theme::{Ground, Theme};
use bmoe::view::world::{Mode, RouteLog, RunData, World};
use bmoe_analysis::routes::{RouteEvent, RouteLayer, RouteTrace};
use bmoe_trace::record::{Phase, Residency};
use insta::assert_snapshot;
use ratatui::crossterm::event::{
    Event, KeyCode, KeyCode::Char, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use crate::fixed::{app, app_with, press, run, shown};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];
const TOP_K: u32 = 4;

/// A run with the routes of a prompt token and of its tokens: some experts are used more than others, others by each
/// token anew.
pub(crate) fn routed(tokens: u64, layers: u32, n_expert: u32) -> RunData {
    let mut run = run(tokens);
    let layer = |index| RouteLayer { index, expert_bytes: 2 << 20 };
    let empty = RouteTrace::new(
        "fixed".into(),
        "qwen3moe".into(),
        (0..layers).map(layer).collect(),
        n_expert,
    );
    run.routes = RouteLog::new(empty);
    run.budgets.clear();
    // Room for one and a half tokens' experts.
    run.cache_budget_bytes = Some(u64::from(layers * TOP_K) * (3 << 20));
    for token in 0..=tokens as u32 {
        for layer in 0..layers as usize {
            let mix = |slot: u32| {
                let seed = u64::from(token + 1) * 2_654_435
                    + u64::from(slot) * 40_503
                    + layer as u64 * 9_176;
                let seed = seed as u32;
                seed.wrapping_mul(seed ^ 0x9e37).rotate_left(11)
            };
            let of = |slot: u32| match slot {
                0 => layer as u32 * 5,
                1 => mix(token / 9) % 16 + layer as u32,
                slot => mix(slot),
            };
            let mut experts: Vec<u16> = Vec::new();
            for slot in 0..TOP_K {
                let mut expert = (of(slot) % n_expert) as u16;
                while experts.contains(&expert) {
                    expert = (expert + 1) % n_expert as u16;
                }
                experts.push(expert);
            }
            let event = RouteEvent {
                phase: if token == 0 { Phase::Prefill } else { Phase::Decode },
                layer,
                positions: &[token],
                experts: &experts,
                ..RouteEvent::default()
            };
            run.routes.push(&event).unwrap();
        }
    }
    run
}

/// A viewer that shows the experts after the last token.
fn experts(run: RunData) -> App {
    let mut world = World::default();
    world.name = "runs/fixed".into();
    world.add_run(run);
    world.seek(|playhead, run| playhead.to_end(run));
    let mut app = app(world);
    app.show(ScreenId::Experts);
    app
}

#[test]
fn all_of_a_large_model_at_three_sizes() {
    for (width, height) in SIZES {
        let mut app = experts(routed(64, 48, 128));
        press(&mut app, &[KeyCode::PageDown, KeyCode::Right]);
        assert_snapshot!(format!("experts_{width}x{height}"), shown(&mut app, width, height));
    }
}

#[test]
fn a_letter_for_each_expert_at_three_sizes() {
    for (width, height) in SIZES {
        let mut app = experts(routed(64, 48, 128));
        press(&mut app, &[KeyCode::PageDown, Char('m'), Char('m'), KeyCode::Enter]);
        assert_snapshot!(
            format!("experts_letters_{width}x{height}"),
            shown(&mut app, width, height)
        );
    }
}

#[test]
fn one_layer_over_time_at_three_sizes() {
    for (width, height) in SIZES {
        let mut app = experts(routed(64, 48, 128));
        press(&mut app, &[Char('e'), Char('l'), Char('j')]);
        assert_snapshot!(format!("experts_layer_{width}x{height}"), shown(&mut app, width, height));
    }
}

#[test]
fn the_cursor_stays_inside_and_its_figures_are_right() {
    let mut app = experts(routed(20, 3, 16));
    let text = shown(&mut app, 80, 24);
    // Slot 0 of layer 0 is always expert 0.
    assert!(text.contains("layer 0, expert 0: 20 of 20 tokens"), "{text}");
    assert!(text.contains("used by this token") && text.contains("2.00 MiB, in memory"), "{text}");
    press(&mut app, &[KeyCode::Left, KeyCode::Up]);
    assert!(shown(&mut app, 80, 24).contains("layer 0, expert 0"));
    press(&mut app, &[Char('j'), KeyCode::Down, KeyCode::Down, Char('l')]);
    assert!(shown(&mut app, 80, 24).contains("layer 2, expert 1"));
    press(&mut app, &[Char('l'); 40]);
    press(&mut app, &[KeyCode::PageDown]);
    assert!(shown(&mut app, 80, 24).contains("layer 2, expert 15"));
    press(&mut app, &[KeyCode::PageUp]);
    assert!(shown(&mut app, 80, 24).contains("layer 0, expert 15"));
    // In one layer's picture experts are below each other, layers beside each other.
    press(&mut app, &[Char('e'), Char('l'), Char('k')]);
    let text = shown(&mut app, 80, 24);
    assert!(
        text.contains("layer 1, expert 14") && text.contains("layer 1, tokens 1 to 20"),
        "{text}"
    );
    press(&mut app, &[KeyCode::Esc]);
    assert!(shown(&mut app, 80, 24).contains("uses in all tokens"));
    for (key, says) in [
        (Char('m'), "last 64 tokens"),
        (Char('m'), "last 8 tokens"),
        (Char('m'), "decayed"),
        (Char('m'), "all tokens"),
    ] {
        press(&mut app, &[key]);
        assert!(shown(&mut app, 80, 24).contains(&format!("uses in {says}")));
    }
}

#[test]
fn uses_fill_as_tokens_arrive_and_seeking_takes_them_back() {
    let mut app = experts(routed(20, 3, 16));
    press(&mut app, &[Char('g')]);
    let text = shown(&mut app, 80, 24);
    assert!(text.contains("0 of 0 tokens") && text.contains("most 0"), "{text}");
    press(&mut app, &[Char('.'), Char('.'), Char('.')]);
    assert!(shown(&mut app, 80, 24).contains("expert 0: 3 of 3 tokens"));
    press(&mut app, &[Char(',')]);
    assert!(shown(&mut app, 80, 24).contains("expert 0: 2 of 2 tokens"));
    press(&mut app, &[KeyCode::End]);
    assert!(shown(&mut app, 80, 24).contains("expert 0: 20 of 20 tokens"));
}

#[test]
fn a_click_moves_the_cursor() {
    let mut app = experts(routed(20, 3, 16));
    shown(&mut app, 80, 24);
    let kind = MouseEventKind::Down(MouseButton::Left);
    let (column, row) = (1 + 4 + 9, 1 + 1 + 1 + 2);
    let click = MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE };
    app.on_event(&Event::Mouse(click));
    assert!(shown(&mut app, 80, 24).contains("layer 2, expert 9"));
}

#[test]
fn what_was_measured_is_shown_and_the_replay_is_compared_with_it() {
    let mut run = routed(0, 2, 8);
    for token in 1..=4 {
        for layer in 0..2 {
            let (experts, found) = ([0, token as u16], [Residency::Hit, Residency::Miss]);
            let event = RouteEvent {
                layer,
                positions: &[token],
                experts: &experts,
                residency: &found,
                ..RouteEvent::default()
            };
            if token == 1 && layer == 0 {
                run.routes = RouteLog::new(RouteTrace::new(
                    String::new(),
                    String::new(),
                    run.routes.trace().layers.clone(),
                    8,
                ));
            }
            run.routes.push(&event).unwrap();
        }
        run.push(crate::fixed::step(u64::from(token)));
    }
    run.cache_budget_bytes = Some(8 << 20);
    let text = shown(&mut experts(run), 80, 24);
    assert!(text.contains("2 experts read now; cache 8.00 MiB of 8.00 MiB"), "{text}");
    // Only the first uses of expert 0 were hits that the replay can't know of.
    assert!(text.contains("lru replayed, the same in 87.5 % of look-ups"), "{text}");
}

#[test]
fn without_routes_and_with_one_token_it_says_what_there_is() {
    let mut none = experts(run(5));
    assert!(shown(&mut none, 80, 24).contains("No routes were recorded"));
    press(&mut none, &[Char('e'), Char('j'), Char('m'), KeyCode::Enter]);
    shown(&mut none, 200, 60);
    let mut going = run(5);
    going.over = false;
    let mut world = World::default();
    world.mode = Mode::Live;
    world.add_run(going);
    let mut live = app(world);
    live.show(ScreenId::Experts);
    assert!(shown(&mut live, 80, 24).contains("No routes yet"));
    let mut empty = app(World::default());
    empty.show(ScreenId::Experts);
    press(&mut empty, &[Char('j'), Char('e'), Char('m')]);
    assert!(shown(&mut empty, 80, 24).contains("there is no run yet"));
    let mut one = experts(routed(1, 48, 128));
    assert!(shown(&mut one, 80, 24).contains("of 1 tokens"));
    press(&mut one, &[Char('e')]);
    assert!(shown(&mut one, 80, 24).contains("tokens 1 to 1"));
}

#[test]
fn a_hundred_thousand_tokens_are_gone_through_in_pieces() {
    let mut app = experts(routed(100_000, 4, 16));
    let mut drawings = 1;
    while !shown(&mut app, 80, 24).contains("after token 100000") {
        drawings += 1;
        assert!(drawings < 10);
    }
    // Back and forth costs one drawing each.
    for to in [50_000, 99_999, 3, 77_777] {
        app.world_mut().seek(|playhead, run| playhead.seek(to, run));
        let text = shown(&mut app, 80, 24);
        assert!(text.contains(&format!("after token {to}")), "{text}");
    }
}

#[test]
fn colours_say_nothing_that_marks_do_not_say() {
    let mut world = World::default();
    world.add_run(routed(20, 3, 16));
    world.seek(|playhead, run| playhead.to_end(run));
    let mut dark = app_with(world, Theme::new(Ground::Dark));
    dark.show(ScreenId::Experts);
    let mut plain = experts(routed(20, 3, 16));
    plain.world_mut().name.clear();
    assert_eq!(shown(&mut dark, 80, 24), shown(&mut plain, 80, 24));
}
