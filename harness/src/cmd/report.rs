//! `bmoe report`

use std::path::PathBuf;

use crate::error::Error;
use crate::results;

/// Render the report of a result folder again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Rebuilds DIR/data/*.parquet from the traces that are still there, then DIR/report.md and DIR/plots/.
Of a folder that `bmoe import` made, writes DIR/report.md with the table of its per-token logs.

Example:
  bmoe report runs/quickstart-20261130-160000")]
pub(super) struct Args {
    /// A folder that `bmoe run` or `bmoe import` made
    dir: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let rendered = results::render(&args.dir)?;
    rendered.print();
    Ok(())
}
