//! `bmoe view`

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::view::app::{App, Left};
use crate::view::screens::Screen;
use crate::view::screens::{
    compare::CompareScreen, experts::ExpertsScreen, matrix::MatrixScreen, run::RunScreen,
};
use crate::view::source::Still;
use crate::view::terminal::{Signals, Taken};
use crate::view::{Theme, World};

/// Watch a run, or replay one
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A result folder, finished or in progress, an imported folder, or a trace
    source: PathBuf,
    /// Frames a second at most
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60))]
    fps: u32,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let screens: Vec<Box<dyn Screen>> = vec![
        Box::new(RunScreen::default()),
        Box::new(ExpertsScreen::default()),
        Box::new(MatrixScreen::default()),
        Box::new(CompareScreen::default()),
    ];
    let theme = Theme::from_env(|name| std::env::var(name).ok());
    let mut app = App::new(World::default(), Box::new(Still), screens, theme);
    let terminal = Path::new("the terminal");
    if !std::io::stdout().is_terminal() {
        return Ok(());
    }
    let signals = Signals::watch().map_err(Error::io("watch signals for", &args.source))?;
    let mut taken = Taken::take().map_err(Error::io("take", terminal))?;
    let left = app.run(&mut taken, &signals, args.fps);
    drop(taken);
    match left.map_err(Error::io("draw on", terminal))? {
        Left::Quit => Ok(()),
        Left::Signal(signal) => Err(Error::Interrupted { signal, what: String::new() }),
    }
}
