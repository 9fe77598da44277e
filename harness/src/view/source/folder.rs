//! A result folder, finished or in progress.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bmoe_analysis::cells::group;
use bmoe_analysis::data::DataReader;
use bmoe_analysis::measured::Measured;
use bmoe_analysis::result_set::{CellRecord, Verdict};
use bmoe_analysis::routes::{LoadOptions, load};
use bmoe_trace::supervised::TRACE_FILE;

use super::Source;
use super::attempt::AttemptFeed;
use super::records::configure;
use super::tail::LineTail;
use crate::error::Error;
use crate::matrix::{Matrix, Selection};
use crate::results;
use crate::runner::{JournalEvent, Pace, Started};
use crate::view::world::{CellView, Mode, RouteLog, RunData, RunKey, State, Step, World};

/// Follows a result folder.
#[derive(Debug)]
pub struct FolderSource {
    folder: PathBuf,
    events: LineTail,
    records: LineTail,
    /// The feed of each run of the world.
    feeds: Vec<Feed>,
    /// Runs to be read, the next one first.
    pending: VecDeque<usize>,
    /// What the Parquet files hold; read when a run has no files of its own.
    measured: Option<Option<Box<Measured>>>,
    pace: Pace,
    looked: Option<Instant>,
    live: bool,
    /// No runner was found although a run has no end.
    unsure: bool,
}

/// How often it is looked whether a runner is there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Feed {
    /// `None` = everything is read.
    attempt: Option<AttemptFeed>,
    folder: PathBuf,
}

impl FolderSource {
    /// A folder that `bmoe run` made or is about to make, with what is known before anything is read.
    ///
    /// # Errors
    /// There is neither a matrix nor a result in it.
    pub fn open(folder: &Path) -> Result<(Self, World), Error> {
        let (matrix, records) = (folder.join("matrix.toml"), folder.join("cells.jsonl"));
        if !matrix.is_file() && !records.is_file() {
            return Err(Error::Refused(format!(
                "{} is no result folder: it has neither matrix.toml nor cells.jsonl; give a folder \
                 of `bmoe run` or `bmoe import`, or a trace",
                folder.display()
            )));
        }
        let targets = targets(folder);
        if targets.len() > 1 && !records.is_file() {
            return Err(Error::Refused(format!(
                "{} has a folder for each of its targets; give one of them: {}",
                folder.display(),
                targets.join(", ")
            )));
        }
        let mut world = World { name: folder.display().to_string(), ..World::default() };
        // An older matrix may not be understood any more; its results are there all the same.
        if let Ok((matrix, _)) = Matrix::load(&matrix) {
            world.cells = planned(&matrix, folder);
        }
        let source = Self {
            folder: folder.to_owned(),
            events: LineTail::new(&folder.join("journal.jsonl")),
            records: LineTail::new(&records),
            feeds: Vec::new(),
            pending: VecDeque::new(),
            measured: None,
            pace: Pace::default(),
            looked: None,
            live: false,
            unsure: false,
        };
        Ok((source, world))
    }

