//! `bmoe view`

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::matrix::Matrix;
use crate::results;
use crate::view::app::{App, Left};
use crate::view::screens::compare::CompareScreen;
use crate::view::screens::experts::ExpertsScreen;
use crate::view::screens::{Screen, ScreenId, matrix::MatrixScreen, run::RunScreen};
use crate::view::source::start::StartSource;
use crate::view::source::{self, Source};
use crate::view::terminal::{Signals, Taken};
use crate::view::{Theme, World, plain};

/// Watch a run in a terminal, or replay one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A result folder in progress is followed, a finished one is replayed: play, pause, go to any token, at 0.25 to 16
times the speed at which it ran. `?` shows the keys. Leaving the viewer leaves the run alone.

Examples:
  bmoe view runs/quickstart-20261130-174617
  bmoe view --matrix matrices/quickstart.toml
  bmoe view --matrix my.toml --target adb -- --filter 'cache off'
  bmoe view imports/logs
  bmoe view run.trace --no-tui")]
pub(super) struct Args {
    /// A result folder, finished or in progress, an imported folder, or a trace
    #[arg(required_unless_present = "matrix", conflicts_with = "matrix")]
    source: Option<PathBuf>,
    /// Start this matrix and follow it; it goes on when the viewer is left
    #[arg(long, value_name = "FILE")]
    matrix: Option<PathBuf>,
    /// The result folder of --matrix, new or empty [default: runs/<matrix>-<UTC date and time>]
    #[arg(short, long, value_name = "DIR", requires = "matrix")]
    out: Option<PathBuf>,
    /// Where --matrix runs: `local`, `adb` or `adb:SERIAL` [default: local]
    #[arg(long, value_name = "TARGET", requires = "matrix")]
    target: Option<String>,
    /// Plain lines instead of a screen; what is no terminal gets them in any case
    #[arg(long)]
    no_tui: bool,
    /// Frames a second at most
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60))]
    fps: u32,
    /// Options of `bmoe run` for --matrix
    #[arg(last = true, value_name = "OPTIONS", requires = "matrix")]
    options: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let signals = Signals::watch().map_err(Error::io("watch signals for", Path::new("view")))?;
    let (mut source, mut world) = args.open()?;
    if args.no_tui || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let out = &mut std::io::stdout().lock();
        let left = plain::run(source.as_mut(), &mut world, out, &signals);
        // Whoever read has enough.
        let left = match left {
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(Left::Quit),
            left => left,
        };
        let left = left.map_err(Error::io("write to", Path::new("standard output")))?;
        return conclude(left, source.goes_on());
    }
    let mut screens: Vec<Box<dyn Screen>> = vec![
        Box::new(RunScreen::default()),
        Box::new(MatrixScreen::default()),
        Box::new(ExpertsScreen::default()),
        Box::new(CompareScreen::default()),
    ];
    if args.matrix.is_none() && world.cells.is_empty() && !args.is_results() {
        let alone = world.runs.len() < 2;
        screens.retain(|screen| {
            screen.id() != ScreenId::Matrix && !(alone && screen.id() == ScreenId::Compare)
        });
    }
    let theme = Theme::from_env(|name| std::env::var(name).ok());
    let mut app = App::new(world, source, screens, theme);
    let terminal = Path::new("the terminal");
    let mut taken = Taken::take().map_err(Error::io("take", terminal))?;
    let left = app.run(&mut taken, &signals, args.fps);
    drop(taken);
    conclude(left.map_err(Error::io("draw on", terminal))?, app.goes_on())
}

fn conclude(left: Left, goes_on: Option<String>) -> Result<(), Error> {
    if let Some(text) = &goes_on {
        let _ = writeln!(std::io::stderr(), "{text}");
    }
    match left {
        Left::Quit => Ok(()),
        Left::Signal(signal) => Err(Error::Interrupted { signal, what: String::new() }),
    }
}

impl Args {
    fn is_results(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.join("cells.jsonl").is_file())
    }

    fn open(&self) -> Result<(Box<dyn Source>, World), Error> {
        let Some(path) = &self.matrix else {
            return source::open(self.source.as_deref().unwrap_or(Path::new("")));
        };
        // What is wrong with the matrix is said here rather than in another process's log.
        let (matrix, _) = Matrix::load(path)?;
        matrix.schedule()?;
        let out = self.out.clone().unwrap_or_else(|| super::run::default_out(&matrix.name));
        results::check_free(&out)?;
        let mut words = vec![path.clone().into_os_string()];
        if let Some(target) = &self.target {
            words.extend(["--target".into(), target.into()]);
        }
        words.extend(self.options.iter().cloned());
        let (source, world) = StartSource::start(&words, &out)?;
        Ok((Box::new(source), world))
    }
}
