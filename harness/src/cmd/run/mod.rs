//! `bmoe run`

mod device;
mod estimate;
mod groups;
pub(in crate::cmd) mod plan;
mod prepare;
mod show;

use std::path::{Path, PathBuf};

use bmoe_analysis::result_set::Environment;
use bmoe_trace::Mode;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use self::device::{Chosen, Shared};
use self::plan::Plan;
use crate::error::Error;
use crate::matrix::{Matrix, Order, Planned, Schedule};
use crate::progress::Views;
use crate::runner::{Interrupt, Observer, Summary, Work, suspects};
use crate::say::say;
use crate::target::{self, StagedFile, Target, TargetName, UnknownTarget};
use crate::{environment, models, results};

/// Run a matrix of configurations and render the results
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Makes the synthetic models that are missing, runs every cell as an engine process, checks that all
lossless cells generate the same text, and leaves a folder with Parquet data, the machine's
description and a report. Cells that fail are kept with their reason; the rest goes on.

The engine runs in the background of its target. Whatever ends this program, `bmoe run --resume DIR`
goes on: what is done is not run again, and an engine that still runs is followed to its end.

Examples:
  bmoe run matrices/quickstart.toml
  bmoe run matrices/quickstart.toml --filter 'cache off|mmap' --dry-run
  bmoe run my.toml --out runs/first --engine ../other/bmoe-engine
  bmoe run matrices/qwen3-30b-a3b.toml --model qwen3-30b-a3b=Qwen3-30B-A3B-Q4_K_M.gguf --target adb
  bmoe run --resume runs/first --only-failed")]
pub(super) struct Args {
    /// The matrix file (docs/matrices.md describes the format)
    #[arg(required_unless_present = "resume")]
    matrix: Option<PathBuf>,
    /// The result folder, new or empty [default: runs/<matrix>-<UTC date and time>]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on in a result folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["matrix", "out", "models", "order", "seed", "target"])]
    resume: Option<PathBuf>,
    /// Also repeat the runs that did not come out valid
    #[arg(long, requires = "resume")]
    only_failed: bool,
    /// Repeat the cells that look as if the device had been busy or hot, in reversed order
    #[arg(long, requires = "resume", conflicts_with = "only_failed")]
    rerun_suspect: bool,
    /// Take this file for a model of the matrix, once for each
    #[arg(long, value_name = "NAME=FILE", value_parser = model_file, conflicts_with = "resume")]
    model: Vec<(String, PathBuf)>,
    /// Only cells whose `model: name` or id contains this text or matches it as a regular expression
    #[arg(long, value_name = "TEXT|REGEX")]
    filter: Option<String>,
    /// Where to run, once for each: `local`, `adb` or `adb:SERIAL` [default: local]
    #[arg(long, value_name = "TARGET")]
    target: Vec<String>,
    /// Hash files again that a device has already
    #[arg(long)]
    verify: bool,
    /// The order of the runs [default: the matrix's]
    #[arg(long, value_parser = PossibleValuesParser::new(Order::NAMES).try_map(|name| name.parse::<Order>()))]
    order: Option<Order>,
    /// Decides a random order [default: the matrix's]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Show the cells and their ids, run nothing
    #[arg(long)]
    list: bool,
    /// Check everything and show the order of the runs, run nothing
    #[arg(long)]
    dry_run: bool,
    /// The engine to run [default: bmoe-engine beside this program]
    #[arg(long, value_name = "PATH", env = "BMOE_ENGINE")]
    engine: Option<PathBuf>,
    /// Where synthetic models are kept
    #[arg(long, value_name = "DIR", default_value = "models")]
    models: PathBuf,
}

/// What is run where, and what of it is new.
struct Asked {
    plan: Plan,
    matrix: Matrix,
    text: String,
    out: PathBuf,
    what: What,
}

/// Which runs are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Rest,
    Failed,
    Suspect,
}

/// A matrix that another command wants run.
pub(super) struct Measurement<'a> {
    /// The matrix.
    pub(super) matrix: &'a str,
    /// Where it is kept.
    pub(super) file: &'a Path,
    /// The result folder. One that has results already goes on with this matrix.
    pub(super) out: &'a Path,
    pub(super) target: &'a str,
    pub(super) engine: Option<&'a Path>,
    pub(super) models: &'a Path,
}

