//! `bmoe report`

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::say::say;
use crate::{atomic, results, splice};

/// Render the report of a result folder again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Rebuilds DIR/data/*.parquet from the traces that are still there, then DIR/report.md and DIR/plots/.
Of a folder that `bmoe import` made, writes DIR/report.md with the table of its per-token logs.
Both come with DIR/report.html: the same in one file, whose routes can be looked through and whose tables sort.

With --splice tables in another document are taken anew from the reports of the folders that its markers name:

  <!-- bmoe report results/quickstart | quickstart | configuration, tok/s mean, hit % -->
  <!-- bmoe end -->

that is a folder beside the document, a heading of its report, and the columns that are wanted.

Examples:
  bmoe report runs/quickstart-20261130-160000
  bmoe report runs/quickstart-20261130-160000 --warmup-tokens 16
  bmoe report --splice README.md")]
pub(super) struct Args {
    /// A folder that `bmoe run` or `bmoe import` made
    #[arg(required_unless_present = "splice", conflicts_with = "splice")]
    dir: Option<PathBuf>,
    /// Add a table of the steady state, without the first so many tokens of each run [default: the
    /// matrix's warmup_tokens, if it has any]
    #[arg(long, value_name = "N", conflicts_with = "splice")]
    warmup_tokens: Option<usize>,
    /// Refresh the tables between the markers of this document
    #[arg(long, value_name = "FILE")]
    splice: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    if let Some(document) = &args.splice {
        return refresh(document);
    }
    let dir = args.dir.as_deref().unwrap_or(Path::new(""));
    results::render_with(dir, args.warmup_tokens)?.print();
    Ok(())
}

fn refresh(document: &Path) -> Result<(), Error> {
    let text = fs::read_to_string(document).map_err(Error::io("read", document))?;
    let beside = document.parent().unwrap_or(Path::new(""));
    let mut report = |folder: &str| -> Result<String, String> {
        let folder = beside.join(folder);
        results::render(&folder).map_err(|error| error.to_string())?;
        fs::read_to_string(folder.join("report.md")).map_err(|error| error.to_string())
    };
    let (fresh, tables) = splice::refresh(&text, &mut report)
        .map_err(|error| Error::Refused(format!("{}: {error}", document.display())))?;
    if tables == 0 {
        return Err(Error::Refused(format!(
            "{} has no marker; expected lines \"<!-- bmoe report FOLDER | HEADING -->\" and \"<!-- bmoe end -->\"",
            document.display()
        )));
    }
    if fresh != text {
        atomic::write(document, fresh.as_bytes()).map_err(Error::io("write", document))?;
    }
    say!(
        "{}: {tables} tables, {}",
        document.display(),
        if fresh == text { "all as they were" } else { "refreshed" }
    );
    Ok(())
}
