//! `bmoe report`

use std::path::PathBuf;

use crate::error::Error;
use crate::results;

/// Render the report of a result folder again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Rebuilds DIR/data/*.parquet from the traces that are still there, then DIR/report.md and DIR/plots/.
Of a folder that `bmoe import` made, writes DIR/report.md with the table of its per-token logs.
Both come with DIR/report.html: the same in one file, whose routes can be looked through and whose tables sort.

Examples:
  bmoe report runs/quickstart-20261130-160000
  bmoe report runs/quickstart-20261130-160000 --warmup-tokens 16")]
pub(super) struct Args {
    /// A folder that `bmoe run` or `bmoe import` made
    dir: PathBuf,
    /// Add a table of the steady state, without the first so many tokens of each run [default: the
    /// matrix's warmup_tokens, if it has any]
    #[arg(long, value_name = "N")]
    warmup_tokens: Option<usize>,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let rendered = results::render_with(&args.dir, args.warmup_tokens)?;
    rendered.print();
    Ok(())
}
