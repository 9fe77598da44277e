//! `bmoe run`

use std::path::{Path, PathBuf};
use std::time::Duration;

use bmoe_analysis::result_set::{Environment, ModelFile};
use bmoe_trace::Mode;

use crate::environment::{self, Machine, NoAnswer};
use crate::error::Error;
use crate::matrix::{Matrix, Schedule, Selection};
use crate::models::{self, Located, Replace};
use crate::progress::{self, Bytes, mib};
use crate::runner::{Interrupt, LocalExecutor, ModelFiles, Runner, Summary, signal_name};
use crate::{engine, results};

use super::make_model;

/// Run a matrix of configurations and render the results
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Makes the synthetic models that are missing, runs every cell as an engine process, checks that all
lossless cells generate the same text, and leaves a folder with Parquet data, the machine's
description and a report. Cells that fail are kept with their reason; the rest goes on.

Examples:
  bmoe run matrices/quickstart.toml
  bmoe run matrices/quickstart.toml --filter 'cache off|mmap' --dry-run
  bmoe run my.toml --out runs/first --engine ../other/bmoe-engine")]
pub(super) struct Args {
    /// The matrix file (docs/matrices.md describes the format)
    matrix: PathBuf,
    /// The result folder, new or empty [default: runs/<matrix>-<UTC date and time>]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Only cells whose `model: name` or id contains this text or matches it as a regular expression
    #[arg(long, value_name = "TEXT|REGEX")]
    filter: Option<String>,
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

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let (matrix, text) = Matrix::load(&args.matrix)?;
    let mut schedule = select(matrix.schedule()?, args.filter.as_deref())?;
    if args.list {
        list(&schedule);
        return Ok(());
    }
    let engine = engine::find(args.engine.as_deref())?;
    let out = args.out.clone().unwrap_or_else(|| default_out(&matrix.name));
    results::check_free(&out)?;
    let folder = args.matrix.parent().unwrap_or(Path::new(""));
    let mut located = models::locate(&matrix, folder, &args.models)?;
    located.retain(|m| schedule.runs.iter().any(|run| schedule.cells[run.cell].model == m.name));
    for model in located.iter().filter(|m| m.recipe.is_none()) {
        model.check_files()?;
    }
    check_experts(&schedule, &located)?;
    find_profiles(&mut schedule, folder)?;
    if args.dry_run {
        return dry_run(&schedule, &located, &engine, &out);
    }

    let interrupt = Interrupt::watch().map_err(Error::io("watch signals for", &args.matrix))?;
    let engine_version = engine_version(&engine, &interrupt)?;
    for model in &located {
        if let Some(recipe) = &model.recipe {
            make_model(recipe, &model.path, Replace::Synthetic, &interrupt)?;
        }
    }
    let environment = Environment { engine_version, ..describe(&located, &interrupt)? };
    results::create(&out, &text, &environment)?;

    let files: ModelFiles =
        located.iter().map(|m| (m.name.clone(), models::files(&m.path))).collect();
    let own = engine::own_path()?;
    let mut executor = LocalExecutor::new(&engine, Some(&own), interrupt.clone());
    let mut observer = progress::observer(schedule.runs.len());
    let runner = Runner {
        folder: &out,
        models: &files,
        timeout: Duration::from_secs(u64::from(matrix.timeout_s)),
        interrupt,
    };
    warn_about_texts(&schedule, observer.as_mut());
    let summary = runner.run(&schedule, &mut executor, observer.as_mut());
    drop(observer);
    let summary = summary?;
    conclude(&summary, &out)
}

/// Renders whatever there is, and says how it went.
fn conclude(summary: &Summary, out: &Path) -> Result<(), Error> {
    // The results are there even when rendering them fails.
    let rendered = (!summary.records.is_empty()).then(|| results::render(out)).transpose();
    if let Ok(Some(rendered)) = &rendered {
        rendered.print();
    }
    println!("results  {}", out.display());
    rendered?;
    let invalid = summary.invalid().count();
    if let Some(signal) = summary.interrupted {
        let what = match summary.not_run {
            0 => String::new(),
            n => format!("; {n} runs were not started"),
        };
        return Err(Error::Interrupted { signal, what });
    }
    if invalid > 0 {
        return Err(Error::NotAllValid { invalid, total: summary.records.len() });
    }
    Ok(())
}

fn select(schedule: Schedule, filter: Option<&str>) -> Result<Schedule, Error> {
    let Some(filter) = filter else { return Ok(schedule) };
    let selection = Selection::new(filter).map_err(|e| {
        Error::Refused(format!("--filter {filter:?} is no regular expression: {e}"))
    })?;
    let names: Vec<_> =
        schedule.cells.iter().map(|c| format!("  {}: {}", c.model, c.name)).collect();
    let selected = schedule.select(&selection);
    if selected.runs.is_empty() {
        return Err(Error::Refused(format!(
            "--filter {filter:?} selects no cell; the cells are\n{}",
            names.join("\n")
        )));
    }
    Ok(selected)
}

