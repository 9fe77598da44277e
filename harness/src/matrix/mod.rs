//! Matrices: what `bmoe run` measures, as data (`docs/matrices.md` is the reference of the format).

mod cells;
mod group;
mod knobs;
mod naming;
mod order;
mod published;
mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::runner::GateRules;

pub use cells::{Cell, Planned, Schedule, Selection};
pub use group::Group;
pub use knobs::{Axes, ExtraCell, Overrides};
pub use order::Order;
pub use published::{Published, PublishedEntry};
pub use values::Values;

/// Runs that one matrix may have: more would take weeks, and are a slip of the pen.
const MAX_RUNS: u64 = 10_000;

/// A matrix file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// Names the result folder; letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// One line that says what the matrix is for.
    #[serde(default)]
    pub description: String,
    /// Times that every cell is run.
    #[serde(default = "one")]
    pub repetitions: u32,
    /// Seconds after which a run is ended.
    #[serde(default = "default_timeout_s")]
    pub timeout_s: u32,
    /// How often a run is tried again that was lost, killed or not done in time.
    #[serde(default)]
    pub retries: u32,
    /// Runs of each model's first cell before the first one that counts.
    #[serde(default)]
    pub warmup_runs: u32,
    /// Seconds that a target may be away before a run there counts as lost.
    #[serde(default = "default_patience_s")]
    pub patience_s: u32,
    /// The order of the runs.
    #[serde(default)]
    pub order: Order,
    /// Decides a random order.
    #[serde(default)]
    pub seed: u64,
    /// When a run may begin.
    #[serde(default)]
    pub gate: GateTable,
    /// Tokens at the start of each run that the report's steady state is without; the report reads it from
    /// the result folder's copy of the matrix.
    #[serde(default)]
    pub warmup_tokens: u32,
    /// The models; every cell is run on each of them.
    #[serde(rename = "model", default)]
    pub models: Vec<Model>,
    /// Settings that all cells share.
    #[serde(default)]
    pub base: Overrides,
    /// Settings that vary; every combination is a cell.
    #[serde(default)]
    pub axes: Option<Axes>,
    /// Combinations of the axes that are left out.
    #[serde(default)]
    pub exclude: Vec<Overrides>,
    /// Further cells, beside those of the axes.
    #[serde(default, rename = "cell")]
    pub cells: Vec<ExtraCell>,
    /// Which cell the others are compared with.
    pub baseline: Option<Overrides>,
    /// Prompts by name: every combination of the axes, and every further cell without a prompt of its own, is
    /// run with each.
    #[serde(default)]
    pub prompts: BTreeMap<String, String>,
    /// Further comparisons.
    #[serde(default, rename = "group")]
    pub groups: Vec<Group>,
    /// Figures that others have published of these cells.
    pub published: Option<Published>,
}

const fn one() -> u32 {
    1
}

const fn default_timeout_s() -> u32 {
    600
}

const fn default_patience_s() -> u32 {
    600
}

/// When a run may begin; what is left out is as it was when the matrix began.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GateTable {
    /// Nothing is waited for.
    pub off: bool,
    /// The hottest sensor of the CPU shows no more, degrees Celsius.
    pub cpu_temperature_c: Option<f64>,
    /// At least so much memory is available, MiB.
    pub mem_available_mib: Option<u64>,
    /// The highest clock allowed is at least so many per cent of what it was.
    pub max_clock_pct: Option<f64>,
    /// The longest wait, seconds.
    pub max_wait_s: Option<f64>,
}

impl GateTable {
    /// The same with what is left out.
    #[must_use]
    pub fn rules(&self) -> GateRules {
        let default = GateRules::default();
        GateRules {
            off: self.off,
            cpu_temperature_c: self.cpu_temperature_c,
            mem_available_mib: self.mem_available_mib,
            max_clock_pct: self.max_clock_pct,
            max_wait: self.max_wait_s.map_or(default.max_wait, |s| {
                Duration::try_from_secs_f64(s).unwrap_or(default.max_wait)
            }),
            ..default
        }
    }
}

