//! What keys and the mouse do, one by one.

use std::time::Duration;

use bmoe::view::app::App;
use bmoe::view::screens::ScreenId;
use bmoe::view::world::{Mode, World};
use ratatui::crossterm::event::{
    Event, KeyCode, KeyCode::Char, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use crate::fixed::{app, matrix, press, replayed, run, shown, step};

fn tokens(app: &App) -> usize {
    app.world().shown_tokens()
}

#[test]
fn steps_and_seeks_hold_the_view_where_they_go() {
    let mut app = app(replayed(100));
    for (key, at) in [
        (Char('g'), 0),
        (Char('l'), 1),
        (KeyCode::Right, 2),
        (Char('h'), 1),
        (KeyCode::Left, 0),
        (Char('h'), 0),
        (Char(']'), 5),
        (Char(']'), 10),
        (Char('['), 5),
        (KeyCode::End, 100),
        (Char('l'), 100),
        (KeyCode::Home, 0),
    ] {
        press(&mut app, &[key]);
        assert_eq!(tokens(&app), at, "{key:?}");
        app.tick(Duration::from_secs(5));
        assert_eq!(tokens(&app), at, "{key:?}: time goes by");
    }
}

#[test]
fn a_replay_takes_the_time_that_the_run_took_times_the_speed() {
    let mut app = app(replayed(100));
    let ends = app.world().run().unwrap().ends_ns().to_vec();
    press(&mut app, &[Char('g'), Char(' ')]);
    app.tick(Duration::from_nanos(ends[9]));
    assert_eq!(tokens(&app), 10);
    press(&mut app, &[Char('+'), Char('+')]);
    app.tick(Duration::from_nanos((ends[49] - ends[9]).div_ceil(4)));
    assert_eq!(tokens(&app), 50);
    press(&mut app, &[Char('-'); 9]);
    assert_eq!(app.world().playhead.speed(), 0.25);
    press(&mut app, &[Char('+'); 9]);
    assert_eq!(app.world().playhead.speed(), 16.0);
    press(&mut app, &[Char(' ')]);
    app.tick(Duration::from_secs(60));
    assert_eq!(tokens(&app), 50);
    // At its end it stays, and the next space plays it again.
    press(&mut app, &[Char(' ')]);
    app.tick(Duration::from_secs(60));
    assert_eq!((tokens(&app), app.world().playhead.moves()), (100, false));
    press(&mut app, &[Char(' ')]);
    assert_eq!((tokens(&app), app.world().playhead.moves()), (0, true));
}

fn live() -> App {
    let mut world = World::default();
    world.mode = Mode::Live;
    let mut going = run(10);
    going.over = false;
    world.add_run(going);
    app(world)
}

#[test]
fn space_holds_the_view_and_never_the_run() {
    let mut app = live();
    assert_eq!(tokens(&app), 10);
    press(&mut app, &[Char(' ')]);
    (0..5).for_each(|n| app.world_mut().runs[0].push(step(n)));
    app.tick(Duration::from_secs(1));
    assert_eq!((tokens(&app), app.world().run().unwrap().steps().len()), (10, 15));
    press(&mut app, &[Char(' ')]);
    assert_eq!((tokens(&app), app.world().playhead.follows()), (15, true));
    // Whoever goes back stays there until the end is asked for.
    press(&mut app, &[Char('h')]);
    app.world_mut().runs[0].push(step(1));
    assert_eq!(tokens(&app), 14);
    press(&mut app, &[Char('G')]);
    assert_eq!((tokens(&app), app.world().playhead.follows()), (16, true));
}

#[test]
fn a_run_that_starts_is_shown_unless_another_one_was_chosen() {
    let mut app = live();
    app.world_mut().add_run(run(3));
    assert_eq!(app.world().selected(), 1);
    press(&mut app, &[Char('p')]);
    app.world_mut().add_run(run(4));
    assert_eq!(app.world().selected(), 0);
    press(&mut app, &[Char('n'), Char('n'), Char('n')]);
    assert_eq!(app.world().selected(), 2);
}

#[test]
fn screens_change_by_number_by_tab_and_by_mouse() {
    let mut app = app(matrix());
    for (key, screen) in [
        (Char('2'), ScreenId::Matrix),
        (KeyCode::Tab, ScreenId::Experts),
        (KeyCode::BackTab, ScreenId::Matrix),
        (Char('1'), ScreenId::Run),
        // There is no such screen.
        (Char('5'), ScreenId::Run),
    ] {
        press(&mut app, &[key]);
        assert_eq!(app.screen(), screen, "{key:?}");
    }
    let text = shown(&mut app, 80, 24);
    let column = text.lines().next().unwrap().find("Matrix").unwrap() as u16;
    click(&mut app, column, 0);
    assert_eq!(app.screen(), ScreenId::Matrix);
}

fn click(app: &mut App, column: u16, row: u16) {
    let kind = MouseEventKind::Down(MouseButton::Left);
    app.on_event(&Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
}

#[test]
fn a_click_on_the_bar_goes_there() {
    let mut app = app(replayed(100));
    shown(&mut app, 80, 24);
    click(&mut app, 8, 22);
    assert_eq!(tokens(&app), 0);
    click(&mut app, 25, 22);
    assert!((30..70).contains(&tokens(&app)), "{}", tokens(&app));
}

#[test]
fn help_takes_keys_until_it_is_closed() {
    let mut app = app(replayed(10));
    press(&mut app, &[Char('g'), Char('?'), Char('l')]);
    assert_eq!(tokens(&app), 0);
    press(&mut app, &[KeyCode::Esc, Char('l')]);
    assert_eq!(tokens(&app), 1);
    press(&mut app, &[Char('?')]);
    app.on_event(&Event::Key(KeyEvent::new(Char('c'), KeyModifiers::CONTROL)));
    assert!(app.is_left());
}

#[test]
fn the_matrix_cursor_stays_inside_and_enter_opens_twice() {
    let mut app = app(matrix());
    press(&mut app, &[Char('2'), Char('k'), Char('j'), KeyCode::PageDown]);
    let at_end = shown(&mut app, 80, 24);
    press(&mut app, &[Char('j')]);
    assert_eq!(shown(&mut app, 80, 24), at_end);
    press(&mut app, &[Char('g'), KeyCode::Enter]);
    assert!(shown(&mut app, 80, 24).contains("run 1 attempt 1  valid"));
    press(&mut app, &[KeyCode::Esc]);
    assert!(!shown(&mut app, 80, 24).contains("run 1 attempt 1"));
    // The fixed run belongs to no cell: enter has nothing to show, and says nothing wrong.
    press(&mut app, &[KeyCode::Enter, KeyCode::Enter]);
    assert_eq!(app.screen(), ScreenId::Matrix);
    let id = app.world().cells[0].id.clone();
    app.world_mut().runs[0].key.cell = id;
    press(&mut app, &[KeyCode::Enter]);
    assert_eq!(app.screen(), ScreenId::Run);
}
