//! Data that are the same in every test.

use std::time::Duration;

use bmoe::matrix::Matrix;
use bmoe::view::app::App;
use bmoe::view::screens::compare::CompareScreen;
use bmoe::view::screens::experts::ExpertsScreen;
use bmoe::view::screens::{Screen, matrix::MatrixScreen, run::RunScreen};
use bmoe::view::source::Still;
use bmoe::view::theme::{Ground, Theme};
use bmoe::view::world::{CellView, RunData, State, Step, World};
use bmoe_analysis::data::BudgetRow;
use bmoe_analysis::result_set::{CellRecord, Verdict};
use bmoe_trace::record::{LayerShape, ModelShape};
use bmoe_trace::supervised::Sample;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};

const MIB: u64 = 1 << 20;

/// A step whose parts differ from token to token.
pub(crate) fn step(index: u64) -> Step {
    let compute_ns = 12_000_000 + index % 5 * 400_000;
    let io_wait_ns = if index.is_multiple_of(7) { 9_000_000 } else { index % 4 * 1_200_000 };
    let (mgmt_ns, other_ns) = (400_000, 150_000);
    Step {
        wall_ns: Some(compute_ns + io_wait_ns + mgmt_ns + other_ns),
        compute_ns: Some(compute_ns),
        io_wait_ns: Some(io_wait_ns),
        mgmt_ns: Some(mgmt_ns),
        other_ns: Some(other_ns),
        lane_busy_ns: Some(io_wait_ns * 2),
        read_bytes: Some(index % 4 * 2 * MIB),
        hits: Some(90 - index % 4 * 5),
        misses: Some(6 + index % 4 * 5),
        cumulative_hit_rate: Some(0.85),
        major_faults: Some(0),
        cache_resident_bytes: Some(300 * MIB),
        cache_budget_bytes: Some(345 * MIB),
        rss_bytes: Some(612 * MIB),
        mem_available_bytes: Some(5 << 30),
    }
}

/// A run of so many tokens that is over.
pub(crate) fn run(tokens: u64) -> RunData {
    let mut run = RunData::default();
    run.name = "stream, cache 345 MiB, 4 lanes".into();
    run.model = "quickstart".into();
    run.mode = "stream".into();
    run.overlap = true;
    run.lanes = Some(4);
    run.policy = Some("lru".into());
    run.n_predict = Some(200);
    run.first_token_ns = Some(1_000_000_000);
    run.prompt_tokens = Some(9);
    let layer = |layer| LayerShape { layer, expert_bytes: 2 * MIB };
    run.shape = Some(ModelShape {
        arch: "qwen3moe".into(),
        n_layer: 12,
        n_expert: 128,
        n_expert_used: 8,
        file_bytes: 600 * MIB,
        dense_bytes: 50 * MIB,
        layers: (0..12).map(layer).collect(),
    });
    run.budgets.push(BudgetRow {
        turn: 0,
        step: 30,
        from_bytes: 400 * MIB,
        to_bytes: 345 * MIB,
        available_bytes: 5 << 30,
        evicted: 3,
    });
    run.samples.push(Sample {
        unix_ms: 1,
        elapsed_ms: 900,
        cpu_temperature_millic: Some(61_500),
        clocks_khz: vec![1_800_000, 2_400_000],
        max_clocks_khz: vec![1_800_000, 3_000_000],
        ..Sample::default()
    });
    for index in 0..tokens {
        run.push(step(index));
        run.write(match index % 6 {
            0 => "The ",
            1 => "old ",
            2 => "灯台守 ",
            3 => "climbs ",
            4 => "the 🗼 stairs",
            _ => ".\n",
        });
    }
    run.over = true;
    run
}

/// A world of one run, at its end.
pub(crate) fn replayed(tokens: u64) -> World {
    let mut world = World::default();
    world.name = "runs/fixed".into();
    world.add_run(run(tokens));
    world.seek(|playhead, run| playhead.to_end(run));
    world
}

const MATRIX: &str = r#"
name = "fixed"
repetitions = 2
[[model]]
name = "tiny"
path = "tiny.gguf"
[base]
prompt = "once"
[axes]
mode = ["mmap", "stream"]
cache_mib = [0, 4, 8]
io_threads = [1]
"#;

/// A matrix in which something of everything happened.
pub(crate) fn matrix() -> World {
    let mut world = replayed(64);
    let schedule = toml::from_str::<Matrix>(MATRIX).unwrap().schedule().unwrap();
    let verdicts = [Verdict::Valid, Verdict::Valid, Verdict::OutOfMemory, Verdict::Valid];
    let states = [State::Over, State::Over, State::Partly, State::Waiting];
    for (index, cell) in schedule.cells.iter().enumerate() {
        let record = |repetition: u32| {
            CellRecord {
            id: cell.id.clone(),
            name: cell.name.clone(),
            model: cell.model.clone(),
            repetition,
            attempt: 1,
            order: repetition,
            config: cell.config.clone(),
            baseline: index == 0,
            lossless: true,
            verdict: verdicts[index],
            reason: (verdicts[index] == Verdict::OutOfMemory)
                .then(|| "the kernel ended the engine because memory had run out: 1 process of its control group was killed; give it a smaller --cache-mb".into()),
            exit_code: (verdicts[index] == Verdict::Valid).then_some(0),
            run_id: None,
            started_unix_ms: 0,
            wall_s: 2.5,
            load_average: None,
            conditions: None,
        }
        };
        let done = match states[index] {
            State::Over => 2,
            State::Partly => 1,
            _ => 0,
        };
        world.cells.push(CellView {
            id: cell.id.clone(),
            name: cell.name.clone(),
            model: cell.model.clone(),
            baseline: index == 0,
            planned: 2,
            state: states[index],
            attempts: (0..done).map(record).collect(),
            tok_s: (done == 2).then_some(60.0 / (index + 1) as f64),
            hit_rate: (index == 1).then_some(0.868),
            read_mib: (index == 1).then_some(1.45),
        });
    }
    world.left = Some(Duration::from_secs(75));
    world
}

/// The viewer of a world, without colours.
pub(crate) fn app(world: World) -> App {
    app_with(world, Theme::new(Ground::Plain))
}

/// The same with colours.
pub(crate) fn app_with(world: World, theme: Theme) -> App {
    let screens: Vec<Box<dyn Screen>> = vec![
        Box::new(RunScreen::default()),
        Box::new(MatrixScreen::default()),
        Box::new(ExpertsScreen::default()),
        Box::new(CompareScreen::default()),
    ];
    App::new(world, Box::new(Still), screens, theme)
}

/// What it shows in a terminal of this size.
pub(crate) fn shown(app: &mut App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    terminal.backend().to_string()
}

/// Presses keys.
pub(crate) fn press(app: &mut App, keys: &[KeyCode]) {
    for key in keys {
        app.on_event(&Event::Key(KeyEvent::new(*key, KeyModifiers::NONE)));
    }
}