/// Runs a matrix, or what is missing of it.
pub(super) fn measure(wanted: &Measurement<'_>) -> Result<(), Error> {
    let write = |path: &Path| {
        crate::atomic::write(path, wanted.matrix.as_bytes()).map_err(Error::io("write", path))
    };
    let goes_on = wanted.out.join("plan.json").exists();
    if goes_on {
        write(&wanted.out.join("matrix.toml"))?;
    } else {
        write(wanted.file)?;
    }
    run(&Args {
        matrix: (!goes_on).then(|| wanted.file.to_owned()),
        out: (!goes_on).then(|| wanted.out.to_owned()),
        resume: goes_on.then(|| wanted.out.to_owned()),
        only_failed: false,
        rerun_suspect: false,
        model: Vec::new(),
        filter: None,
        target: vec![wanted.target.to_owned()],
        verify: false,
        order: None,
        seed: None,
        list: false,
        dry_run: false,
        engine: wanted.engine.map(Path::to_owned),
        models: wanted.models.to_owned(),
    })
}

/// Where a target has the engine that suits it; it is sent there when it isn't.
pub(super) fn place_engine(
    target: &dyn Target,
    given: Option<&Path>,
    interrupt: &Interrupt,
) -> Result<PathBuf, Error> {
    let chosen = device::choose(target, given)?;
    if target.name() == "local" {
        return std::path::absolute(&chosen.engine).map_err(Error::io("find", &chosen.engine));
    }
    let sha256 = prepare::identify(&chosen.engine, interrupt)?.sha256.unwrap_or_default();
    let file = StagedFile { path: &chosen.engine, sha256: &sha256, executable: true };
    Ok(target.stage(&file, &mut |_| {})?)
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let asked = args.asked()?;
    let mut schedule = asked.schedule(args)?;
    if args.list {
        show::list(&asked.matrix, &schedule);
        return Ok(());
    }
    let given = args.engine.as_deref().or(asked.plan.engine.as_deref());
    if args.resume.is_none() {
        results::check_free(&asked.out)?;
    }
    let folder = &asked.plan.matrix_folder;
    let mut located = models::locate(&asked.matrix, folder, &asked.plan.models)?;
    located.retain(|m| schedule.runs.iter().any(|run| schedule.cells[run.cell].model == m.name));
    for model in located.iter().filter(|m| m.recipe.is_none()) {
        model.check_files()?;
    }
    prepare::check_experts(&schedule, &located)?;
    prepare::find_files(&mut schedule, folder)?;
    let targets = open_targets(&asked.plan.targets, args.verify)?;
    let chosen = targets
        .iter()
        .map(|target| device::choose(target.as_ref(), given))
        .collect::<Result<Vec<_>, _>>()?;
    if args.dry_run {
        let places: Vec<_> = targets
            .iter()
            .zip(&chosen)
            .map(|(target, chosen)| (target.as_ref(), chosen.engine.as_path()))
            .collect();
        return show::dry_run(&asked.matrix, &schedule, &located, &places, &asked.out);
    }

    let interrupt = Interrupt::watch().map_err(Error::io("watch signals for", &asked.out))?;
    let _reserved =
        targets.iter().map(|t| device::reserve(t.as_ref())).collect::<Result<Vec<_>, _>>()?;
    let local = targets.iter().position(|target| target.name() == "local");
    let engine_version = match local {
        Some(at) => prepare::engine_version(&chosen[at].engine, &interrupt)?,
        None => None,
    };
    prepare::make_models(&located, &interrupt)?;
    let model_files = prepare::describe_models(&located, &interrupt)?;
    if args.resume.is_none() {
        // In this order: a folder with a plan can be gone on with.
        results::keep_matrix(&asked.out, &asked.text)?;
        asked.plan.save(&asked.out)?;
    }
    let here = prepare::describe_this_machine(&located)?;
    let environment = Environment { engine_version, ..here };
    let shared = Shared {
        matrix: &asked.matrix,
        matrix_text: &asked.text,
        schedule: &schedule,
        located: &located,
        models: &model_files,
        here: &environment,
        interrupt: &interrupt,
    };
    let views = Views::new();
    let outcomes = run_everywhere(&shared, &asked, &targets, &chosen, &views);
    drop(views);
    conclude(outcomes, &asked.matrix)
}

