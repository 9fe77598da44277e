//! `bmoe refine`

use std::path::{Path, PathBuf};

use bmoe_analysis::measured::Measured;

use super::run::plan::Plan;
use crate::atomic;
use crate::error::Error;
use crate::matrix::Matrix;
use crate::refine::refine;
use crate::say::say;

/// Write a fine matrix around the fastest cell of a sweep
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Takes the fastest valid cell with the text of its baseline, and varies its cache, lanes, threads and overlap one at a
time, halfway to the values beside it that were measured. The matrix is an ordinary one, to be read and changed.

Example:
  bmoe run matrices/sweep-new-device.toml --target adb --out runs/sweep
  bmoe refine runs/sweep --out fine.toml && bmoe run fine.toml --target adb")]
pub(super) struct Args {
    /// The result folder of the sweep
    dir: PathBuf,
    /// The matrix file to write
    #[arg(short, long, value_name = "FILE.toml")]
    out: PathBuf,
    /// Replace the file
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    if args.out.exists() && !args.force {
        return Err(Error::Refused(format!(
            "{} is there already; --force replaces it, another --out keeps both",
            args.out.display()
        )));
    }
    let measured = Measured::read(&args.dir)?;
    let (mut matrix, _) = Matrix::load(&args.dir.join("matrix.toml"))?;
    // A folder that was only copied has no plan; then its models are where its matrix says.
    if args.dir.join("plan.json").exists() {
        let plan = Plan::load(&args.dir)?;
        matrix.use_files(&plan.model_files)?;
        let here = std::path::absolute(".").map_err(Error::io("find", Path::new(".")))?;
        matrix.rebase(&here.join(&plan.matrix_folder));
    }
    let refined = refine(&measured, &matrix)
        .map_err(|problem| Error::Refused(format!("{}: {problem}", args.dir.display())))?;
    // What is written is read again before anybody runs it.
    let fine: Matrix = toml::from_str(&refined.toml).map_err(|e| {
        Error::Engine(format!("the matrix that would be written can't be read: {e}"))
    })?;
    fine.schedule()?;
    atomic::write(&args.out, refined.toml.as_bytes()).map_err(Error::io("write", &args.out))?;
    say!(
        "{}: {} cells around \"{}\" ({:.2} tok/s)",
        args.out.display(),
        refined.cells,
        refined.around,
        refined.tok_s
    );
    say!("bmoe run {}", args.out.display());
    Ok(())
}