/// A model of a matrix: a file, or a shape that is made when it isn't there.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Its name in tables and cells.
    pub name: String,
    /// A GGUF file, relative to the matrix file.
    pub path: Option<PathBuf>,
    /// Part of the hash of a file in the models folder.
    pub sha256: Option<String>,
    /// A synthetic model.
    pub synth: Option<Synth>,
}

/// A synthetic model, in the words of `bmoe synth`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Synth {
    /// A shape that `bmoe synth --list` shows, or a shape file (relative to the matrix file).
    pub shape: String,
    /// Shortens the shape to so many layers.
    pub layers: Option<u32>,
    /// Seed of the weights.
    #[serde(default)]
    pub seed: u64,
}

/// A matrix that can't be run.
#[derive(Debug, thiserror::Error)]
pub enum MatrixError {
    /// The file can't be read.
    #[error("cannot read the matrix {}: {source}", path.display())]
    Read {
        /// The file named.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file isn't a matrix.
    #[error("{} is not a matrix: {message}", path.display())]
    Parse {
        /// The file named.
        path: PathBuf,
        /// What is wrong, with its place in the file.
        message: String,
    },
    /// The file says something that makes no sense.
    #[error("the matrix {matrix} {problem}")]
    Invalid {
        /// Its name.
        matrix: String,
        /// What is wrong and what would be right.
        problem: String,
    },
}

impl Matrix {
    /// Reads a matrix; also returns its text, which is kept with the results.
    ///
    /// # Errors
    /// The file can't be read, is no TOML, has a key that isn't known, or contradicts itself.
    pub fn load(path: &Path) -> Result<(Self, String), MatrixError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| MatrixError::Read { path: path.to_owned(), source })?;
        let matrix: Self = toml::from_str(&text).map_err(|e| MatrixError::Parse {
            path: path.to_owned(),
            message: e.to_string().trim_end().to_owned(),
        })?;
        matrix.check()?;
        Ok((matrix, text))
    }

    /// Takes files in the place of models.
    ///
    /// # Errors
    /// It has no model of such a name.
    pub fn use_files(&mut self, files: &BTreeMap<String, PathBuf>) -> Result<(), MatrixError> {
        for (name, file) in files {
            let Some(model) = self.models.iter_mut().find(|model| model.name == *name) else {
                let known: Vec<_> = self.models.iter().map(|m| m.name.as_str()).collect();
                return Err(self.invalid(format!(
                    "has no model `{name}` to take {} for; its models are {}",
                    file.display(),
                    known.join(", ")
                )));
            };
            *model =
                Model { name: name.clone(), path: Some(file.clone()), sha256: None, synth: None };
        }
        Ok(())
    }

    /// Makes the files that its models name independent of where the matrix file is.
    pub fn rebase(&mut self, folder: &Path) {
        for model in &mut self.models {
            model.path = model.path.take().map(|path| folder.join(path));
            if let Some(synth) = &mut model.synth
                && Path::new(&synth.shape).extension().is_some_and(|end| end == "toml")
            {
                synth.shape = folder.join(&synth.shape).to_string_lossy().into_owned();
            }
        }
    }

    fn invalid(&self, problem: impl Into<String>) -> MatrixError {
        MatrixError::Invalid { matrix: format!("`{}`", self.name), problem: problem.into() }
    }

    /// Everything that can be wrong without looking at single cells.
    fn check(&self) -> Result<(), MatrixError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.name.is_empty() || self.name.starts_with('.') || !self.name.chars().all(plain) {
            return Err(self.invalid(
                "needs another `name`: it names a folder and may hold letters, digits, `-`, `_` \
                 and `.` (not first)",
            ));
        }
        if self.repetitions == 0 {
            return Err(self.invalid("has `repetitions = 0`; expected 1 or more"));
        }
        if self.timeout_s == 0 {
            return Err(self.invalid("has `timeout_s = 0`; expected the seconds one run may take"));
        }
        if let Some(axis) = self.axes.as_ref().and_then(|a| a.empty().first().copied()) {
            return Err(self.invalid(format!(
                "has no value for the axis `{axis}`; give it one or remove the axis"
            )));
        }
        if self.models.is_empty() {
            return Err(self.invalid("has no model; expected at least one [[model]]"));
        }
        self.check_size()?;
        let models = self.models.iter().map(|model| ("model", &model.name));
        let cells = self.cells.iter().filter_map(|cell| Some(("cell", cell.name.as_ref()?)));
        let prompts = self.prompts.keys().map(|name| ("prompt", name));
        let groups = self.groups.iter().map(|group| ("group", &group.name));
        let mut names = models.chain(cells).chain(prompts).chain(groups);
        if let Some((what, name)) = names.find(|(_, name)| !fits_a_table(name)) {
            return Err(self.invalid(format!(
                "has the {what} name {name:?}; expected one line of printable characters without `|`"
            )));
        }
        for (i, model) in self.models.iter().enumerate() {
            if self.models[..i].iter().any(|other| other.name == model.name) {
                return Err(self.invalid(format!("has two models named `{}`", model.name)));
            }
            let ways = [
                ("path", model.path.is_some()),
                ("sha256", model.sha256.is_some()),
                ("synth", model.synth.is_some()),
            ];
            let given: Vec<&str> = ways.iter().filter(|(_, is)| *is).map(|(way, _)| *way).collect();
            if given.len() != 1 {
                let given =
                    if given.is_empty() { "none of them".to_owned() } else { given.join(" and ") };
                return Err(self.invalid(format!(
                    "has the model `{}` with {given}; expected one of `path` (a GGUF file), `sha256` (of a \
                     file in the models folder) and `synth` (a shape to make it from)",
                    model.name,
                )));
            }
            if let Some(hash) = &model.sha256
                && (!(12..=64).contains(&hash.len())
                    || !hash.bytes().all(|b| b.is_ascii_hexdigit()))
            {
                return Err(self.invalid(format!(
                    "has the model `{}` with `sha256 = {hash:?}`; expected 12 to 64 hex digits",
                    model.name
                )));
            }
        }
        let published = self.published.iter().flat_map(|published| &published.cells);
        let published = published.filter_map(|entry| entry.model.as_ref());
        for model in self.cells.iter().filter_map(|cell| cell.model.as_ref()).chain(published) {
            if !self.models.iter().any(|m| m.name == *model) {
                let known: Vec<_> = self.models.iter().map(|m| m.name.as_str()).collect();
                return Err(self.invalid(format!(
                    "has a cell for the model `{model}`; its models are {}",
                    known.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// Refuses what would be too many runs before anything is expanded.
    fn check_size(&self) -> Result<(), MatrixError> {
        let prompts = u64::try_from(self.prompts.len().max(1)).unwrap_or(u64::MAX);
        let combinations = self.axes.as_ref().map_or(0, Axes::count).saturating_mul(prompts);
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let cells = combinations
            .saturating_add(count(self.cells.len()))
            .saturating_mul(count(self.models.len()));
        if cells > MAX_RUNS {
            return Err(self.invalid(format!(
                "multiplies to {cells} cells; expected at most {MAX_RUNS}: give the axes fewer values"
            )));
        }
        self.check_runs(1)
    }

    /// Refuses too many repetitions of so many cells.
    fn check_runs(&self, cells: usize) -> Result<(), MatrixError> {
        let runs =
            u64::try_from(cells).unwrap_or(u64::MAX).saturating_mul(u64::from(self.repetitions));
        if runs > MAX_RUNS {
            return Err(self.invalid(format!(
                "has `repetitions = {}`, {runs} runs or more; expected at most {MAX_RUNS} runs",
                self.repetitions
            )));
        }
        Ok(())
    }
}

/// Whether a name can stand in a table's cell and in a line of the log.
fn fits_a_table(name: &str) -> bool {
    let breaks = |c: char| c.is_control() || matches!(c, '|' | '\u{2028}' | '\u{2029}');
    !name.trim().is_empty() && !name.contains(breaks)
}
