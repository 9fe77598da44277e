//! The screen `Compare`.

use bmoe::view::app::App;
use bmoe::view::screens::ScreenId;
use bmoe::view::world::{RunData, World};
use insta::assert_snapshot;
use ratatui::crossterm::event::{KeyCode, KeyCode::Char};

use crate::fixed::{app, press, run, shown, step};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

/// A memory map: nothing is read by the engine itself, and each token takes longer.
fn mapped(tokens: u64) -> RunData {
    let mut mapped = run(0);
    (mapped.name, mapped.mode) = ("mmap".into(), "mmap".into());
    (mapped.overlap, mapped.lanes, mapped.policy) = (false, None, None);
    for index in 0..tokens {
        let mut step = step(index);
        let compute_ns = step.compute_ns.unwrap() + index % 3 * 4_000_000;
        (step.io_wait_ns, step.mgmt_ns, step.lane_busy_ns) = (None, None, None);
        (step.read_bytes, step.hits, step.misses, step.cumulative_hit_rate) =
            (None, None, None, None);
        (step.compute_ns, step.wall_ns) = (Some(compute_ns), Some(compute_ns + 150_000));
        mapped.push(step);
        mapped.write(if index == 40 { "灯台 " } else { "The " });
    }
    mapped
}

fn same_text(tokens: u64) -> RunData {
    let mut run = run(0);
    for index in 0..tokens {
        run.push(step(index + 1));
        run.write("The ");
    }
    run
}

/// The first run at its end, beside the others.
fn compared(runs: Vec<RunData>) -> App {
    let mut world = World::default();
    world.name = "runs/fixed".into();
    for run in runs {
        world.add_run(run);
    }
    world.seek(|playhead, run| playhead.to_end(run));
    let mut app = app(world);
    app.show(ScreenId::Compare);
    app
}

#[test]
fn compare_at_three_sizes() {
    for (width, height) in SIZES {
        let mut app = compared(vec![same_text(64), mapped(64)]);
        assert_snapshot!(format!("compare_{width}x{height}"), shown(&mut app, width, height));
    }
}

#[test]
fn figures_are_of_the_tokens_that_both_have() {
    let mut app = compared(vec![same_text(64), mapped(41)]);
    let text = shown(&mut app, 80, 24);
    assert!(text.contains("mean of tokens 1 to 41; B ends there"), "{text}");
    assert!(text.contains("texts differ from token 41"), "{text}");
    // The means of tokens 1 to 41, from the definition of `step`.
    let mean = (1..=41).map(|i| 12.0 + f64::from(i % 5) * 0.4).sum::<f64>() / 41.0;
    let of_b =
        (0..41).map(|i| 12.0 + f64::from(i % 5) * 0.4 + f64::from(i % 3) * 4.0).sum::<f64>() / 41.0;
    let row = format!(
        "compute, ms   {mean:>9.1}{of_b:>9.1}{:>10}{:>8.2}",
        format!("+{:.2}", of_b - mean),
        of_b / mean
    );
    assert!(text.contains(&row), "{row}\n{text}");
    // What B never measured is a dash, and so is the difference.
    assert!(text.contains("MiB read           2.98        –         –       –"), "{text}");
    press(&mut app, &[Char('g')]);
    assert!(shown(&mut app, 80, 24).contains("before the first token"));
    press(&mut app, &[KeyCode::Right, Char('l')]);
    let text = shown(&mut app, 80, 24);
    assert!(
        text.contains("mean of tokens 1 to 2") && text.contains("the same text so far"),
        "{text}"
    );
}

#[test]
fn keys_choose_the_runs_and_the_mean() {
    let mut app = compared(vec![same_text(20), mapped(20), run(10)]);
    let names = |app: &mut App| {
        let text = shown(app, 80, 24);
        let of = |mark: &str| {
            let line = text.lines().find(|l| l.starts_with(mark)).unwrap();
            line[line.find("run ").unwrap()..].chars().take(10).collect::<String>()
        };
        (of("\"A  "), of("\"B  "))
    };
    let is = |a: u32, b: u32| (format!("run {a} of 3"), format!("run {b} of 3"));
    assert_eq!(names(&mut app), is(1, 2));
    press(&mut app, &[Char('b')]);
    assert_eq!(names(&mut app), is(1, 3));
    press(&mut app, &[Char('a')]);
    assert_eq!(names(&mut app), is(2, 3));
    press(&mut app, &[Char('b')]);
    assert_eq!(names(&mut app), is(2, 1));
    press(&mut app, &[Char('a'), Char('a')]);
    // A run can be compared with itself.
    assert_eq!(names(&mut app), is(1, 1));
    press(&mut app, &[Char('n'), Char('G')]);
    assert_eq!(names(&mut app), is(2, 1));
    for says in ["tokens 13 to 20", "token 20", "tokens 1 to 20"] {
        press(&mut app, &[Char('m')]);
        assert!(shown(&mut app, 80, 24).contains(says), "{says}");
    }
}

#[test]
fn none_one_and_empty_runs_are_told() {
    assert!(shown(&mut compared(vec![]), 80, 24).contains("there is no run yet"));
    let mut one = compared(vec![run(3)]);
    press(&mut one, &[Char('a'), Char('b'), Char('m')]);
    assert!(shown(&mut one, 80, 24).contains("only one run here"));
    let mut empty = compared(vec![run(0), run(1)]);
    press(&mut empty, &[Char('m'), Char('m')]);
    assert!(shown(&mut empty, 80, 24).contains("before the first token"));
    let mut one_token = compared(vec![run(1), run(1)]);
    assert!(shown(&mut one_token, 200, 60).contains("mean of tokens 1 to 1"));
}

#[test]
fn texts_known_as_a_whole_are_compared_as_a_whole() {
    let whole = |text: &str| {
        let mut run = run(0);
        (0..3).for_each(|index| run.push(step(index)));
        run.set_text(text.into());
        run
    };
    let says = |a: RunData, b: RunData| shown(&mut compared(vec![a, b]), 80, 24);
    assert!(says(whole("one 灯"), whole("one 灯")).contains("the same text ┘"));
    assert!(says(whole("one"), whole("two")).contains("texts differ ┘"));
    assert!(says(whole("The The The "), same_text(3)).contains("the same text ┘"));
    assert!(says(whole("one"), same_text(4)).contains("texts not known of both"));
}