/// Refuses cells that want more experts per token than their model has, where that is known before it is
/// made.
fn check_experts(schedule: &Schedule, located: &[Located]) -> Result<(), Error> {
    for model in located {
        let Some(experts) = model.recipe.as_ref().map(|r| r.shape.dims.experts) else { continue };
        let cells = schedule.runs.iter().map(|run| &schedule.cells[run.cell]);
        for cell in cells.filter(|c| c.model == model.name) {
            let wanted = cell.config.n_expert_used;
            if wanted > experts {
                return Err(Error::Refused(format!(
                    "the cell \"{}\" has `n_expert_used = {wanted}`, but the model `{}` has {experts} \
                     experts a layer; expected {experts} or less, or 0 for the model's own top-k",
                    cell.name, model.name
                )));
            }
        }
    }
    Ok(())
}

/// Profiles are beside the matrix file, as models are.
fn find_profiles(schedule: &mut Schedule, folder: &Path) -> Result<(), Error> {
    for run in &schedule.runs {
        let cell = &schedule.cells[run.cell];
        if let Some(profile) = &cell.config.warm_profile {
            let path = folder.join(profile);
            std::fs::File::open(&path).map_err(|e| {
                Error::Refused(format!(
                    "the cell \"{}\" needs the profile {}, which cannot be opened: {e} (an engine's \
                     --save-profile writes one)",
                    cell.name,
                    path.display()
                ))
            })?;
        }
    }
    for profile in schedule.cells.iter_mut().filter_map(|c| c.config.warm_profile.as_mut()) {
        *profile = folder.join(&*profile);
    }
    Ok(())
}

fn default_out(matrix: &str) -> PathBuf {
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

fn list(schedule: &Schedule) {
    for (i, cell) in schedule.cells.iter().enumerate() {
        let runs = schedule.runs.iter().filter(|run| run.cell == i).count();
        if runs > 0 {
            let baseline = if cell.baseline { "  (baseline)" } else { "" };
            println!("{}  {}: {}{baseline}  x {runs}", cell.id, cell.model, cell.name);
        }
    }
}

fn dry_run(
    schedule: &Schedule,
    located: &[Located],
    engine: &Path,
    out: &Path,
) -> Result<(), Error> {
    println!("engine   {}", engine.display());
    println!("results  {}", out.display());
    for model in located {
        let what = match &model.recipe {
            Some(recipe) if !model.path.exists() => {
                format!("(would be made: {})", mib(recipe.plan()?.file_bytes))
            }
            Some(_) => "(there; would be checked)".to_owned(),
            None => "(there)".to_owned(),
        };
        println!("model    {} {} {what}", model.name, model.path.display());
    }
    for (i, planned) in schedule.runs.iter().enumerate() {
        let cell = &schedule.cells[planned.cell];
        let (id, repetition) = (&cell.id, planned.repetition);
        println!("{:>4}  {id} r{repetition}  {}: {}", i + 1, cell.model, cell.name);
    }
    println!("{} runs; nothing was run", schedule.runs.len());
    Ok(())
}

/// An engine that doesn't even tell its version in time would waste every run's time limit.
fn engine_version(engine: &Path, interrupt: &Interrupt) -> Result<Option<String>, Error> {
    environment::engine_version(engine, &|| interrupt.signal().is_some()).map_err(
        |no_answer| match (no_answer, interrupt.signal()) {
            (NoAnswer::Stopped, Some(signal)) => {
                Error::Interrupted { signal, what: "; nothing was run".to_owned() }
            }
            _ => Error::Refused(format!(
                "the engine {} did not answer `--version` within {} s and was killed; expected \
                 bmoe-engine or a program like it: see --engine and $BMOE_ENGINE",
                engine.display(),
                environment::ANSWER_LIMIT.as_secs()
            )),
        },
    )
}

/// The machine and the models. Hashing a model for the first time takes a while.
fn describe(located: &[Located], interrupt: &Interrupt) -> Result<Environment, Error> {
    let mut files = Vec::new();
    for model in located {
        let bytes = models::Identity::new(&model.path, None)?.bytes();
        let mut bar = Bytes::new("hashing", &model.path, bytes);
        let identity = models::hash(&model.path, &mut |done| {
            bar.at(done);
            if let Some(signal) = interrupt.signal() {
                eprintln!("\nerror: interrupted by {}; nothing was run", signal_name(signal));
                std::process::exit(128 + signal);
            }
        })?;
        bar.done();
        files.push(ModelFile {
            name: model.name.clone(),
            file: model.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            file_bytes: bytes,
            sha256: identity.sha256.unwrap_or_default(),
            synth_shape: model.recipe.as_ref().map(|recipe| recipe.shape.name.clone()),
        });
    }
    let storage = located.first().and_then(|m| m.path.canonicalize().ok()).unwrap_or_default();
    let own = engine::own_path()?;
    Ok(Environment {
        cores: environment::cores(),
        bmoe_commit: own.parent().and_then(environment::commit),
        started: Some(environment::now()),
        models: files,
        ..Machine::here().environment(&storage)
    })
}

/// A filter can leave cells without the baseline that they would be compared with.
fn warn_about_texts(schedule: &Schedule, observer: &mut dyn crate::runner::Observer) {
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