impl Args {
    fn asked(&self) -> Result<Asked, Error> {
        if let Some(out) = &self.resume {
            let plan = Plan::load(out)?;
            let (mut matrix, text) = Matrix::load(&out.join("matrix.toml"))?;
            matrix.use_files(&plan.model_files)?;
            let what = match (self.only_failed, self.rerun_suspect) {
                (true, _) => What::Failed,
                (_, true) => What::Suspect,
                _ => What::Rest,
            };
            return Ok(Asked { plan, matrix, text, out: out.clone(), what });
        }
        let path = self.matrix.as_deref().unwrap_or(Path::new(""));
        let (mut matrix, text) = Matrix::load(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let targets =
            if self.target.is_empty() { vec!["local".to_owned()] } else { self.target.clone() };
        let plan = Plan {
            matrix_folder: folder.to_owned(),
            models: self.models.clone(),
            engine: self.engine.clone(),
            model_files: self.model.iter().cloned().collect(),
            filter: self.filter.clone(),
            order: self.order,
            seed: self.seed,
            targets,
        };
        // What is given on the command line is relative to where it was typed.
        let files = plan.model_files.iter().map(|(name, file)| {
            Ok((name.clone(), std::path::absolute(file).map_err(Error::io("find", file))?))
        });
        matrix.use_files(&files.collect::<Result<_, Error>>()?)?;
        let out = self.out.clone().unwrap_or_else(|| default_out(&matrix.name));
        Ok(Asked { plan, matrix, text, out, what: What::Rest })
    }
}

impl Asked {
    /// The runs in one result folder.
    fn work_in(
        &self,
        folder: &Path,
        schedule: &Schedule,
        observer: &mut dyn Observer,
    ) -> Result<Work, Error> {
        Ok(match self.what {
            What::Rest => Work::Rest,
            What::Failed => Work::Failed,
            What::Suspect => {
                let suspects = suspects(folder)?;
                if suspects.is_empty() {
                    observer.notice("nothing in the results is suspect");
                }
                for (_, evidence) in &suspects {
                    observer.notice(&format!("suspect: {evidence}"));
                }
                let is_suspect = |run: &&Planned| {
                    suspects.iter().any(|(id, _)| *id == schedule.cells[run.cell].id)
                };
                // What moves when the order is reversed was the device.
                Work::Again(schedule.runs.iter().rev().filter(is_suspect).copied().collect())
            }
        })
    }

