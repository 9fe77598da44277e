//! Every screen at three sizes.

use bmoe::view::world::World;
use insta::assert_snapshot;
use ratatui::crossterm::event::KeyCode;

use crate::fixed::{app, matrix, press, replayed, run, shown};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

#[test]
fn run_at_three_sizes() {
    for (width, height) in SIZES {
        let text = shown(&mut app(replayed(64)), width, height);
        assert_snapshot!(format!("run_{width}x{height}"), text);
    }
}

#[test]
fn matrix_at_three_sizes() {
    for (width, height) in SIZES {
        let mut app = app(matrix());
        press(&mut app, &[KeyCode::Char('2'), KeyCode::Down, KeyCode::Down, KeyCode::Enter]);
        assert_snapshot!(format!("matrix_{width}x{height}"), shown(&mut app, width, height));
    }
}

#[test]
fn help_is_drawn_from_the_declaration() {
    let mut app = app(replayed(3));
    press(&mut app, &[KeyCode::Char('?')]);
    assert_snapshot!(shown(&mut app, 80, 24));
}

#[test]
fn what_is_not_measured_is_a_dash_and_a_live_run_says_so() {
    let mut world = World::default();
    world.mode = bmoe::view::world::Mode::Live;
    let mut mapped = run(0);
    mapped.over = false;
    (mapped.mode, mapped.overlap, mapped.lanes) = ("mmap".into(), false, None);
    (mapped.policy, mapped.budgets) = (None, Vec::new());
    for wall_ns in [20_000_000, 40_000_000] {
        let mut step = bmoe::view::world::Step::default();
        (step.wall_ns, step.compute_ns) = (Some(wall_ns), Some(wall_ns));
        mapped.push(step);
    }
    world.add_run(mapped);
    assert_snapshot!(shown(&mut app(world), 80, 24));
}

#[test]
fn below_the_smallest_size_the_viewer_says_so_and_still_leaves() {
    let mut app = app(replayed(3));
    for (width, height) in [(79, 24), (80, 23), (1, 1)] {
        let text = shown(&mut app, width, height);
        assert!(width == 1 || text.contains("too small"), "{text}");
    }
    press(&mut app, &[KeyCode::Char('q')]);
    assert!(app.is_left());
}
