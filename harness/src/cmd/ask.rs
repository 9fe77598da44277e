//! What the commands that ask route traces share: where the trace is, and how the answer is shown.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use bmoe_analysis::AnalysisError;
use bmoe_analysis::plots::{Picture, Theme};
use bmoe_analysis::routes::views::ViewError;
use bmoe_analysis::routes::{LoadOptions, RouteTrace, load};
use serde_json::{Value, json};

use super::simulate::{request, sized};
use crate::atomic;
use crate::error::Error;

/// Where the routes are.
#[derive(Debug, clap::Args)]
pub(super) struct TraceArgs {
    /// A trace of any format that `bmoe import` reads, a folder that it made, or a result folder; DIR:NAME is
    /// one run or cell of a folder
    trace: PathBuf,
    /// Size of one expert, for traces that don't say it
    #[arg(long, value_name = "MIB", value_parser = request::positive)]
    expert_mib: Option<f64>,
}

impl TraceArgs {
    pub(super) fn load(&self) -> Result<RouteTrace, Error> {
        open(&self.trace, LoadOptions::default(), self.expert_mib)
    }

    /// For `map_err`: a question that the trace can't answer.
    pub(super) fn refused(&self, error: &ViewError) -> Error {
        Error::Refused(format!("{}: {error}", self.trace.display()))
    }
}

/// Reads the routes of a trace; `expert_mib` is the size of its experts where it has none.
pub(super) fn open(
    trace: &Path,
    options: LoadOptions,
    expert_mib: Option<f64>,
) -> Result<RouteTrace, Error> {
    sized(load(trace, options).map_err(|error| missing(error, trace))?, expert_mib)
}

/// An input that isn't there is no failure on the way.
pub(super) fn missing(error: AnalysisError, given: &Path) -> Error {
    match error {
        AnalysisError::Io { source, .. }
            if source.kind() == io::ErrorKind::NotFound && !given.exists() =>
        {
            Error::Refused(format!(
                "there is no {}; expected a trace or log that `bmoe import` reads, a folder that it made, or \
                 a result folder of `bmoe run`",
                given.display()
            ))
        }
        other => other.into(),
    }
}

/// How the answer is shown.
#[derive(Debug, clap::Args)]
pub(super) struct OutputArgs {
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV, all rows
    #[arg(long)]
    csv: bool,
    /// Rows shown on the terminal; 0 = all
    #[arg(long, value_name = "N", default_value_t = 50)]
    top: usize,
    /// Draw a picture, too; the format is the file's ending
    #[arg(long, value_name = "FILE.svg|png", value_parser = picture_path)]
    plot: Option<PathBuf>,
    /// Its background; auto = light, but an SVG follows its viewer
    #[arg(long, value_name = "auto|light|dark", default_value = "auto", requires = "plot")]
    theme: Theme,
}

/// For clap: a file ending in `.svg` or `.png`, in a folder that is there.
pub(super) fn picture_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(format!("there is no folder {}; make it first", folder.display()));
    }
    match path.extension().and_then(|e| e.to_str()) {
        Some("svg" | "png") => Ok(path),
        _ => Err("the file's name must end in .svg or .png".to_owned()),
    }
}

/// An answer in its forms; only those asked for are made.
pub(super) struct Answer<'a> {
    pub(super) terminal: &'a dyn Fn(usize) -> String,
    pub(super) csv: &'a dyn Fn() -> String,
    pub(super) json: &'a dyn Fn() -> serde_json::Result<Value>,
    pub(super) picture: &'a dyn Fn(Theme) -> Result<Picture, String>,
}

impl OutputArgs {
    /// Draws the picture, then prints.
    pub(super) fn show(&self, answer: &Answer<'_>) -> Result<(), Error> {
        if let Some(path) = &self.plot {
            let picture = (answer.picture)(self.theme);
            draw(path, picture)?;
        }
        let text = if self.json {
            let value =
                (answer.json)().map_err(|e| Error::io("write", Path::new("JSON"))(e.into()))?;
            format!("{value:#}\n")
        } else if self.csv {
            (answer.csv)()
        } else {
            (answer.terminal)(self.top)
        };
        print(&text)
    }
}

/// Writes an answer to standard output.
pub(super) fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.or_else(crate::say::closed).map_err(Error::io("write to", Path::new("standard output")))
}

/// Writes a picture in the format that the file's ending names.
pub(super) fn draw(path: &Path, picture: Result<Picture, String>) -> Result<(), Error> {
    let plot = |message| bmoe_analysis::AnalysisError::Plot { path: path.to_owned(), message };
    let picture = picture.map_err(plot)?;
    let bytes = match path.extension().and_then(|e| e.to_str()) {
        Some("png") => picture.png.as_slice(),
        _ => picture.svg.as_bytes(),
    };
    atomic::write(path, bytes).map_err(Error::io("write", path))
}

/// What a JSON answer says of its trace.
pub(super) fn describe(trace: &RouteTrace) -> Value {
    json!({
        "name": trace.name,
        "arch": trace.arch,
        "n_moe_layer": trace.layers.len(),
        "n_expert": trace.n_expert,
        "decode_tokens": trace.decode_tokens(),
        "rows": trace.rows(),
        "bank_bytes": trace.has_sizes().then(|| trace.bank_bytes()),
    })
}

/// MiB as bytes.
pub(super) fn mib_to_bytes(mib: f64) -> u64 {
    (mib * f64::from(1 << 20)).round() as u64
}