    fn schedule(&self, args: &Args) -> Result<Schedule, Error> {
        let order = self.plan.order.unwrap_or(self.matrix.order);
        let seed = self.plan.seed.unwrap_or(self.matrix.seed);
        let all = self.matrix.schedule()?.ordered(order, seed);
        let planned = prepare::select(all, self.plan.filter.as_deref())?;
        // A folder that goes on may be narrowed further.
        prepare::select(planned, args.filter.as_deref())
    }
}

/// `NAME=FILE`
fn model_file(text: &str) -> Result<(String, PathBuf), String> {
    let (name, file) = text
        .split_once('=')
        .filter(|(name, file)| !name.is_empty() && !file.is_empty())
        .ok_or("expected NAME=FILE, a model of the matrix and a GGUF file")?;
    Ok((name.to_owned(), PathBuf::from(file)))
}

fn open_targets(names: &[String], verify: bool) -> Result<Vec<Box<dyn Target>>, Error> {
    let mut targets: Vec<Box<dyn Target>> = Vec::new();
    for name in names {
        let name: TargetName =
            name.parse().map_err(|e: UnknownTarget| Error::Refused(e.to_string()))?;
        let target = target::open(&name, verify)?;
        if targets.iter().any(|other| other.name() == target.name()) {
            return Err(Error::Refused(format!(
                "the target {} is named twice; name each device once",
                target.name()
            )));
        }
        targets.push(target);
    }
    Ok(targets)
}

/// What came of a target.
struct Outcome {
    target: String,
    folder: PathBuf,
    summary: Result<Summary, Error>,
}

/// Runs the matrix on all targets at the same time.
fn run_everywhere(
    shared: &Shared<'_>,
    asked: &Asked,
    targets: &[Box<dyn Target>],
    chosen: &[Chosen],
    views: &Views,
) -> Vec<Outcome> {
    let one = |target: &dyn Target, chosen: &Chosen, name: &str, observer: &mut dyn Observer| {
        let folder = asked.plan.folder_of(&asked.out, name);
        let summary = (|| {
            let staged = shared.stage(target, &chosen.engine, observer)?;
            shared.describe(target, chosen, &staged, &folder)?;
            warn_about_texts(shared.schedule, observer);
            let work = asked.work_in(&folder, shared.schedule, observer)?;
            shared.run(target, &staged, &folder, &work, observer)
        })();
        Outcome { target: target.name().to_owned(), folder, summary }
    };
    std::thread::scope(|scope| {
        let several = targets.len() > 1;
        let workers: Vec<_> = targets
            .iter()
            .zip(chosen)
            .zip(&asked.plan.targets)
            .map(|((target, chosen), name)| {
                let label = several.then(|| target.name().to_owned());
                scope.spawn(move || {
                    let mut observer = views.observer(label, shared.schedule.runs.len());
                    one(target.as_ref(), chosen, name, observer.as_mut())
                })
            })
            .collect();
        let panicked = "a target's thread has panicked";
        workers.into_iter().map(|worker| worker.join().expect(panicked)).collect()
    })
}

/// Renders whatever there is, and says how it went.
fn conclude(outcomes: Vec<Outcome>, matrix: &Matrix) -> Result<(), Error> {
    let several = outcomes.len() > 1;
    let mut worst = Ok(());
    for Outcome { target, folder, summary } in outcomes {
        if several {
            say!("== {target}");
        }
        let came = summary.and_then(|summary| conclude_one(&summary, &folder, matrix));
        if let Err(error) = came {
            // The last error is the program's; the others are told here.
            if let Err(earlier) = std::mem::replace(&mut worst, Err(error)) {
                eprintln!("error: {earlier}");
            }
        }
    }
    worst
}

fn conclude_one(summary: &Summary, out: &Path, matrix: &Matrix) -> Result<(), Error> {
    // The results are there even when rendering them fails.
    let rendered = (!summary.records.is_empty()).then(|| results::render(out)).transpose();
    if let Ok(Some(rendered)) = &rendered {
        rendered.print();
        groups::print(out, matrix.warmup_tokens)?;
    }
    say!("results  {}", out.display());
    rendered?;
    if let Some(signal) = summary.interrupted {
        let what = format!(
            "; {} runs were not started, `bmoe run --resume {}` goes on",
            summary.not_run,
            out.display()
        );
        return Err(Error::Interrupted { signal, what });
    }
    if let Some(reason) = &summary.lost {
        return Err(Error::TargetLost {
            reason: reason.clone(),
            not_run: summary.not_run,
            folder: out.to_owned(),
        });
    }
    let invalid = summary.invalid().count();
    if invalid > 0 {
        return Err(Error::NotAllValid { invalid, total: summary.total() });
    }
    Ok(())
}

pub(super) fn default_out(matrix: &str) -> PathBuf {
    let time: String = environment::now()
        .chars()
        .filter_map(|c| match c {
            'T' => Some('-'),
            c if c.is_ascii_digit() => Some(c),
            _ => None,
        })
        .collect();
    Path::new("runs").join(format!("{matrix}-{time}"))
}

/// A filter can leave cells without the baseline that they would be compared with.
fn warn_about_texts(schedule: &Schedule, observer: &mut dyn Observer) {
    let runs =
        |baseline: bool| {
            schedule.runs.iter().map(|r| &schedule.cells[r.cell]).filter(move |c| {
                c.baseline == baseline && (baseline || c.config.mode == Mode::Stream)
            })
        };
    let baselines = schedule.cells.iter().any(|c| c.baseline);
    if baselines && runs(true).next().is_none() && runs(false).next().is_some() {
        observer
            .notice("the filter leaves out the baseline: texts are compared with the first cell's");
    }
}
