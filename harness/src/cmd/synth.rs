//! `bmoe synth`

use std::path::{Path, PathBuf};

use bmoe_synth::{Shape, builtin_names};

use crate::error::Error;
use crate::models::{self, Made, Recipe, Replace};
use crate::progress::mib;
use crate::runner::Interrupt;
use crate::say::say;

use super::make_model;

/// Make a GGUF model with random weights and routing like a real model's
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A model that is there already and would come out the same is kept. The same shape, layers and seed
give the same bytes on every machine.

Examples:
  bmoe synth --list
  bmoe synth --shape quickstart
  bmoe synth --shape qwen3-30b-a3b --layers 12 --out models/qwen3-12.gguf
  bmoe synth --shape my-shape.toml --split 3 --dry-run")]
pub(super) struct Args {
    /// A built-in shape (see --list) or a shape file ending in .toml
    #[arg(long, value_name = "NAME|FILE.toml", required_unless_present = "list")]
    shape: Option<String>,
    /// Only the first N layers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    layers: Option<u32>,
    /// Seed of the weights
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Write N files, FILE-00001-of-0000N.gguf and so on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99_999))]
    split: Option<u32>,
    /// The file to write [default: models/<shape>.gguf, or models/<shape>-<N>layers.gguf]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Show the built-in shapes and their sizes
    #[arg(long, conflicts_with_all = ["shape", "layers", "split", "out", "dry_run", "force"])]
    list: bool,
    /// Show sizes and check the options, write nothing
    #[arg(long)]
    dry_run: bool,
    /// Write even if a file is in the way
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let Some(name) = &args.shape else { return list() };
    let shape = models::shape(name, Path::new(""))?;
    let recipe = Recipe { shape, layers: args.layers, seed: args.seed, split: args.split };
    let path = args.out.clone().unwrap_or_else(|| Path::new("models").join(recipe.file_name()));
    recipe.files(&path)?;
    let plan = recipe.plan()?;
    let experts = plan.total_expert_bytes(&recipe.shape);
    let sizes = format!(
        "{}, of which {} in experts ({} layers x {} experts of {})",
        mib(plan.file_bytes),
        mib(experts),
        plan.expert_bytes.len(),
        recipe.shape.dims.experts,
        expert_sizes(&plan.expert_bytes),
    );
    if args.dry_run {
        say!("would write {}: {sizes}", path.display());
        return Ok(());
    }
    let replace = if args.force { Replace::Always } else { Replace::Never };
    let interrupt = Interrupt::watch().map_err(Error::io("watch signals for", &path))?;
    let files = match make_model(&recipe, &path, replace, &interrupt)? {
        Made::Kept { files } => {
            say!("kept, since the same model is there: {}", list_files(&files));
            return Ok(());
        }
        Made::Written(report) => report.files,
    };
    say!("wrote {}: {sizes}", list_files(&files));
    Ok(())
}

fn list_files(files: &[PathBuf]) -> String {
    files.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(" ")
}

fn list() -> Result<(), Error> {
    say!("{:<19} {:>10} {:>10}  what for", "shape", "file", "experts");
    for name in builtin_names() {
        let shape = Shape::builtin(name)?;
        let plan = bmoe_synth::plan(&shape, None, None)?;
        say!(
            "{name:<19} {:>10} {:>10}  {}",
            mib(plan.file_bytes),
            mib(plan.total_expert_bytes(&shape)),
            shape.description
        );
    }
    Ok(())
}

/// The distinct sizes of one expert, in order of size.
fn expert_sizes(bytes: &[u64]) -> String {
    let mut sizes = bytes.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    let sizes: Vec<_> = sizes.iter().map(u64::to_string).collect();
    format!("{} bytes", sizes.join(" or "))
}