    /// Whether a runner works in the folder; looked at once a second.
    fn held(&mut self) -> bool {
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
            self.live = bmoe_supervise::is_held(&self.folder.join("runner.lock"));
            self.looked = Some(Instant::now());
        }
        self.live
    }

    fn started(&mut self, world: &mut World, started: &Started, over: bool) {
        let key = RunKey {
            cell: started.id.clone(),
            repetition: started.repetition,
            attempt: started.attempt,
        };
        if world.runs.iter().any(|run| run.key == key) {
            return;
        }
        let cell = world.cells.iter_mut().find(|cell| cell.id == key.cell);
        if let Some(cell) = cell.filter(|_| !over) {
            cell.state = State::Running;
        }
        let name = results::attempt_folder(&key.cell, key.repetition, key.attempt);
        let mut run = RunData { name: run_name(world, &key), over, ..RunData::default() };
        run.model = of_cell(world, &key.cell).map(|c| c.model.clone()).unwrap_or_default();
        let folder = self.folder.join(name);
        if let Ok(text) = std::fs::read_to_string(folder.join("run.toml"))
            && let Ok(config) = toml::from_str(&text)
        {
            configure(&mut run, &config);
        }
        run.key = key;
        self.add(world, run, folder);
    }

    fn add(&mut self, world: &mut World, run: RunData, folder: PathBuf) -> usize {
        self.feeds.push(Feed { attempt: Some(AttemptFeed::new(&folder)), folder });
        world.add_run(run)
    }

    fn ended(&mut self, world: &mut World, record: CellRecord) {
        let key = RunKey {
            cell: record.id.clone(),
            repetition: record.repetition,
            attempt: record.attempt,
        };
        if record.wall_s > 0.0 {
            self.pace.record(&record.id, record.wall_s);
        }
        let index = match world.runs.iter().position(|run| run.key == key) {
            Some(index) => index,
            None => {
                let name = results::attempt_folder(&key.cell, key.repetition, key.attempt);
                let run = RunData { key: key.clone(), over: true, ..RunData::default() };
                self.add(world, run, self.folder.join(name))
            }
        };
        let run = &mut world.runs[index];
        run.model.clone_from(&record.model);
        run.run_id.clone_from(&record.run_id);
        if run.mode.is_empty() {
            configure(run, &record.config);
        }
        run.over = true;
        if record.verdict != Verdict::Valid {
            let reason = record.reason.as_deref().unwrap_or("no reason given");
            run.trouble = Some(format!("{}: {reason}", record.verdict.words()));
        }
        let cell = match world.cells.iter().position(|cell| cell.id == record.id) {
            Some(at) => at,
            None => {
                world.cells.push(CellView {
                    id: record.id.clone(),
                    name: record.name.clone(),
                    model: record.model.clone(),
                    baseline: record.baseline,
                    ..CellView::default()
                });
                world.cells.len() - 1
            }
        };
        let cell = &mut world.cells[cell];
        // A later line about the same attempt takes the place of the earlier one: it was judged again.
        let same = |r: &CellRecord| {
            (r.repetition, r.attempt, r.order) == (record.repetition, record.attempt, record.order)
        };
        match cell.attempts.iter_mut().find(|r| same(r)) {
            Some(earlier) => *earlier = record,
            None => cell.attempts.push(record),
        }
        let over: std::collections::HashSet<u32> =
            cell.attempts.iter().map(|r| r.repetition).collect();
        cell.state = if over.len() >= cell.planned { State::Over } else { State::Partly };
        world.runs[index].name = run_name(world, &key);
        self.pending.push_back(index);
    }

    /// Reads a run that is over: its own files, or else what the Parquet files have of it.
    fn read(&mut self, world: &mut World, index: usize) {
        let Some(feed) = self.feeds.get_mut(index) else { return };
        let run = &mut world.runs[index];
        if feed.folder.join(TRACE_FILE).is_file() || !run.steps().is_empty() {
            let said = run.trouble.take();
            if let Some(attempt) = &mut feed.attempt
                && attempt.poll(run)
            {
                run.trouble = said.or(run.trouble.take());
                self.pending.push_front(index);
                return;
            }
            run.trouble = said.or(run.trouble.take());
        } else if let Some(id) = run.run_id.clone() {
            let folder = &self.folder;
            let measured = self.measured.get_or_insert_with(|| {
                DataReader::new(folder)
                    .exists()
                    .then(|| Measured::read(folder).ok().map(Box::new))
                    .flatten()
            });
            if let Some(measured) = measured {
                from_parquet(run, &id, measured, folder);
            }
        }
        feed.attempt = None;
        let run = &mut world.runs[index];
        run.over = true;
        let cell = run.key.cell.clone();
        pool(world, &cell);
    }
}

impl Source for FolderSource {
    fn poll(&mut self, world: &mut World) {
        let (mut started, mut ended, mut damaged) = (Vec::new(), Vec::new(), None);
        // Records first: an attempt whose record is there has ended, whatever is found behind it.
        let taken = self.events.take(|line| match serde_json::from_str(line) {
            Ok(JournalEvent::Started(one)) => started.push(*one),
            Ok(_) => {}
            Err(e) => damaged = Some(format!("journal.jsonl has a damaged line: {e}")),
        });
        let records = self.records.take(|line| match serde_json::from_str(line) {
            Ok(record) => ended.push(record),
            Err(_) if line.trim().is_empty() => {}
            Err(e) => damaged = Some(format!("cells.jsonl has a damaged line: {e}")),
        });
        for error in [taken.err(), records.err()].into_iter().flatten() {
            damaged = Some(format!("cannot read the journal: {error}"));
        }
        world.notice = damaged.or(world.notice.take());
        let live = self.held();
        world.mode = if live { Mode::Live } else { Mode::Replay };
        let nothing_new = started.is_empty() && ended.is_empty();
        let is_it = |one: &Started, record: &CellRecord| {
            (&one.id, one.repetition, one.attempt)
                == (&record.id, record.repetition, record.attempt)
        };
        for one in &started {
            self.started(world, one, ended.iter().any(|record| is_it(one, record)));
        }
        ended.into_iter().for_each(|record| self.ended(world, record));
        // What is looked at is read first.
        let selected = world.selected();
        if let Some(at) = self.pending.iter().position(|index| *index == selected) {
            self.pending.swap(0, at);
        }
        if let Some(index) = self.pending.pop_front() {
            self.read(world, index);
        }
        for (feed, run) in self.feeds.iter_mut().zip(&mut world.runs).filter(|(_, r)| !r.over) {
            if let Some(attempt) = &mut feed.attempt {
                attempt.poll(run);
                // The runner says when it is over.
                run.over = false;
            }
        }
        let open = world.runs.iter().any(|run| !run.over);
        // A runner that has just begun, or ended, may have done so between two looks: this is said only when a second
        // look at everything finds nothing new.
        let sure = std::mem::take(&mut self.unsure) && nothing_new;
        if !live && open && self.pending.is_empty() {
            if sure {
                // Nobody will end what a killed runner left.
                for run in world.runs.iter_mut().filter(|run| !run.over) {
                    run.trouble
                        .get_or_insert("its runner is gone; `bmoe run --resume` goes on".into());
                    run.over = true;
                }
            } else {
                self.looked = None;
                self.unsure = true;
            }
        }
        let waiting = world.cells.iter().flat_map(|cell| {
            let done: std::collections::HashSet<u32> =
                cell.attempts.iter().map(|r| r.repetition).collect();
            std::iter::repeat_n(cell.id.as_str(), cell.planned.saturating_sub(done.len()))
        });
        world.left = live.then(|| self.pace.time_for(waiting)).flatten();
    }

    fn is_settled(&self) -> bool {
        self.pending.is_empty() && !self.unsure
    }
}

/// The folders of several targets, each with results of its own.
fn targets(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut targets: Vec<String> = entries
        .map(|entry| entry.path())
        .filter(|path| path.join("journal.jsonl").is_file())
        .map(|path| path.display().to_string())
        .collect();
    targets.sort();
    targets
}

/// The cells of a matrix, as far as its folder's plan has them run.
fn planned(matrix: &Matrix, folder: &Path) -> Vec<CellView> {
    let Ok(mut schedule) = matrix.schedule() else { return Vec::new() };
    let plan = std::fs::read(folder.join("plan.json")).ok();
    let plan: Option<serde_json::Value> = plan.and_then(|json| serde_json::from_slice(&json).ok());
    let filter = plan.as_ref().and_then(|plan| plan.get("filter")?.as_str());
    if let Some(selection) = filter.and_then(|filter| Selection::new(filter).ok()) {
        schedule = schedule.select(&selection);
    }
    let cells = schedule.cells.iter().enumerate().map(|(index, cell)| CellView {
        id: cell.id.clone(),
        name: cell.name.clone(),
        model: cell.model.clone(),
        baseline: cell.baseline,
        planned: schedule.runs.iter().filter(|run| run.cell == index).count(),
        ..CellView::default()
    });
    cells.filter(|cell| cell.planned > 0).collect()
}

fn of_cell<'a>(world: &'a World, id: &str) -> Option<&'a CellView> {
    world.cells.iter().find(|cell| cell.id == id)
}

/// The cell's name, with what tells its runs apart.
fn run_name(world: &World, key: &RunKey) -> String {
    let cell = of_cell(world, &key.cell).map_or(key.cell.as_str(), |cell| cell.name.as_str());
    let mut name = cell.to_owned();
    if key.repetition > 0 {
        name.push_str(&format!(", repetition {}", key.repetition + 1));
    }
    if key.attempt > 1 {
        name.push_str(&format!(", attempt {}", key.attempt));
    }
    name
}

fn from_parquet(run: &mut RunData, id: &str, measured: &Measured, folder: &Path) {
    if let Some(row) = measured.runs.get(id) {
        run.load_ns = row.load_ns;
        run.prompt_tokens = row.prompt_tokens;
        run.prefill_ns = row.prefill_ns;
        run.first_token_ns = row.time_to_first_token_ns;
        run.cache_budget_bytes = row.cache_budget_bytes.filter(|b| *b > 0);
        run.shape = serde_json::from_str(&row.model_shape_json).ok();
        run.set_text(row.text.clone().unwrap_or_default());
    }
    for row in measured.tokens.get(id).into_iter().flatten() {
        run.push(Step::from(row));
    }
    run.budgets = DataReader::new(folder).budgets_of(id).unwrap_or_default();
    let mut source = folder.as_os_str().to_owned();
    source.push(":");
    source.push(id);
    let options = LoadOptions { residency: true, ..LoadOptions::default() };
    if let Ok(trace) = load(Path::new(&source), options) {
        run.routes = RouteLog::new(trace);
    }
}

/// The figures of a cell, over the valid runs that are read.
fn pool(world: &mut World, id: &str) {
    let Some(cell) = world.cells.iter_mut().find(|cell| cell.id == id) else { return };
    let records = std::mem::take(&mut cell.attempts);
    let valid: Vec<RunKey> = group(&records)
        .iter()
        .flat_map(|cell| cell.valid())
        .map(|r| RunKey { cell: r.id.clone(), repetition: r.repetition, attempt: r.attempt })
        .collect();
    cell.attempts = records;
    let runs: Vec<&RunData> = world.runs.iter().filter(|run| valid.contains(&run.key)).collect();
    let steps = || runs.iter().flat_map(|run| run.steps());
    let sum = |of: fn(&Step) -> Option<u64>| steps().map(of).sum::<Option<u64>>();
    let count = steps().count() as f64;
    cell.tok_s = sum(|s| s.wall_ns).filter(|ns| *ns > 0).map(|ns| count * 1e9 / ns as f64);
    cell.read_mib =
        sum(|s| s.read_bytes).filter(|_| count > 0.0).map(|b| b as f64 / 1_048_576.0 / count);
    let last: Vec<f64> =
        runs.iter().filter_map(|run| run.steps().last()?.cumulative_hit_rate).collect();
    let cached = runs.iter().any(|run| run.policy.is_some());
    cell.hit_rate = bmoe_analysis::stats::mean(&last).filter(|_| cached);
}
